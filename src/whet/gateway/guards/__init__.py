"""What may cross to a provider: allow-lists of fields, tools and parts of messages, for each dialect.

The provider acts on what a request says: it runs tools of its own, fetches addresses, looks up what it has stored.
All of that reaches beyond the box, and beyond what limits count with. So a request holds what is on the lists and
nothing else: what is optional is withheld, what would change the meaning is refused, and both are on record.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from whet.gateway.dialects.gemini.wire import camel
from whet.gateway.guards import chat, gemini, messages, responses
from whet.gateway.guards.checks import (
    WITHHELD,
    FieldCheck,
    Permits,
    Report,
    a_schema,
    anything,
    refuse_double_spelling,
    shorten_name,
)
from whet.gateway.guards.strict_json import read_value, split_object
from whet.gateway.model import Model

CONVERSATIONS = {"chat": "messages", "responses": "input", "messages": "messages", "gemini": "contents"}
"""The field that grows from call to call."""
_FIELDS: Mapping[str, Mapping[str, FieldCheck]] = {
    "chat": chat.FIELDS,
    "responses": responses.FIELDS,
    "messages": messages.FIELDS,
    "gemini": gemini.FIELDS,
}
_ABOUT_TOOLS = frozenset({"tool_choice", "toolConfig", "tool_config", "parallel_tool_calls"})


@dataclass(frozen=True, slots=True)
class CheckedTools:
    """A list of tools that was checked."""

    kept: bytes | None
    """Those that may be sent, as JSON; None when none is left."""
    withheld: tuple[str, ...]


ToolCheck = Callable[[bytes, str, Permits], CheckedTools]


class Guarded(NamedTuple):
    """What is changed in a request before it is sent."""

    changes: dict[str, bytes | None]
    withheld: tuple[str, ...]
    keeps_conversation: bool
    """Whether the messages are sent in the agent's own bytes."""


def check_tools(raw: bytes, dialect: str, permits: Permits) -> CheckedTools:
    """The tools of a request, given as JSON, without those that are not on the list.

    >>> check_tools(b'[{"type":"web_search"}]', "responses", Permits())
    CheckedTools(kept=None, withheld=('tool web_search',))
    """
    report = Report(permits)
    value = read_value(raw)
    kept = value if value is None else _FIELDS[dialect]["tools"](value, report)
    if kept is value:
        return CheckedTools(raw, ())
    return CheckedTools(_encode(kept), tuple(report.withheld))


def guard_request(
    fields: Mapping[str, bytes],
    body: bytes,
    dialect: str,
    model: Model,
    *,
    check_tools: ToolCheck = check_tools,
    counts: bool = False,
) -> Guarded:
    """What is changed in a request so that it holds only what may cross. ValueError when it must not be sent at all.

    `fields` are those of `body`, but messages that were let through before may be left out of them. `check_tools` may
    remember what it found before. `counts`: the request asks for a count of tokens.

    >>> body = b'{"input": "hi", "plugins": []}'
    >>> guard_request(split_object(body), body, "responses", Model("m", "http://a", "m", None)).changes
    {'plugins': None}
    """
    rules = gemini.COUNTED_FIELDS if counts and dialect == "gemini" else _FIELDS[dialect]
    spelling = camel if dialect == "gemini" else str
    if dialect == "gemini":
        refuse_double_spelling(fields, "The request")
    report = Report(Permits.of(model), model.upstream_name)
    changes: dict[str, bytes | None] = {}
    for name, raw in fields.items():
        if name == "tools" and name not in report.permits.fields:
            tools = check_tools(raw, dialect, report.permits)
            if tools.withheld:
                changes |= {name: tools.kept} | _relax_choice(fields, tools.kept)
                report.withheld |= dict.fromkeys(tools.withheld)
            continue
        value = read_value(raw)
        kept = _check(name, value, rules.get(spelling(name)), report)
        if kept is value:
            continue
        if spelling(name) == CONVERSATIONS[dialect]:
            # All of it is written anew, also what was let through before.
            kept = _check(name, read_value(split_object(body)[name]), rules[spelling(name)], report)
        changes.setdefault(name, _encode(kept))
    same = all(spelling(name) != CONVERSATIONS[dialect] for name in changes)
    return Guarded(changes, tuple(report.withheld), keeps_conversation=same)


def may_be_sent(field: str, model: Model) -> bool:
    """Whether a top-level field may be set to any value in a request to this model."""
    return field in model.allow_fields or _FIELDS[model.dialect].get(field) is anything


def read_strictly(fields: Mapping[str, bytes]) -> None:
    """ValueError when the value of one of these fields could be read differently by another parser."""
    for raw in fields.values():
        read_value(raw)


def refuse_references(schemas: Iterable[Any]) -> None:
    """ValueError when a schema refers to what lies outside of it."""
    for schema in schemas:
        a_schema(schema, Report(Permits()))


def _check(name: str, value: Any, check: FieldCheck | None, report: Report) -> Any:
    # Null says nothing.
    if value is None or name in report.permits.fields:
        return value
    return check(value, report) if check else report.withhold(f"field {shorten_name(name)}")


def _relax_choice(fields: Mapping[str, bytes], tools: bytes | None) -> dict[str, bytes | None]:
    """What goes with a tool: all that speaks of tools if it was the last one, else a choice that may name it."""
    if tools is None:
        return dict.fromkeys(_ABOUT_TOOLS & fields.keys())
    choice = read_value(fields.get("tool_choice", b"null"))
    names_tool = isinstance(choice, dict) and choice.get("type") not in ("auto", "any", "none")
    return {"tool_choice": None} if names_tool else {}


def _encode(kept: Any) -> bytes | None:
    return None if kept is WITHHELD or kept == [] else msgspec.json.encode(kept)
