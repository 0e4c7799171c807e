"""Rollouts on the real small model: every call is token exact, and rows are what the engine read and sampled."""

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean
from typing import Any

import pytest

from support.models_world import NEAR, Asked, faults_of_row
from support.models_world import engine_fixture as engine_fixture
from support.models_world import smollm2_fixture as smollm2_fixture
from support.whet_program import Project, new_project
from whet.exchange import EXACT, Exchange
from whet.models import PulledModel
from whet.runs.store.store import Store

SETTINGS = """
[models.policy]
local = "smollm2"
context = 2048
set = { temperature = 0.6, top_p = 1.0, top_k = -1, min_p = 0.0, repetition_penalty = 1.0, seed = 11, max_tokens = 20 }
"""
TASKS: list[dict[str, Any]] = [
    {
        "id": "capitals",
        "instruction": "What is the capital of France? Say it in one short sentence.",
        "followups": ["And of Italy? One short sentence.", "Which of them is larger?"],
        "answer": "Paris",
    },
    {"id": "sky", "instruction": "Why is the sky blue? — one sentence, with an emoji 🌤.", "answer": "light"},
    {"id": "count", "instruction": "Count to five.", "followups": ["Now say: done."], "answer": "done"},
]
CALLS_OF_AN_AGENT = 6


@dataclass(frozen=True)
class Exported:
    rows: list[dict[str, Any]]
    calls: dict[str, list[Exchange]]
    """By rollout."""
    manifest: dict[str, Any]
    shown: str


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, smollm2: PulledModel) -> Iterator[Project]:
    with new_project(tmp_path_factory.mktemp("local")) as project:
        project.write("whet.toml", SETTINGS)
        project.rows("tasks.jsonl", *TASKS)
        yield project


@pytest.fixture(scope="module")
def exported(project: Project) -> Exported:
    done = project.whet("run", "tasks.jsonl", "--agent", "chat,loop", "--model", "policy", "--out", "run")
    assert done.returncode == 0, done.stderr
    words = ("export", "run", "--format", "rows", "--truncated", "--out", "rows.jsonl")
    assert project.whet(*words).returncode == 0
    with Store.open_read(project.path / "run") as store:
        calls = {one.rollout.id: store.exchanges(one.attempt.id) for one in store.results()}
    lines = (project.path / "rows.jsonl").read_text().splitlines()
    manifest = json.loads((project.path / "rows.jsonl.manifest.json").read_text())
    return Exported([json.loads(line) for line in lines], calls, manifest, done.stdout)


@pytest.fixture(scope="module")
def end_of_turn(engine: Asked) -> int:
    (id_,) = engine.tokenize("<|im_end|>")
    return id_


def test_every_call_is_exact_and_costs_nothing(exported: Exported) -> None:
    calls = [call for calls in exported.calls.values() for call in calls]
    assert len(calls) == 2 * CALLS_OF_AN_AGENT
    assert {call.tokens for call in calls} == {EXACT}
    assert "$0.0000" in exported.shown


def test_rows_are_what_the_engine_read_and_sampled(exported: Exported, engine: Asked, end_of_turn: int) -> None:
    assert len({row["rollout_id"] for row in exported.rows}) == 2 * len(TASKS)
    for row in exported.rows:
        assert faults_of_row(row, exported.calls[row["rollout_id"]], engine, end_of_turn) == []
    sampled = [span for row in exported.rows for span in row["spans"] if span["trained"]]
    assert len(sampled) == 2 * CALLS_OF_AN_AGENT


def test_log_probabilities_can_be_had_again_from_the_exported_ids_alone(exported: Exported, engine: Asked) -> None:
    row = max(exported.rows, key=lambda row: sum(row["loss_mask"]))
    places = [place for place, sampled in enumerate(row["loss_mask"]) if sampled][:16]
    again = [(place, engine.logprob(row["tokens"][:place], row["tokens"][place])) for place in places]
    found = [(row["logprobs"][place], value) for place, value in again if value is not None]
    assert len(found) > len(places) / 2
    assert mean(abs(told - value) for told, value in found) < NEAR
    assert min(told for told, _ in found) < -3 * NEAR, "log-probabilities that are all 0 would show nothing"


@pytest.mark.parametrize("kind", ["prompt", "sampled"])
def test_one_id_that_is_changed_is_found(exported: Exported, engine: Asked, end_of_turn: int, kind: str) -> None:
    chance = random.Random(kind)
    for original in exported.rows[:4]:
        row = copy.deepcopy(original)
        span = next(span for span in row["spans"] if span["kind"] == kind)
        place = chance.randrange(span["start"], span["end"])
        row["tokens"][place] += 1
        assert faults_of_row(row, exported.calls[row["rollout_id"]], engine, end_of_turn) != []


def test_conversations_are_one_row_or_broken_for_a_reason_that_is_named(exported: Exported) -> None:
    """A reply that the model spelt in other tokens than its tokenizer would is read again in those, so it breaks."""
    breaks = exported.manifest["chain breaks"]
    assert len(exported.rows) == 2 * len(TASKS) + sum(breaks.values())
    assert set(breaks) <= {"boundary re-tokenised"}
    assert any(len([span for span in row["spans"] if span["trained"]]) > 1 for row in exported.rows)
