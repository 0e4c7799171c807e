"""What allow-lists are made of: a check returns the value that may be sent, or refuses the request.

A check that changes nothing returns the very value that it was given, so that an unchanged request keeps its bytes.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from whet.gateway.dialects.gemini.wire import camel
from whet.gateway.model import Model

WITHHELD = object()
"""What a check returns for a field or an entry of a list that is not sent."""
_INLINE = re.compile(r"data:[\w.+/;=-]*;base64,")
_WORD = re.compile(r"[\w-]{1,64}")
_TOOL_NAME = re.compile(r"[\w.:/@-]+")
_SHOWN = 40
"""Characters of an agent's own names that are repeated to it and on record."""
MOST_NOTES = 50
"""Things that are withheld from one request by name; the record says that there were more."""
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


class Permits(NamedTuple):
    """What may pass although it is on no list."""

    fields: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()
    parts: frozenset[str] = frozenset()
    provider_tools: bool = False
    remote_media: bool = False

    @classmethod
    def of(cls, model: Model) -> "Permits":
        """What a model's configuration and the task permit."""
        return cls(
            fields=model.allow_fields,
            tools=model.allow_tools,
            parts=model.allow_parts,
            provider_tools="provider-tools" in model.allow,
            remote_media="remote-media" in model.allow,
        )


@dataclass(slots=True)
class Report:
    """One request under check: what may pass, and what was withheld so far."""

    permits: Permits
    model_name: str = ""
    """The only name of a model that may be sent."""
    withheld: dict[str, None] = field(default_factory=dict)

    def withhold(self, what: str) -> object:
        """Note something that is not sent."""
        self.withheld[what if len(self.withheld) < MOST_NOTES else "more"] = None
        return WITHHELD


FieldCheck = Callable[[Any, Report], Any]


def anything(value: Any, report: Report) -> Any:  # noqa: ARG001 - a check
    """Text, numbers, schemas and arguments: nothing that the provider would act on."""
    return value


def an_object(what: str, fields: Mapping[str, FieldCheck], *, any_case: bool = False) -> FieldCheck:
    """An object with these fields. Others are withheld; null says nothing, and stays. `any_case`: a name counts in
    snake_case and in camelCase, as Gemini reads it."""

    def check(value: Any, report: Report) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"{what} must be an object.")
        if any_case:
            refuse_double_spelling(value, what)
        kept = value
        for name, given in value.items():
            if given is None or name in report.permits.fields:
                continue
            rule = fields.get(camel(name) if any_case else name)
            result = rule(given, report) if rule else report.withhold(f"field {shorten_name(name)} of {what}")
            if result is given:
                continue
            if kept is value:
                kept = dict(value)
            if result is WITHHELD:
                del kept[name]
            else:
                kept[name] = result
        return kept

    return check


def refuse_double_spelling(names: Mapping[str, Any], what: str) -> None:
    """ValueError when two names are one field to Gemini."""
    if len({camel(name) for name in names}) < len(names):
        raise ValueError(f"{what} has one field in two spellings.")


def each(what: str, entry: FieldCheck, *, or_one: bool = False) -> FieldCheck:
    """A list of such entries; with `or_one`, or a single one."""

    def check(value: Any, report: Report) -> Any:
        if not isinstance(value, list):
            if or_one:
                return entry(value, report)
            raise ValueError(f"{what} must be a list.")
        results = [entry(given, report) for given in value]
        if all(result is given for result, given in zip(results, value, strict=True)):
            return value
        return [result for result in results if result is not WITHHELD]

    return check


def text_or(other: FieldCheck) -> FieldCheck:
    """Text, or what this other check takes."""
    return lambda value, report: value if isinstance(value, str) else other(value, report)


def by_kind(what: str, kinds: Mapping[str, FieldCheck], *, default: str | None = None, key: str = "type") -> FieldCheck:
    """An object of one of these kinds, as its `type` says. Others are refused: a part that is left out of a message
    would make another request of it."""

    def check(value: Any, report: Report) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"{what} must be an object.")
        kind = value.get(key)
        named_kind = default if kind is None else kind if isinstance(kind, str) else None
        rule = None if named_kind is None else kinds.get(named_kind)
        if rule is not None:
            return rule(value, report)
        if report.permits.provider_tools or named_kind in report.permits.parts:
            return value
        raise ValueError(f"{what} of type {shorten_name(kind)} is not allowed here.")

    return check


def a_schema(value: Any, report: Report) -> Any:  # noqa: ARG001 - a check
    """A JSON schema, or what holds one. Its references stay inside it: a server might fetch others."""
    rest = [value]
    while rest:
        node = rest.pop()
        if isinstance(node, dict):
            for name in _REFERENCES & node.keys():
                if isinstance(node[name], str) and not node[name].startswith("#"):
                    raise ValueError(
                        f"A schema refers to {shorten_name(node[name])}: references must stay inside the schema."
                    )
            rest += node.values()
        elif isinstance(node, list):
            rest += node
    return value


def settings(what: str) -> FieldCheck:
    """An object of numbers, flags and single words."""

    def check(value: Any, report: Report) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"{what} must be an object.")
        plain = {
            name: given
            for name, given in value.items()
            if given is None
            or isinstance(given, bool | int | float)
            or (isinstance(given, str) and _WORD.fullmatch(given))
        }
        for name in value.keys() - plain.keys():
            report.withhold(f"field {shorten_name(name)} of {what}")
        return value if len(plain) == len(value) else plain

    return check


def inline(value: Any, report: Report) -> Any:
    """Media inside the request: a data: URI."""
    if isinstance(value, str) and (_INLINE.match(value) or report.permits.remote_media):
        return value
    raise ValueError("Media must be part of the request, as a data: URI; addresses are not followed.")


def base64_data(value: Any, report: Report) -> Any:
    """Media inside the request: base64, which has no colon and no dot, or a data: URI."""
    if isinstance(value, str) and ":" not in value and "." not in value:
        return value
    return inline(value, report)


def elsewhere(value: Any, report: Report) -> Any:
    """The address of media that the provider would fetch."""
    if report.permits.remote_media:
        return value
    raise ValueError("Media must be part of the request, as a data: URI; addresses are not followed.")


def refuse_stored(what: str) -> FieldCheck:
    """The id of something that the provider keeps: it reaches data that is not in the request."""

    def check(value: Any, report: Report) -> Any:  # noqa: ARG001 - a check
        raise ValueError(f"{what} is not allowed here: send the content itself.")

    return check


def one(what: str) -> FieldCheck:
    """How many replies are asked for."""

    def check(value: Any, report: Report) -> Any:  # noqa: ARG001 - a check
        if value == 1 and type(value) is int:
            return value
        raise ValueError(f"{what} must be 1: a call gives one reply.")

    return check


def a_flag(what: str) -> FieldCheck:
    """true or false: what another parser might take for one of them is refused."""

    def check(value: Any, report: Report) -> Any:  # noqa: ARG001 - a check
        if isinstance(value, bool):
            return value
        raise ValueError(f"{what} must be true or false.")

    return check


def one_of(what: str, *values: str) -> FieldCheck:
    """One of these words; others are withheld."""

    def check(value: Any, report: Report) -> Any:
        return value if value in values else report.withhold(f"{what} {shorten_name(value)}")

    return check


def a_choice(*kinds: str) -> FieldCheck:
    """How tools are to be called: a word, or an object of one of these types."""

    def check(value: Any, report: Report) -> Any:
        kind = value.get("type", "function") if isinstance(value, dict) else None
        if isinstance(value, str) or kind in kinds or report.permits.provider_tools:
            return value
        return report.withhold(f"tool_choice {shorten_name(kind)}")

    return check


def for_provider_tools(what: str) -> FieldCheck:
    """A field that switches on what the provider runs itself."""
    return lambda value, report: value if report.permits.provider_tools else report.withhold(f"field {what}")


def a_tool(kind_of: Callable[[Mapping[str, Any]], Any], check_of: Callable[[Any], FieldCheck | None]) -> FieldCheck:
    """A tool whose kind is on the list. Others are withheld, by the name of their kind."""

    def check(value: Any, report: Report) -> Any:
        if report.permits.provider_tools:
            return value
        if not isinstance(value, dict):
            return report.withhold("tool that is not an object")
        kind = kind_of(value)
        if isinstance(kind, str) and kind in report.permits.tools:
            return value
        rule = check_of(kind) if isinstance(kind, str) else None
        return report.withhold(f"tool {shorten_name(kind)}") if rule is None else rule(value, report)

    return check


def require_name(fields: FieldCheck) -> FieldCheck:
    """A tool with a name that a program can have, and these fields."""

    def check(value: Any, report: Report) -> Any:
        name = value.get("name") if isinstance(value, dict) else None
        if isinstance(name, str) and _TOOL_NAME.fullmatch(name):
            return fields(value, report)
        return report.withhold(f"tool named {shorten_name(name)}")

    return check


def shorten_name(value: Any) -> str:
    """A value of the agent, short and printable."""
    text = value if isinstance(value, str) else repr(value)
    return "".join(character if character.isprintable() else "?" for character in text[:_SHOWN])
