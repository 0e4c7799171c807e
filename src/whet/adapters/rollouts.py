"""What the adapters share: where the server is, what it is asked for, and what became of a rollout."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from whet.adapters.rows import Row, find_main_row
from whet.client import AsyncClient
from whet.client.models import Outcome, RolloutRequest, RolloutView
from whet.errors import UserError

PLACEHOLDERS = "whet/placeholder_rows"
"""The metric that counts the rows which stand for rollouts without one. They train nothing."""
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


class NoReward(Exception):  # noqa: N818 - what is missing is the point
    """A rollout has no reward, or no row to train on. The text says why."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where `whet serve` is, and what all rollouts of a trainer share. It can be pickled."""

    url: str
    token: str | None = field(default=None, repr=False)
    request: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Fields of every request, such as agent, model, endpoint, limits, min_group or max_staleness."""
    max_tokens: int | None = None
    """The longest row that the trainer takes. Longer ones are cut after a reply, or dropped and counted."""

    def open(self) -> AsyncClient:
        """A client, to be used in `async with`."""
        return AsyncClient(self.url, self.token)

    def make_request(self, task: Any, samples: int, sampling: Mapping[str, Any] | None = None) -> RolloutRequest:
        """The request for a task of the trainer's data set. A rollout without a reward stays in its group, as null,
        unless `request` has another `on_failure`."""
        fields = {"on_failure": "null", **self.request, **read_task(task), "samples": samples}
        if sampling and fields.get("endpoint"):
            sent = {name: sampling[name] for name in _SAMPLING if sampling.get(name) is not None}
            endpoint = dict(fields["endpoint"])
            fields["endpoint"] = {**endpoint, "set": {**endpoint.get("set", {}), **sent}}
        return RolloutRequest.model_validate(fields)


def read_task(given: Any) -> dict[str, Any]:
    """What a data set says about a task: the id of a served task, or fields of a request, also as JSON.

    >>> read_task("fix-1")
    {'task': 'fix-1'}
    >>> read_task('{"instruction": "Write 42 into answer.", "verify": ["grep -qx 42 answer"]}')["verify"]
    ['grep -qx 42 answer']
    """
    if isinstance(given, str) and given.lstrip().startswith("{"):
        given = json.loads(given)
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, str) and given:
        return {"task": given}
    raise UserError(f"a task of the data set is {given!r}; expected the id of a served task, or fields of a request")


@dataclass(frozen=True, slots=True)
class Finished:
    """A rollout that is over."""

    view: RolloutView | None
    """None if the server left it out of its group."""
    rows: tuple[Row, ...] = ()
    left_out: str = ""
    """Why it does not count: it was left out of its group, or its group is too small."""

    @property
    def reward(self) -> float | None:
        return self.view.reward if self.view and not self.left_out else None

    @property
    def id(self) -> str:
        return self.view.id if self.view else ""

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions of the weights that sampled it, oldest first."""
        return self.view.weight_versions if self.view else ()

    @property
    def seconds(self) -> float:
        """Wall time of all its phases."""
        return sum(self.view.seconds.values()) if self.view else 0.0

    @property
    def main_row(self) -> Row | None:
        """The longest row of the main thread, for trainers that take one row per rollout."""
        return find_main_row(self.rows)

    def why_missing(self) -> str:
        """Why there is no reward, or no row."""
        if self.view is None:
            return f"a rollout was left out of its group: {self.left_out}"
        if self.view.reward is None:
            why = ": ".join(str(one) for one in (self.view.cause, self.view.reason) if one)
            return f"rollout {self.id} is {self.view.outcome or Outcome.UNSCORED}{': ' if why else ''}{why}"
        if self.left_out:
            return f"rollout {self.id} does not count: {self.left_out}"
        return f"rollout {self.id} has no row: no call can be trained on, or its rows are truncated or too long"


def check_temperature(rollouts: Iterable[Finished], expected: float | None) -> None:
    """UserError if a row was sampled at another temperature than the trainer computes with."""
    for rollout in rollouts:
        for row in rollout.rows:
            if expected is not None and row.temperature is not None and row.temperature != expected:
                raise UserError(
                    f"rollout {rollout.id} was sampled at temperature {row.temperature}; the trainer expects "
                    f"{expected}: set the same 'temperature' under 'set' of the model in whet.toml"
                )


def make_key(*parts: object) -> str:
    """An idempotency key of what a trainer calls a rollout; a digest if that is too long for a header.

    >>> make_key("run-7", "train", 3, "fix-1")
    'run-7/train/3/fix-1'
    """
    key = "/".join(map(str, parts))
    return key if len(key) <= 200 and key.isascii() and key.isprintable() else blake2b(key.encode()).hexdigest()
