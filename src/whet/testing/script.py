"""Script: what the scripted model says, and when. Written in TOML, or built in Python from the same parts."""

import re
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)

from whet.errors import UserError
from whet.validation_errors import explain


class Fault(StrEnum):
    """How an answer goes wrong."""

    BAD_REQUEST = "400"
    """The request is refused."""
    UNAUTHORIZED = "401"
    """The key is refused."""
    NOT_FOUND = "404"
    """The model is not known."""
    RATE_LIMIT = "429"
    """Too many requests."""
    SERVER_ERROR = "500"
    """The server failed."""
    OVERLOADED = "529"
    """The server has no room. Only the messages dialect has a status of its own for it; the others answer 503."""
    HANG = "hang"
    """No answer ever comes."""
    REFUSE = "refuse"
    """The connection is closed without an answer."""
    CUT = "cut"
    """The connection is closed in the middle of the answer."""
    MALFORMED = "malformed"
    """The answer is not valid JSON."""
    EMPTY = "empty"
    """The answer holds nothing: no choices, output, content or candidates."""

    @property
    def status(self) -> int | None:
        """The HTTP status of the faults that are one."""
        return int(self.value) if self.value.isdigit() else None


def _compile(pattern: object) -> object:
    try:
        return re.compile(pattern) if isinstance(pattern, str) else pattern
    except re.error as error:
        raise ValueError(f"expected a regular expression ({error})") from None


Regex = Annotated[re.Pattern[str], BeforeValidator(_compile)]


def _object_or_text(value: JsonValue) -> JsonValue:
    if not isinstance(value, dict | str):
        raise ValueError("expected a table or text")
    return value


class ScriptedToolCall(BaseModel):
    """A tool that the model asks for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    arguments: Annotated[JsonValue, AfterValidator(_object_or_text)] = Field(default_factory=dict)
    """An object; or a string that is sent as it stands, to play arguments that are not valid JSON."""


class ScriptedReply(BaseModel):
    """One answer of the model: thinking, text, tools; and how it is delivered or fails."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    thinking: str | None = None
    """What the model thinks before it answers."""
    text: str | None = None
    tools: tuple[ScriptedToolCall, ...] = ()
    answer: dict[str, JsonValue] | None = None
    """A final answer as an object: given in the way that the request asks for, or else as text in <answer> tags."""
    delay: float = Field(default=0, ge=0, allow_inf_nan=False)
    """Seconds before the first byte."""
    chunk_delay: float = Field(default=0, ge=0, allow_inf_nan=False)
    """Seconds between streamed chunks."""
    fault: Fault | None = None
    times: int | None = Field(default=None, ge=1)
    """How often the fault strikes one and the same request body before the reply is played; None is always."""
    retry_after: int | None = Field(default=None, ge=0)
    """Seconds that the header `retry-after` of a 429 asks for."""

    @model_validator(mode="after")
    def _ends_or_goes_on(self) -> Self:
        if self.answer is not None and self.tools:
            raise ValueError("has 'answer' and 'tools'; expected one of them")
        return self

    @model_validator(mode="after")
    def _belongs_to_a_fault(self) -> Self:
        if self.times is not None and self.fault is None:
            raise ValueError("has 'times' without 'fault'; expected both or neither")
        if self.retry_after is not None and self.fault is not Fault.RATE_LIMIT:
            raise ValueError("has 'retry_after' without fault '429'; expected both or neither")
        return self


class When(BaseModel):
    """Which conversations a scene is for: every pattern that is given is found in them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    user: Regex | None = None
    """In the text of some user message."""
    system: Regex | None = None
    """In the text of some system or developer message."""
    last: Regex | None = None
    """In the text of the last message, of any role."""
    any: Regex | None = None
    """In the text of some message of any role. Tool results count, such as a skill that was loaded."""
    image: bool | None = None
    """Whether some message holds a picture."""


class Scene(BaseModel):
    """The answers to one kind of conversation: the first to a request in which the assistant has not spoken yet, the
    second to one in which it has spoken once, and so on."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: str = ""
    when: When = When()
    replies: tuple[ScriptedReply, ...] = Field(alias="reply", min_length=1)


class Script(BaseModel):
    """All that the scripted model can play. The first scene that matches a conversation answers it.

    >>> Script(scenes=(Scene(replies=(call("bash", command="ls"), say("Done."))),)).scenes[0].replies[1].text
    'Done.'
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    scenes: tuple[Scene, ...] = Field(alias="scene")
    tokens: bool = False
    """Whether chat requests that ask for token ids and logprobs get them."""


def say(text: str) -> ScriptedReply:
    """A reply of text alone."""
    return ScriptedReply(text=text)


def call(tool: str, /, **arguments: JsonValue) -> ScriptedReply:
    """A reply that asks for one tool."""
    return ScriptedReply(tools=(ScriptedToolCall(name=tool, arguments=arguments),))


def read_script(path: Path) -> Script:
    """The script in a TOML file; UserError names the place of the first mistake."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path}: expected a script in TOML: {error}") from None
    try:
        return Script.model_validate(data)
    except ValidationError as error:
        # What follows the first mistake is often only its echo.
        raise UserError(explain(error, str(path), Script)[0]) from None
