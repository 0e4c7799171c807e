"""Mending what an endpoint refuses: a 400 that names one parameter costs the request that parameter, not the call.

Fixes are few, hold for all later calls, and are recorded as warnings on every call that they change.
"""

import re
from dataclasses import dataclass

import msgspec

from whet.gateway.guards import may_be_sent
from whet.gateway.guards.overrides import LEAST, OUTPUT_CAPS, change_body
from whet.gateway.guards.strict_json import split_object
from whet.gateway.model import Model

MOST_FIXES = 6
"""Of one model, at one path. An endpoint that refuses more than that is not meant for the request."""
UNTOUCHED = frozenset({"model", "messages", "input", "contents", "system", "instructions", "tools", "stream"})
"""The question, the model and the tools. They are never changed for an endpoint."""

_RENAMED = re.compile(r"'(?P<field>\w+)'.*\b[Uu]se '(?P<name>\w+)' instead", re.DOTALL)
_SET = re.compile(r"\bset '?(?P<field>\w+)'? to '(?P<value>\w+)'", re.IGNORECASE)
_REFUSED = re.compile(
    r"""(?:Unsupported\ (?:parameter|value)|Unknown\ parameter):\ '?(\w+)
      | Unrecognized\ request\ arguments?\ supplied:\ (\w+)
      | ^(\w+):\ Extra\ inputs\ are\ not\ permitted
      | Unknown\ name\ "(\w+)":""",
    re.VERBOSE,
)
_REFUSALS = frozenset({"unsupported_parameter", "unsupported_value", "unknown_parameter"})


@dataclass(frozen=True, slots=True)
class Fix:
    """What is done with one top-level field of a request."""

    field: str
    name: str | None = None
    """It is sent under this name."""
    value: bytes | None = None
    """It is sent with this JSON. With neither, it is left out."""

    def changes(self, body: bytes) -> dict[str, bytes | None]:
        """What it changes in this body; nothing where it does not apply."""
        fields = split_object(body)
        if self.value is not None:
            return {self.field: self.value} if fields.get(self.field) != self.value else {}
        if self.field not in fields:
            return {}
        return {self.field: None} | ({self.name: fields[self.field]} if self.name and self.name not in fields else {})

    @property
    def warning(self) -> str:
        """What is said of it on record."""
        if self.value is not None:
            return f"{self.field}, set to {self.value.decode()} as the model demands"
        return f"{self.field}, sent as {self.name}" if self.name else f"{self.field}, which the model refuses"


class Repair:
    """One request on its way to an endpoint, with the fixes that it needs."""

    def __init__(self, known: list[Fix], model: Model, body: bytes) -> None:
        """`known` are the fixes that earlier requests of this kind have needed. What is learnt is added to them."""
        self.body = body
        """What is to be sent."""
        self.warnings: tuple[str, ...] = ()
        self._known = known
        self._model = model
        for fix in known:
            self._apply(fix)

    def learn(self, refusal: bytes) -> bool:
        """The endpoint answered 400 with this body: whether the request is now another one, worth sending."""
        fix = read_refusal(refusal)
        # What the user has set himself is for him to take back.
        untouched = UNTOUCHED.union(field for field, _ in self._model.set)
        if fix is None or {fix.field, fix.name} & untouched or len(self.warnings) >= MOST_FIXES:
            return False
        if not self._keeps_bounds(fix):
            return False
        if fix not in self._known and len(self._known) >= MOST_FIXES:
            return False
        if not self._apply(fix):
            return False
        if fix not in self._known:
            self._known.append(fix)
        return True

    def _keeps_bounds(self, fix: Fix) -> bool:
        """Whether the request would still be one that may be sent: an agent can bring words of its own into a refusal.

        An output limit may get the other name of its dialect. It may be left out where the model has none of its own.
        """
        caps = OUTPUT_CAPS[self._model.dialect]
        if fix.field in caps or fix.name in caps:
            goes = fix.name is None and self._model.max_tokens is None
            return fix.value is None and fix.field in caps and (goes or fix.name in caps)
        into = fix.name or (fix.field if fix.value is not None else None)
        return into is None or (into != LEAST and may_be_sent(into, self._model))

    def _apply(self, fix: Fix) -> bool:
        """Whether the fix changes the request."""
        body = change_body(self.body, fix.changes(self.body))
        if body == self.body:
            return False
        self.body = body
        self.warnings = (*self.warnings, fix.warning)
        return True


class _Error(msgspec.Struct, frozen=True):
    message: str = ""
    param: str | None = None
    code: str | int | None = None


class _Refusal(msgspec.Struct, frozen=True):
    error: _Error


def read_refusal(body: bytes) -> Fix | None:
    """The fix that the body of a 400 asks for; None when it is about something else.

    >>> read_refusal(b'{"error": {"message": "Unrecognized request argument supplied: top_k"}}')
    Fix(field='top_k', name=None, value=None)
    """
    try:
        error = msgspec.json.decode(body, type=_Refusal).error
    except (ValueError, RecursionError):
        return None
    if renamed := _RENAMED.search(error.message):
        return Fix(renamed["field"], name=renamed["name"])
    if demanded := _SET.search(error.message):
        return Fix(demanded["field"], value=msgspec.json.encode(demanded["value"]))
    if error.param and error.code in _REFUSALS:
        return Fix(error.param)
    refused = _REFUSED.search(error.message)
    return Fix(refused[refused.lastindex or 0]) if refused else None
