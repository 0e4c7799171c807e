"""The checks of a `rules` judge as a task declares them: one model per operator."""

import re
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from whet.errors import did_you_mean
from whet.tasks.fields import RelativePath


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is {pattern!r}, which does not compile ({error}); expected a regular expression") from error
    return pattern


def _read_length(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,15}", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise ValueError(f"is {value!r}; expected a whole number of characters")
    return value


NonEmptyText = Annotated[str, Field(min_length=1, pattern=r"\S")]
Pattern = Annotated[str, Field(min_length=1), AfterValidator(_compiles)]
Chars = Annotated[int, BeforeValidator(_read_length), Field(ge=0)]


class SectionCheck(BaseModel):
    """A heading exists; with `text`, its section contains this text."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    op: Literal["section_present", "section_contains"]
    arg: NonEmptyText
    text: NonEmptyText | None = None

    @model_validator(mode="after")
    def _looks_inside_only_where_it_says_so(self) -> Self:
        if self.op == "section_present" and self.text is not None:
            raise ValueError("has a 'text', which only section_contains looks for; expected no 'text'")
        return self


class LengthCheck(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    op: Literal["max_chars", "min_chars"]
    arg: Chars


class WordsCheck(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    op: Literal["contains", "not_contains", "tool_called"]
    arg: NonEmptyText


class PatternCheck(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    op: Literal["regex", "command_ran"]
    arg: Pattern


class NoRefusalCheck(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    op: Literal["no_refusal"]


class SkillCheck(BaseModel):
    """The agent read its skill, or did not: whether its description says when the skill is for."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    op: Literal["skill_read", "skill_not_read"]


class FileCheck(BaseModel):
    """A file of the working directory exists."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    op: Literal["file_exists"]
    arg: RelativePath


class FileWordsCheck(BaseModel):
    """A file of the working directory contains these words."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    op: Literal["file_contains"]
    path: RelativePath
    arg: NonEmptyText


AnyCheck = (
    SectionCheck | LengthCheck | WordsCheck | PatternCheck | NoRefusalCheck | SkillCheck | FileCheck | FileWordsCheck
)
SHAPE = frozenset({"section_present", "section_contains", "max_chars", "min_chars"})
"""Checks that depend on the form of an answer: the same content in another form can pass them."""


def tags(models: Iterable[type[BaseModel]], key: str) -> set[str]:
    return {tag for model in models for tag in model.model_fields[key].annotation.__args__}  # type: ignore[union-attr]


def _check_operator(value: object) -> object:
    operators = tags(AnyCheck.__args__, "op")
    match value:
        case {"op": str(op)} if op in operators:
            return value
        case {"op": op}:
            raise ValueError(f"has the unknown operator {op!r}; {did_you_mean(str(op), operators)}")
    raise ValueError("expected a table with the key 'op'")


RulesCheck = Annotated[AnyCheck, Field(discriminator="op"), BeforeValidator(_check_operator)]
