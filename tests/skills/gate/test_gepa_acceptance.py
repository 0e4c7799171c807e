"""The exam inside the real GEPA: it takes what is proved, and nothing else."""

import threading
import time
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from gepa.api import optimize
from gepa.core.adapter import EvaluationBatch, ProposalFn
from gepa.core.result import GEPAResult
from gepa.logging.logger import LoggerProtocol

from known_world import World, sentence
from whet.skills.gate.gepa import ExamAcceptance

SEED = {"skill": "Do your best."}
HELPFUL = "\n".join(sentence(f"H{n}") for n in range(6))


class ScriptedAdapter:
    """A system whose scores are those of the world, and whose new texts are these lines, one after the other."""

    def __init__(self, seed: int, *lines: str) -> None:
        self._world, self._lines, self.rollouts = World(seed), list(lines), 0
        self.propose_new_texts: ProposalFn | None = self._new_texts

    def evaluate(
        self, batch: list[str], candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[str, str]:
        scores = []
        for task in batch:
            self.rollouts += 1
            scores.append(float(self._world.succeeds(task, candidate["skill"], str(self.rollouts))))
        return EvaluationBatch(list(batch), scores, list(batch) if capture_traces else None)

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: EvaluationBatch[str, str], components_to_update: list[str]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        return {name: [{"task": task} for task in eval_batch.outputs] for name in components_to_update}

    def _new_texts(
        self,
        candidate: dict[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> dict[str, str]:
        line = self._lines.pop(0) if self._lines else sentence("N9")
        return {"skill": f"{candidate['skill']}\n{line}"}


class Quiet(LoggerProtocol):
    def log(self, message: str) -> None:
        pass


def optimized(adapter: ScriptedAdapter, **more: Any) -> GEPAResult[Any, Any]:
    world = World()
    return optimize(
        SEED,
        list(world.tasks("train")[:15]),
        list(world.tasks("train")[15:]),
        adapter,
        skip_perfect_score=False,
        logger=Quiet(),
        **more,
    )


def test_gepa_under_the_exam_takes_nothing_useless() -> None:
    nulls = [sentence(f"N{n}") for n in range(40)]
    alone = optimized(ScriptedAdapter(5, *nulls), max_metric_calls=400)
    assert len(alone.candidates) > 2
    adapter = ScriptedAdapter(5, *nulls)
    accept = ExamAcceptance(adapter, SEED, World().tasks("validation"), seed=5, budget=700)
    proved = optimized(adapter, acceptance_criterion=accept, stop_callbacks=accept, max_metric_calls=2000)
    assert proved.candidates == [SEED]
    assert accept.certified == SEED
    assert len(accept.exam.exam_results) > 1
    assert accept.exam.spent <= 700


@pytest.mark.parametrize("seed", [1, 2])
def test_what_helps_is_taken_with_its_proof(seed: int) -> None:
    adapter = ScriptedAdapter(seed, *[sentence("B0")] * 2, *[HELPFUL] * 12)
    accept = ExamAcceptance(adapter, SEED, World().tasks("validation"), seed=seed)
    found = optimized(adapter, acceptance_criterion=accept, max_metric_calls=150)
    assert HELPFUL in accept.certified["skill"]
    assert accept.certified in found.candidates
    held = next(one for one in accept.exam.exam_results if one.candidate == accept.exam.incumbent)
    assert held.test.at_least() > 0


def asked(accept: ExamAcceptance, before: float, after: float, **candidate: str) -> bool:
    """Whether a proposal with these scores on GEPA's minibatch is accepted."""
    proposal: Any = SimpleNamespace(
        candidate=candidate, subsample_scores_before=[before], subsample_scores_after=[after]
    )
    state: Any = None
    return accept.should_accept(proposal, state)


class Alone:
    """An adapter that bears one thread at a time; what it is told to be good scores 1."""

    def __init__(self) -> None:
        self._lock, self.rollouts = threading.Lock(), 0

    def evaluate(self, batch: list[int], candidate: dict[str, str]) -> EvaluationBatch[int, int]:
        assert self._lock.acquire(blocking=False)
        time.sleep(0.0005)
        self.rollouts += 1
        self._lock.release()
        return EvaluationBatch(batch, [float(candidate["a"] == "good") for _ in batch], None)


def test_only_what_is_better_on_the_minibatch_and_new_is_held() -> None:
    adapter = Alone()
    accept = ExamAcceptance(adapter, {"a": "bad", "b": "x"}, range(30))
    assert not asked(accept, 1.0, 1.0, a="good", b="x")
    assert not asked(accept, 0.0, 1.0, b="x", a="bad"), "it is the incumbent, whatever the order of its parts"
    assert adapter.rollouts == 0
    assert asked(accept, 0.0, 1.0, a="good", b="x")
    assert accept.certified == {"a": "good", "b": "x"}


def test_without_rollouts_nothing_is_accepted() -> None:
    adapter = Alone()
    accept = ExamAcceptance(adapter, {"a": "bad"}, range(30), budget=13)
    state: Any = None
    assert not accept(state)
    assert not asked(accept, 0.0, 1.0, a="good")
    assert accept(state)
    assert adapter.rollouts == 0
