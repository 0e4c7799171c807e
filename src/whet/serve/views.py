"""Views of rollouts: what the store has of them, and what is known of those that are not done."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from whet.client.models import CommandView, Outcome, RolloutView, Status, Usage
from whet.rollout.result import Result
from whet.runs.results import AttemptRecord, ResultReader
from whet.runs.store.schema import RolloutRow
from whet.runs.store.served import PolicyRow, RequestRow, ServedRow
from whet.runs.store.store import Store
from whet.serve.policies import Weights, read_weights
from whet.serve.requests import Terms

ANSWER = 4000
"""Characters of the final answer that a view shows."""
STREAM = 2000
"""Characters of each output stream of a command."""
CHANGED = 100
"""Changed paths that a view shows."""


class ViewReader:
    """Makes views of rollouts from an open store. One that is not done is shown as queued, for the store does not know
    what runs."""

    def __init__(self, store: Store, log_of: Callable[[str], Sequence[PolicyRow]]) -> None:
        """`log_of` gives the updates of a model."""
        self._store, self._log_of = store, log_of
        self._reader = ResultReader(store)
        self._requests: dict[str, tuple[RequestRow, Terms]] = {}
        self._skills: dict[str, str] | None = None

    def request(self, name: str) -> tuple[RequestRow, Terms]:
        """A request that is stored."""
        if name not in self._requests:
            row = self._store.served.request(name)
            assert row is not None
            self._requests[name] = row, Terms.model_validate_json(row.terms)
        return self._requests[name]

    def view(self, served: ServedRow) -> RolloutView:
        """One rollout."""
        request, terms = self.request(served.request)
        row = self._store.rollout(served.rollout)
        attempts = self._reader.attempts_of(served.rollout)
        shown = _describe_plan(row, served.place, request, terms, self._skill_name(row.skill)) | {
            "status": Status.DONE if served.outcome else Status.QUEUED,
            "attempts": len(attempts),
            "started": attempts[0].row.started if attempts else None,
            "ended": served.ended,
        }
        last = next((one for one in reversed(attempts) if one.has_result), None)
        if last is not None and last.value is not None and served.outcome in {Outcome.FAILED, Outcome.UNSCORED}:
            served = replace(served, outcome=Outcome.SCORED, cause=None, reason="")  # it was judged again since
        if last is not None and served.outcome is not None:
            assert last.result is not None
            shown |= _describe_result(last.result, Outcome(served.outcome))
        shown["usage"] = self._usage(last or (attempts[-1] if attempts else None))
        if served.outcome is not None:
            shown |= _describe_end(served, last)
            shown |= self._weights(served, row.model, terms, last)
        return RolloutView(**shown)

    def _usage(self, attempt: AttemptRecord | None) -> Usage:
        if attempt is None:
            return Usage()
        if (result := attempt.result) is not None:
            spent = result.spending
            return Usage(
                calls=spent.calls, input_tokens=spent.input_tokens, output_tokens=spent.output_tokens, cost=spent.cost
            )
        calls, used = attempt.usage()
        return Usage(calls=calls, input_tokens=used.input, output_tokens=used.output)

    def _weights(self, served: ServedRow, model: str, terms: Terms, last: AttemptRecord | None) -> dict[str, Any]:
        log = self._log_of(model)
        reported = terms.reports_weights
        weights = read_weights(self._store, last.id, log, reported=reported) if last else Weights()
        return {
            "weight_versions": weights.versions,
            "straddled": weights.straddled,
            "staleness": staleness(weights, log, served.ended or 0.0),
        }

    def _skill_name(self, digest: str | None) -> str | None:
        if digest is None:
            return None
        if self._skills is None:
            self._skills = {skill.digest: skill.name for skill in self._store.skills()}
        return self._skills.get(digest)


def show_new(plan: Sequence[RolloutRow], request: RequestRow, terms: Terms, skill: str | None) -> list[RolloutView]:
    """The rollouts of a request that was stored just now, by their places."""
    return [
        RolloutView(
            **_describe_plan(row, place, request, terms, skill), status=Status.QUEUED, attempts=0, usage=Usage()
        )
        for place, row in enumerate(plan)
    ]


def _describe_plan(row: RolloutRow, place: int, request: RequestRow, terms: Terms, skill: str | None) -> dict[str, Any]:
    return {
        "id": row.id,
        "group": request.id,
        "sample": place,
        "task": row.task,
        "task_id": terms.task_id,
        "agent": row.agent,
        "model": row.model,
        "skill": skill,
        "created": request.created,
        "metadata": terms.metadata,
    }


def staleness(weights: Weights, log: Sequence[PolicyRow], ended: float) -> int | None:
    """How many updates the oldest weights were behind at a time."""
    last = max((row.number for row in log if row.at <= ended), default=0)
    return None if weights.oldest is None else last - weights.oldest


def _describe_end(served: ServedRow, last: AttemptRecord | None) -> dict[str, Any]:
    """The outcome, and why there is no reward."""
    outcome = Outcome(served.outcome or "")
    score = last.result.score if last and last.result else None
    reason = served.reason or (score.reason if score and outcome in {Outcome.SCORED, Outcome.UNSCORED} else "")
    return {"outcome": outcome, "cause": served.cause, "reason": reason}


def _describe_result(result: Result, outcome: Outcome) -> dict[str, Any]:
    report = result.report
    rewarded = outcome is Outcome.SCORED
    return {
        "reward": result.score.value if rewarded else None,
        "reward_source": find_reward_source(result) if rewarded else None,
        "rewards": {name: score.value for name, score in result.judgements.items()} if rewarded else {},
        "stop": report.stop if report else None,
        "limit": result.limit,
        "exit_code": report.exit_code if report else None,
        "answer": report.text[:ANSWER] if report else "",
        "setup": tuple(
            CommandView(
                command=one.command,
                exit_code=one.exit_code,
                stdout=(one.stdout or ("" if one.stderr else one.output))[-STREAM:],
                stderr=one.stderr[-STREAM:],
                seconds=one.seconds,
                timed_out=one.timed_out,
            )
            for one in result.setup
        ),
        "verify": tuple(
            CommandView.model_validate({key: value for key, value in one.items() if key in CommandView.model_fields})
            for score in result.judgements.values()
            for one in score.details.get("commands", ())
        ),
        "changed": tuple(change.path for change in result.changes[:CHANGED]),
        "flags": result.flags,
        "seconds": result.seconds,
    }


def find_reward_source(result: Result) -> Literal["verifier", "exit_codes", "judges"]:
    """Where the reward comes from: a file that commands wrote, their exit codes, or judges."""
    match [(name, score.details.get("source")) for name, score in result.judgements.items()]:
        case [("reward", _)] | [(_, "verifier")]:
            return "verifier"
        case [(_, "exit_codes")]:
            return "exit_codes"
    return "judges"
