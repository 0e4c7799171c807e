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
    op: Literal["regex", "command_ran", "command_not_ran", "command_ran_after_edit"]
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
OF_COMMANDS = frozenset({"command_ran", "command_not_ran", "command_ran_after_edit"})
OF_CALLS = OF_COMMANDS | {"tool_called"}
"""Checks that need a record of the agent's calls."""

_BLANK = r"(?:[ \t]|\\\n)"
_START = (
    r"(?m)(?:^|[;&|(`])[ \t]*+"
    # Words that run the program after them, and variables for it.
    rf"(?:(?:[A-Za-z_]\w*=[^\s;&|]*+|sudo|env|time|nice|exec|command|then|do|else|npx|bunx|timeout{_BLANK}+\S++"
    rf"|(?:uv|poetry|pipenv|pdm|hatch|bundle|pnpm|yarn){_BLANK}+(?:run|exec)|(?:[\w./~-]*/)?python[\d.]*{_BLANK}+-m"
    rf"|(?:[\w./~-]*/)?(?:ba|da|z)?sh{_BLANK}+-\w*c){_BLANK}+)*"
    r"[\"']?(?:[\w./~-]*/)?"
)
_GAP = rf"{_BLANK}+(?:-[^\s;&|]*+{_BLANK}+)*?"
"""Between two words of a command there may be options. One of them can be the next word."""
_GAP_OF_MAKE = rf"{_BLANK}+(?:[^\s;&|]++{_BLANK}+)*?"
"""The targets of make come in any order."""
_END = r"(?![^\s;&|)`\"'<>])"


def command_pattern(*words: str) -> str:
    """A pattern for the checks of commands: the program is started with these words, options aside.

    >>> lint = command_pattern("make lint")
    >>> [bool(re.search(lint, line)) for line in ("cd a && CI=1 make -s lint", "echo make lint")]
    [True, False]
    >>> [bool(re.search(command_pattern(one), "sudo git commit -s -m x")) for one in ("sudo", "git commit -m", "git")]
    [True, True, True]
    """
    program, *rest = " ".join(words).split()
    gap = _GAP_OF_MAKE if program == "make" else _GAP
    return _START + gap.join(map(re.escape, (program, *rest))) + _END


def command_of_pattern(pattern: str) -> str | None:
    """The command that `command_pattern` made this pattern of; None for other patterns.

    >>> command_of_pattern(command_pattern("npm", "run", "test:unit")), command_of_pattern("npm")
    ('npm run test:unit', None)
    """
    if not (pattern.startswith(_START) and pattern.endswith(_END)):
        return None
    words = re.split(f"{re.escape(_GAP_OF_MAKE)}|{re.escape(_GAP)}", pattern[len(_START) : -len(_END)])
    command = " ".join(re.sub(r"\\(.)", r"\1", word) for word in words)
    return command if command_pattern(command) == pattern else None


def tags(models: Iterable[type[BaseModel]], key: str) -> set[str]:
    return {tag for model in models for tag in model.model_fields[key].annotation.__args__}  # type: ignore[union-attr]


def _check_operator(value: object) -> object:
    if isinstance(value, AnyCheck):
        return value
    operators = tags(AnyCheck.__args__, "op")
    match value:
        case {"op": str(op)} if op in operators:
            return value
        case {"op": op}:
            raise ValueError(f"has the unknown operator {op!r}; {did_you_mean(str(op), operators)}")
    raise ValueError("expected a table with the key 'op'")


RulesCheck = Annotated[AnyCheck, Field(discriminator="op"), BeforeValidator(_check_operator)]
