"""The judges as a task declares them: one model per kind. `scoring/judges/` implements them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pathspec import GitIgnoreSpec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from whet.errors import did_you_mean
from whet.plugins import JUDGES, find_plugins
from whet.tasks.checks import OF_CALLS, SHAPE, FileCheck, FileWordsCheck, NonEmptyText, Pattern, RulesCheck, tags
from whet.tasks.fields import RelativePath, Table, Value


def _as_list(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _not_empty(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise ValueError("is empty; expected at least one")
    return values


def _globs(values: tuple[str, ...]) -> tuple[str, ...]:
    for glob in values:
        try:
            GitIgnoreSpec.from_lines([glob])
        except ValueError as error:
            raise ValueError(f"is {glob!r}: {error}; expected a pattern as in a .gitignore") from error
    return values


def check_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Check a JSON schema; ValueError if it is invalid."""
    # Few tasks have a schema, and every command would wait for the import.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        # With formats, so that patterns in it must compile.
        Draft202012Validator.check_schema(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    except SchemaError as error:
        place = "".join(f"[{part!r}]" for part in error.absolute_path)
        raise ValueError(f"is not a JSON schema: {place} {error.message}; expected one") from error
    return schema


Texts = Annotated[tuple[NonEmptyText, ...], BeforeValidator(_as_list), AfterValidator(_not_empty)]
Patterns = Annotated[tuple[Pattern, ...], BeforeValidator(_as_list)]
Globs = Annotated[tuple[NonEmptyText, ...], BeforeValidator(_as_list), AfterValidator(_globs)]
PassMark = Annotated[float, Field(gt=0, le=1)]
Shown = Literal["answer", "changes", "calls"]


class JudgeSpec(BaseModel):
    """Fields that all judges have."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9_-]{0,63}$")
    """The name of its score; by default its kind."""
    weight: float = Field(default=1, ge=0)
    """Its weight in the score. 0: it is recorded but does not count."""
    threshold: PassMark | None = None
    """Makes the judge hard: 1 from this value on, and 0 below."""

    @property
    def needs_box(self) -> bool:
        """Whether it reads files in the agent's box, and so cannot rejudge a finished rollout."""
        return False

    @property
    def runs_in_box(self) -> bool:
        """Whether it runs a command in a sealed box, which may be empty."""
        return self.needs_box

    @property
    def needs_calls(self) -> bool:
        """Whether it needs the tool calls."""
        return False


class AnswerSpec(JudgeSpec):
    """A judge of the agent's answer."""

    file: RelativePath | None = None
    """File in the working directory that holds the answer; by default the agent's final text is the answer."""

    @property
    def needs_box(self) -> bool:
        return self.file is not None


class RewardSpec(JudgeSpec):
    """Harbor's judge: the reward that tests/test.sh writes."""

    kind: Literal["reward"]

    @property
    def needs_box(self) -> bool:
        return True


class VerifySpec(JudgeSpec):
    """The share of the task's `verify` commands that exit 0."""

    kind: Literal["verify"]

    @property
    def needs_box(self) -> bool:
        return True


class ExactSpec(AnswerSpec):
    """The answer is the expected one, ignoring case, outer space, quotes and a full stop."""

    kind: Literal["exact"]
    answer: Texts | None = None
    """One of these; by default the task's `answer`."""
    partial: bool = False
    """Score a different answer by the share of the expected words that it contains."""


class ContainsSpec(AnswerSpec):
    """The answer contains these words."""

    kind: Literal["contains"]
    text: Texts | None = None
    """By default the task's `answer`."""
    any: bool = False
    """One of them is enough."""


class ChoiceSpec(AnswerSpec):
    """The answer is one letter, in <answer> tags or the last one named."""

    kind: Literal["choice"]
    answer: str | None = None
    choices: str = Field(default="ABCDE", pattern=r"^[A-Z]{2,26}$")


class NumberSpec(AnswerSpec):
    """The answer is the expected number, within a tolerance."""

    kind: Literal["number"]
    answer: float | None = None
    abs: float = Field(default=0, ge=0)
    """Absolute tolerance."""
    rel: float = Field(default=1e-9, ge=0)
    """Tolerance as a share of the expected number."""
    units: dict[NonEmptyText, float] = Field(default_factory=dict)
    """Size of each unit in the unit of the expected number. A number without a unit is in that unit."""


class JsonSpec(AnswerSpec):
    """The answer is JSON that fits a schema and contains these values."""

    kind: Literal["json"]
    json_schema: Annotated[Table, AfterValidator(check_schema)] | None = Field(default=None, alias="schema")
    """By default the task's `answer_schema`."""
    expected: Value = None
    """Values that it must contain; it may contain more."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)


class RulesSpec(AnswerSpec):
    """Checks of the answer, of tool calls and of files. Hard: all pass; soft: the share that passes."""

    kind: Literal["rules"]
    checks: Annotated[tuple[RulesCheck, ...], AfterValidator(_not_empty)]

    @property
    def needs_box(self) -> bool:
        return super().needs_box or any(isinstance(check, FileCheck | FileWordsCheck) for check in self.checks)

    @property
    def needs_calls(self) -> bool:
        return any(check.op in OF_CALLS for check in self.checks)

    @property
    def shape_only(self) -> bool:
        """Whether an agent can pass it only by reformatting."""
        return all(check.op in SHAPE for check in self.checks)


class RubricSpec(AnswerSpec):
    """A model reads task, rubric and answer, and votes."""

    kind: Literal["rubric"]
    rubric: NonEmptyText
    model: NonEmptyText | None = None
    """A model in whet.toml; by default that of --judge-model."""
    votes: int = Field(default=3, ge=1, le=100)
    shows: tuple[Shown, ...] = Field(default=("answer",), min_length=1)
    """Parts of the work that the model sees in addition to the task."""

    @property
    def needs_calls(self) -> bool:
        return "calls" in self.shows


class RankSpec(JudgeSpec):
    """A model reads all samples of a task together and ranks them. For `whet rejudge` only."""

    kind: Literal["rank"]
    rubric: NonEmptyText
    model: NonEmptyText | None = None
    votes: int = Field(default=2, ge=1, le=100)
    """Number of votes. Each sees the samples in a different order."""
    shows: tuple[Shown, ...] = Field(default=("answer",), min_length=1)

    @property
    def needs_calls(self) -> bool:
        return "calls" in self.shows


class HumanSpec(JudgeSpec):
    """The labels that people have set. For `whet rejudge` only."""

    kind: Literal["human"]
    label: NonEmptyText = "verdict"
    """The name of the label."""
    scores: Annotated[dict[NonEmptyText, Annotated[float, Field(ge=0, le=1)]], Field(min_length=1)]
    """What each choice is worth. The score is the mean over authors; choices that are not here count as no label."""
    authors: tuple[NonEmptyText, ...] = ()
    """Count only labels of these authors."""


class MathSpec(AnswerSpec):
    """The answer is the same mathematical object as the expected one."""

    kind: Literal["math"]
    answer: NonEmptyText | None = None
    where: Literal["host", "box"] = "host"
    """It runs in a separate process either way; in the box it is also isolated."""
    seconds: float = Field(default=20, gt=0)
    fallback: RubricSpec | None = None
    """The judge to ask when the answers differ or cannot be compared."""

    @property
    def needs_box(self) -> bool:
        return super().needs_box or self.where == "box"

    @property
    def needs_calls(self) -> bool:
        return self.fallback is not None and self.fallback.needs_calls


class PythonSpec(JudgeSpec):
    """A user's function, run in the sealed box."""

    kind: Literal["python"]
    function: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    """`module:function`."""
    folder: Path = Path()
    """Folder that is searched for the module first; relative to the folder of the task."""
    workspace: bool = False
    """Pass the path of the working directory to the function."""
    seconds: float = Field(default=60, gt=0)

    @property
    def source(self) -> Path | None:
        """The file of the module in the folder; None for an installed module."""
        place = self.folder.joinpath(*self.function.partition(":")[0].split("."))
        return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)

    @property
    def needs_box(self) -> bool:
        return self.workspace

    @property
    def runs_in_box(self) -> bool:
        return True

    @property
    def needs_calls(self) -> bool:
        return True


class DiffSpec(JudgeSpec):
    """Changes in the working directory. Hard: all requirements are met; soft: the share that is met."""

    kind: Literal["diff"]
    changed: Globs = ()
    """Each of these patterns, as in a .gitignore, must match a changed file."""
    untouched: Globs = ()
    """Files that match these must not change."""
    only: Globs = ()
    """If given, files that match none of these must not change."""
    adds: Patterns = ()
    """Each of these must match an added line."""
    removes: Patterns = ()
    lacks: Patterns = ()
    """None of these may match an added line."""

    @model_validator(mode="after")
    def _asks_for_something(self) -> Self:
        if not (self.changed or self.untouched or self.only or self.adds or self.removes or self.lacks):
            raise ValueError("asks for nothing; expected 'changed', 'untouched', 'only', 'adds', 'removes' or 'lacks'")
        return self


class OutcomeSpec(JudgeSpec):
    """A weak label: the agent ended by itself, it answered, and its last action did not fail."""

    kind: Literal["outcome"]

    @property
    def needs_calls(self) -> bool:
        return True


class PythonJudge(JudgeSpec):
    """A judge that a Python program passes as an object. It judges in this process; a run stores only its name."""

    kind: Literal["python-object"] = "python-object"
    judge: Any = Field(exclude=True, repr=False)

    @property
    def needs_box(self) -> bool:
        return True

    @property
    def needs_calls(self) -> bool:
        return True


class PluginSpec(JudgeSpec):
    """A judge of an installed package. It judges in this process; its further keys are its settings."""

    model_config = ConfigDict(extra="allow")

    kind: str
    """The name of the plug-in."""
    package: str
    """The package that declared it, with its version, when the task was read."""

    @property
    def needs_box(self) -> bool:
        return True

    @property
    def needs_calls(self) -> bool:
        return True


DeclaredJudge = (
    RewardSpec
    | VerifySpec
    | ExactSpec
    | ContainsSpec
    | ChoiceSpec
    | NumberSpec
    | JsonSpec
    | RulesSpec
    | MathSpec
    | RubricSpec
    | PythonSpec
    | DiffSpec
    | OutcomeSpec
)
"""A judge as a task declares it."""
AnyJudge = DeclaredJudge | PluginSpec | PythonJudge
KINDS = frozenset(tags(DeclaredJudge.__args__, "kind"))
REJUDGE_KINDS = frozenset({"rank", "human"})


def _read_judge(value: object, read: ValidatorFunctionWrapHandler) -> object:
    match {"kind": value} if isinstance(value, str) else value:
        case JudgeSpec():
            return read(value)
        case {"kind": str(kind)} as table if kind in KINDS:
            return read(table)
        case {"kind": str(kind), "package": str()} as table:  # of a stored task; the plug-in may be gone
            return PluginSpec.model_validate(table)
        case {"kind": str(kind), **settings} if kind in (plugins := find_plugins(JUDGES)):
            return PluginSpec.model_validate({**settings, "kind": kind, "package": plugins[kind].package})
        case {"kind": str(kind)} if kind in REJUDGE_KINDS:
            raise ValueError(
                f"has the kind '{kind}', which is only for judging again; expected it in a file for whet rejudge"
            )
        case {"kind": kind}:
            known = [*KINDS, *find_plugins(JUDGES)]
            raise ValueError(f"has the unknown kind {kind!r}; {did_you_mean(str(kind), known)}")
    raise ValueError("expected the name of a judge, or a table with the key 'kind'")


def _one_or_many(value: object) -> object:
    if isinstance(value, str | Mapping):
        return (value,)
    if not isinstance(value, list | tuple):
        raise ValueError("expected the name of a judge, a table with the key 'kind', or a list of these")
    return value


def _check_names(judges: tuple[JudgeSpec, ...]) -> tuple[JudgeSpec, ...]:
    names = [judge.name for judge in judges if judge.name is not None]
    if len({*names}) < len(names):
        raise ValueError("has two judges of one name; expected a different name for each")
    if judges and not any(judge.weight for judge in judges):
        raise ValueError("has judges of weight 0 only; expected one that counts")
    return judges


OneJudge = Annotated[DeclaredJudge, Field(discriminator="kind"), WrapValidator(_read_judge), SerializeAsAny()]
Judges = Annotated[tuple[OneJudge, ...], BeforeValidator(_one_or_many), AfterValidator(_check_names)]
"""A judge by its name, as a table, or a list of these."""


def locate_modules(judges: tuple[AnyJudge, ...], folder: Path) -> tuple[AnyJudge, ...]:
    """Resolve the folders of Python judges against the folder of the task."""
    return tuple(
        judge.model_copy(update={"folder": (folder / judge.folder).resolve()})
        if isinstance(judge, PythonSpec)
        else judge
        for judge in judges
    )


def asks_model(judge: JudgeSpec) -> RubricSpec | RankSpec | None:
    """The part of a judge that calls a model, if any."""
    if isinstance(judge, MathSpec):
        return judge.fallback
    return judge if isinstance(judge, RubricSpec | RankSpec) else None


def judge_warnings(judges: tuple[AnyJudge, ...]) -> list[str]:
    """Warnings about judges that are too easy to pass."""
    return [
        "the rules check only the form of the answer; an agent can pass them by reformatting it"
        for judge in judges
        if isinstance(judge, RulesSpec) and judge.shape_only
    ]


def lacks(judge: AnyJudge, answer: str | None, schema: dict[str, Any] | None) -> str:
    """Describes what a judge needs and its task lacks; empty if nothing is missing."""
    match judge:
        case ExactSpec(answer=None) | ContainsSpec(text=None) | MathSpec(answer=None) if not (answer or "").strip():
            return "needs an expected answer; expected the key 'answer'"
        case ChoiceSpec():
            given = (judge.answer or answer or "").strip().upper()
            if len(given) != 1 or given not in judge.choices:
                return f"needs an 'answer' that is one of the letters {judge.choices}; it is {given[:20]!r}"
        case NumberSpec(answer=None):
            try:
                float(answer or "")
            except ValueError:
                return f"needs an 'answer' that is a number; it is {(answer or '')[:20]!r}"
        case JsonSpec(json_schema=None, expected=None) if schema is None:
            return "needs something to compare with; expected 'schema', 'expected' or the task's 'answer_schema'"
        case JsonSpec(json_schema=None) if schema is not None:
            try:
                check_schema(schema)
            except ValueError as error:
                return f"needs the task's 'answer_schema', which {error}"
    return ""
