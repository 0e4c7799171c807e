"""The models that the server offers, as they are now, and which weights they had when."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whet.client.models import ModelUpdate
from whet.gateway import Model
from whet.rollout.endpoint import Endpoints
from whet.runs.store.served import PolicyRow
from whet.runs.store.store import Store
from whet.trace.training.calls import Training, call_of
from whet.trace.training.versions import find_updates, order_versions

REPORTING = frozenset({"sglang"})
"""Kinds of engines that say with each reply which weights sampled it."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Which weights sampled the calls of a rollout."""

    versions: tuple[str, ...] = ()
    """Oldest first."""
    straddled: bool = False
    """There were several, or they changed during a call."""
    oldest: int | None = None
    """The number of the update that brought the oldest ones; 0 for those before the first update. None if the model was
    never updated, or no call reached it."""


class Policies:
    """The offered models. An update replaces a model; rollouts that run keep the one that they have."""

    def __init__(self, models: Mapping[str, Model], log: Iterable[PolicyRow]) -> None:
        self._declared = dict(models)
        self._models = dict(models)
        self._log: dict[str, list[PolicyRow]] = {name: [] for name in models}
        for row in log:
            self._log.setdefault(row.model, []).append(row)
        for name in models:
            self._models[name] = self._with_given(name)
        self._endpoints = {name: Endpoints() for name in models}

    def __contains__(self, name: str) -> bool:
        return name in self._models

    @property
    def names(self) -> list[str]:
        return list(self._models)

    def model(self, name: str) -> Model:
        """A model as rollouts that start now get it."""
        return self._models[name]

    def endpoints(self, name: str) -> Endpoints:
        """What is known of a model's endpoints since it has them. Of a model that a client brings along, nothing is."""
        return self._endpoints.get(name) or Endpoints()

    def capacity(self, name: str) -> int:
        """How many rollouts may run on a model at the same time."""
        model = self._models[name]
        return model.concurrency * len(model.urls)

    def log(self, name: str) -> Sequence[PolicyRow]:
        """The updates of a model, in order."""
        return self._log.get(name, [])

    def last(self, name: str) -> PolicyRow | None:
        """The last update of a model."""
        log = self.log(name)
        return log[-1] if log else None

    def is_moved(self, name: str) -> bool:
        """Whether an update gave a model its address."""
        return self._models[name].urls != self._declared[name].urls

    def is_current(self, name: str, update: ModelUpdate) -> bool:
        """Whether an update changes nothing: a client that got no answer sends it again."""
        last, model = self.last(name), self._models[name]
        urls = (update.url,) if update.url is not None else update.urls
        same_place = urls in {None, model.urls} and update.name in {None, model.upstream_name}
        return last is not None and last.version == update.weight_version and same_place

    def find_moved(self, now: float) -> list[PolicyRow]:
        """Models whose addresses changed with the restart of the server: the same weights at the new addresses."""
        lasts = [(self._models[name].urls, row) for name in self._models if (row := self.last(name)) is not None]
        return [replace(row, at=now, addresses=urls, given={}) for urls, row in lasts if row.addresses != urls]

    def plan(self, name: str, update: ModelUpdate, now: float) -> PolicyRow:
        """The update as the log keeps it. It takes effect with `add`."""
        urls = (update.url,) if update.url is not None else update.urls
        given: dict[str, Any] = {"urls": urls and list(urls), "name": update.name}
        last = self.last(name)
        return PolicyRow(
            model=name,
            number=last.number + 1 if last else 1,
            version=update.weight_version,
            at=now,
            addresses=urls or self._models[name].urls,
            given={key: value for key, value in given.items() if value is not None},
        )

    def add(self, row: PolicyRow) -> None:
        """Let an update that is stored take effect."""
        self._log.setdefault(row.model, []).append(row)
        if row.given:
            self._models[row.model] = self._with_given(row.model)
            self._endpoints[row.model] = Endpoints()

    def _with_given(self, name: str) -> Model:
        """The declared model, with the last address and name that an update gave it."""
        model = self._declared[name]
        for row in self._log[name]:
            if urls := row.given.get("urls"):
                model = replace(model, url=urls[0], replicas=tuple(urls[1:]))
            if upstream := row.given.get("name"):
                model = replace(model, upstream_name=upstream)
        return model


def read_weights(store: Store, attempt: int, log: Sequence[PolicyRow], *, reported: bool) -> Weights:
    """Which weights sampled the calls of an attempt: what the engine says if it reports that, else by the log of the
    model."""
    found: dict[int | None, list[str | None]] = {}
    said = _read_reported(store, attempt) if reported else {}
    numbers = {row.version: row.number for row in log}
    for call in store.exchange_heads(attempt) if log or reported else ():
        if (version := said.get(call.index)) is not None:
            found.setdefault(numbers.get(version), []).append(version)
            continue
        for update in find_updates(call, log):
            found.setdefault(update.number if update else 0, []).append(update.version if update else None)
    every = list(dict.fromkeys(version for versions in found.values() for version in versions))
    oldest = min((number for number in found if number is not None), default=None)
    known = order_versions([version for version in every if version is not None], log)
    return Weights(tuple(known), len(every) > 1, oldest if log else None)


def _read_reported(store: Store, attempt: int) -> dict[int, str]:
    """The versions that the engine reports with its replies, by the number of the call."""
    calls = ((exchange.index, call_of(exchange, Training())) for exchange in store.each_exchange(attempt))
    return {index: call.weights for index, call in calls if call is not None and call.weights is not None}
