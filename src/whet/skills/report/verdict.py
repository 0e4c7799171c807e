"""The result of a sharpen run for whoever reads one sentence: adopt it or not, and what it changes."""

from whet.skill import Skill
from whet.skills.certificates.guard_text import format_margin
from whet.skills.documents.store import differences
from whet.skills.gate.gate import ExamResult
from whet.skills.measurement import Verdict
from whet.skills.results import SharpenResult

GLOSSARY = {
    "pair": "one validation task, done once with the old skill and once with the new one, both at the same time",
    "lift": "how much higher the mean score is with the new skill, in points: from 50 % to 62 % is a lift of 12 points",
    "level": "the chance that an exam certifies a skill that is not better; 0.05 is one exam in twenty",
    "e-value": "the evidence of an exam so far. It certifies when its e-value reaches 1 / level: 20 at level 0.05",
    "held-out test": "both skills once on tasks that no decision was based on. It shows the lift on other tasks",
}


def verdict_sentence(outcome: SharpenResult) -> str:
    """Whether to adopt what the run found, and why, in one sentence."""
    if outcome.accepted is not None:
        rule = f"the rule '{outcome.done.plan.gate}' decided, and it proves nothing"
        return f"Do not adopt it on this evidence: {rule}."
    if outcome.certified:
        lift, tasks = outcome.certified[-1].test.at_least() * 100, len(outcome.certificate.tasks)
        guard = outcome.done.plan.guard
        kept = f", and {format_margin(guard)}" if guard else ""
        return f"Adopt it: on {tasks} validation tasks the new skill scores at least {lift:.1f} points higher{kept}."
    if outcome.leader.digest == outcome.start.digest:
        return f"Keep the skill as it is: {_why_no_leader(outcome)}."
    return f"Keep the skill as it is: the best candidate is not proved to be better; {_why(outcome.done.exam_results)}."


def _why_no_leader(outcome: SharpenResult) -> str:
    if outcome.solved_nothing:
        return "it scores 0 on every training task, and so does every proposal, so there is nothing to learn from"
    if not outcome.done.steps:
        return "the proposer had nothing to propose that could be measured"
    return "no proposal did better on the training tasks"


def _why(exams: tuple[ExamResult, ...]) -> str:
    if not exams:
        return "the budget was too small for an exam"
    last = exams[-1].test
    if last.terms.guard is not None and last.verdict is not Verdict.WITHHELD:
        if last.guard is not None and last.guard.is_harmed:
            return f"'{last.terms.guard.judge}' is likely worse by more than {last.terms.guard.margin * 100:g} points"
        if last.is_target_shown:
            return f"it scores higher, but it was not shown that {format_margin(last.terms.guard)}"
    match last.verdict:
        case Verdict.FUTILE:
            return f"a lift of {last.terms.minimum_effect * 100:.0f} points or more is unlikely"
        case Verdict.WITHHELD:
            return "too many rollouts failed with one of the two skills"
    return "the exam was undecided, and a larger budget may decide it"


def new_skill(outcome: SharpenResult) -> Skill | None:
    """The skill that the run found, certified or not; None when it found none."""
    chosen = outcome.best if outcome.certified else outcome.accepted or outcome.leader
    return None if chosen.digest == outcome.start.digest else chosen


def list_changes(outcome: SharpenResult) -> list[str]:
    """The lines of the diff from the first skill to the one that the run found."""
    found = new_skill(outcome)
    return [] if found is None else list(differences(outcome.start, found))


def count_changes(lines: list[str]) -> str:
    """
    >>> count_changes(["--- a/SKILL.md", "+++ b/SKILL.md", "@@ -1 +1,2 @@", " # Rules", "+- Be brief."])
    '1 line added, 0 removed'
    """
    added, removed = (sum(line.startswith(sign) and line[:3] != sign * 3 for line in lines) for sign in "+-")
    return f"{added} {'line' if added == 1 else 'lines'} added, {removed} removed"
