"""The options of the verbs about skills: sharpen, certify and transfer. Light, so that `--help` is quick."""

from pathlib import Path
from typing import Any

from pydantic import Field

from whet.runs.options import Options, RolloutOptions, RunOptions, SkillPath
from whet.skills.gate.kinds import GateKind, SearchKind
from whet.skills.proposers.schedule import Schedule


class ArmOptions(RolloutOptions):
    """The options of a verb that runs one agent on one model."""

    agent: str | None = None
    """Agent that does the tasks."""
    model: str | None = None
    """Model that the agent calls."""
    pilot: int | None = Field(default=None, ge=0)
    """Rollouts to run first, as a part of the run, to estimate what all of it will use; 0 for none (default: 4 on the
    command line, none in Python)."""

    def run_options(self, **changes: Any) -> RunOptions:
        """The options of the rollouts."""
        shared = {name: value for name, value in self.given().items() if name in RolloutOptions.model_fields}
        arm = {"agents": (self.agent,) if self.agent else (), "models": (self.model,) if self.model else ()}
        return RunOptions(**shared, **arm, pilot=self.pilot, **changes)


class GuardedOptions(ArmOptions):
    """The options of a verb that holds exams."""

    guard: str | None = None
    """Name of a judge of the tasks whose score must not get worse, such as 'work'. Give it weight 0 in the tasks, and
    the score itself does not count it. A skill is certified only if it is better and its guard is not worse."""
    guard_margin: float | None = Field(default=None, ge=0.01, le=0.5)
    """How much worse the guard's mean score may be; 0.1 is 10 points (default: 0.1)."""


class SharpenOptions(GuardedOptions):
    """What to sharpen, on which tasks, with which proposer, and within which budget."""

    skill: SkillPath | None = None
    """Skill folder, or a Markdown file that agents always read, such as CLAUDE.md."""
    budget: str = "400"
    """What the whole run may use: rollouts (400), '2M tokens', '$5', '3h' or '45min'."""
    proposer: str = "criteria"
    """Source of edits. 'criteria' turns the checks that fail most often into rules (needs no model); 'llm' lets a model
    read the rollouts and suggest edits; 'agent' lets a coding agent edit the skill; 'rules:FILE' tries the rules of a
    file, one per line."""
    proposer_model: str | None = None
    """Model for the proposers 'llm' and 'agent' (default: `model`)."""
    proposer_agent: str | None = None
    """Agent for the proposer 'agent' (default: `agent`)."""
    memory_file: Path | None = None
    """A document that agents always read (AGENTS.md, CLAUDE.md, GEMINI.md), to improve together with the skill."""
    preferences: str = ""
    """House rules that every proposal must respect: a text, or the name of a file that holds it."""
    policy: str = "anything"
    """What may be changed: anything, only-learned-block, description, or sections=TITLE,TITLE."""
    search: SearchKind = SearchKind.RATCHET
    """How to search: 'ratchet' tries one proposal at a time; 'race' tries several at once and drops the worse ones
    early; 'pareto' starts from the version that is best on some task and merges sections."""
    gate: GateKind = GateKind.CERTIFY
    """What decides on the best candidate. Only 'certify', the exam, proves an improvement. 'strict', 'soft', 'hard',
    'mixed' and 'no-regression' are the rules of other optimizers, for comparison."""
    shorten: bool = False
    """Use leftover budget to remove learned rules that do not help."""
    samples: int | None = Field(default=None, ge=1)
    """Rollouts per training task whenever a skill is measured (default: several if there are few tasks)."""
    alpha: float = Field(default=0.10, ge=0.0001, le=0.5)
    """False-positive rate: chance that the run certifies a skill that is not better."""
    one_exam: bool = False
    """Hold one exam only, after the search, with all of `alpha`, and stop at its verdict. Otherwise the first exam uses
    half of `alpha`, the next a quarter, and so on."""
    known_good: SkillPath | None = None
    """Positive control: a skill known to be better. The audit reports whether your tasks can detect it."""
    force: bool = False
    """Run even if the budget is too small to detect a realistic improvement."""
    seed: int | None = None
    """Reproduce the split of tasks and the order of exams (default: drawn at random)."""
    schedule: Schedule = Schedule.COSINE
    """How the number of edits per proposal falls during the search, from `edits` to half of it: cosine, linear,
    constant, or autonomous (the proposer chooses)."""
    edits: int = Field(default=4, ge=1)
    """Edits that a proposal may make at the start of the search."""
    epochs: int = Field(default=4, ge=1)
    """Number of parts of the search. After each part the proposer reviews what has changed."""
    batch: int = Field(default=40, ge=1)
    """Training tasks that a proposer sees at a time."""


class CertifyOptions(GuardedOptions):
    """Which skills to compare in an exam, on which tasks, and within which budget."""

    old: SkillPath | None = None
    """Skill to beat."""
    new: SkillPath | None = None
    """Skill that may be better."""
    budget: str = "200"
    """What the exam may use: rollouts (200), '2M tokens', '$5', '3h' or '45min'."""
    alpha: float = Field(default=0.05, ge=0.0001, le=0.5)
    """False-positive rate: chance of certifying a skill that is not better."""
    non_inferior: float | None = Field(default=None, ge=0.01, le=0.5)
    """Test instead whether the new skill is not worse than the old one by more than this margin; 0.05 is 5 points. Made
    for pull requests."""
    summary: Path | None = None
    """Write the verdict to this file in Markdown, for a comment. In GitHub Actions, the job's page shows it as well."""
    seed: int | None = None
    """Reproduce the order of tasks (default: drawn at random)."""


class AdoptOptions(Options):
    """Which version of a run to write over the original skill."""

    run: Path
    """Run folder of `whet sharpen`."""
    version: str | None = None
    """Version to adopt: best, shortened, leader, or the first digits of its digest (default: best)."""
    to: Path | None = None
    """Skill to replace (default: the one that the run started with, where it lay then)."""
    uncertified: bool = False
    """Allow a version that is not certified; without a certified one, take the best candidate of the search."""
    undo: bool = False
    """Restore what was there before."""


class TransferOptions(RolloutOptions):
    """Which agents and models to try a skill with."""

    skill: SkillPath | None = None
    """Skill folder, or a Markdown file that agents always read."""
    agents: tuple[str, ...] = ()
    """Agents: a,b."""
    models: tuple[str, ...] = ()
    """Models: x,y."""
    against: SkillPath | None = None
    """Older skill to compare with (default: no skill)."""
    samples: int = Field(default=1, ge=1)
    """Rollouts per task."""

    def run_options(self) -> RunOptions:
        """The options of the rollouts."""
        return RunOptions(**{name: value for name, value in self.given().items() if name in RunOptions.model_fields})
