"""`whet sharpen`: a better skill, and the proof that it is better."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.options import Layout, Yes, takes
from whet.cli.view import WatchInBrowser, view_beside
from whet.skills.options import SharpenOptions

if TYPE_CHECKING:
    from whet.cli.tables import Terminal
    from whet.skills.gate.gate import ExamResult
    from whet.skills.gate.heuristics import RuleComparison
    from whet.skills.proposers.base import SearchStep
    from whet.skills.proposers.driver import ProposalMade
    from whet.skills.results import SharpenResult
    from whet.skills.search.shorten import Removal
    from whet.skills.sharpen.events import AuditFinished, SharpenEvent


NOTHING_SOLVED = 1
"""Exit code when every training task scores 0 with every version: the run says nothing about the skill."""
LAYOUT = Layout(
    arguments=("skill", "tasks"),
    required=("skill", "tasks"),
    limits=("max_cost",),
)


@takes(SharpenOptions, LAYOUT)
def sharpen(
    options: SharpenOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print how the budget would be split and what it can show; run nothing.")
    ] = False,
    yes: Yes = False,
    in_browser: WatchInBrowser = False,
) -> None:
    """Improve a skill on training tasks, and certify the improvement on tasks that no proposal has seen.

    \b
    whet sharpen CLAUDE.md tasks --agent codex --model openai/gpt-5
    whet sharpen skills/x tasks --agent loop --model m --budget '$5' --dry-run
    """
    from whet import api
    from whet.cli.asking import count_rollouts, resumable
    from whet.cli.estimate import print_estimate
    from whet.cli.run import complete_options
    from whet.cli.tables import terminal
    from whet.runs.stats.use import PILOT

    options, config = complete_options(options)
    options = options.fill({"pilot": PILOT})
    console = terminal()
    if dry_run:
        print_estimate(console, api.sharpen_request(options, config), config)
        return
    with view_beside(options.out, wanted=in_browser):
        with resumable(options.out), count_rollouts(console, options.budget, options.out, yes=yes) as count:

            def watch(event: "SharpenEvent") -> None:
                count(event)
                _print_event(console, event)

            outcome = api.sharpen(options=options, config=config, watch=watch)
        _print_result(console, outcome, options)
        if outcome.solved_nothing:
            raise typer.Exit(NOTHING_SOLVED)


def _print_event(console: "Terminal", event: "SharpenEvent") -> None:
    from whet.skills.gate.gate import ExamResult
    from whet.skills.gate.heuristics import RuleComparison
    from whet.skills.proposers.base import SearchStep
    from whet.skills.proposers.driver import ProposalMade
    from whet.skills.search.shorten import Removal
    from whet.skills.sharpen.events import AuditFinished, SharpenStarted

    match event:
        case SharpenStarted(folder, skill, splits, budget, used, seed):
            console.say(f"skill {skill.name}; {splits}; at most {budget}; {folder}")
            how = "drawn" if seed.drawn else "chosen"
            console.say(f"  order of exams: seed {how}, committed as {seed.commitment}")
            if used.runs:
                console.say(f"  {used}")
        case AuditFinished():
            _print_audit(console, event)
        case ProposalMade(candidate=None):
            if event.refused or event.proposal.reason:
                console.say(_no_proposal_line(event))
        case SearchStep():
            console.say(_step_line(event))
        case ExamResult():
            console.say(_exam_line(event))
        case RuleComparison():
            console.say(_comparison_line(event))
        case Removal():
            console.say(_removal_line(event))


def _print_audit(console: "Terminal", audited: "AuditFinished") -> None:
    from whet.cli.estimate import format_lifts
    from whet.look.numbers import money
    from whet.skills.rollouts.audit import WARNED

    audit = audited.audit
    if audit.is_all_zero:
        console.say("  the skill scores 0 on every training task: only a proposal that solves one of them can lead")
    lost = f"; {audit.lost} of {audit.rollouts} rollouts have no score" if audit.lost else ""
    console.say(
        f"  audit: re-running the same skill changed {audit.discordance:.0%} of task scores{lost}; "
        f"a rollout takes {audited.seconds:.3g} s and costs {money(audited.cost)}; "
        f"the budget covers about {audited.rollouts} rollouts"
    )
    if audit.known is not None:
        added = sum(audit.known) / max(1, len(audit.known))
        console.say(f"  the positive control adds {added * 100:+.1f} points")
    if not audit.moves:
        console.say(
            f"  scores {'are the same' if not audit.discordance else 'differ by no more than chance'} without the skill"
            f"{': it adds nothing as it is, or ' if audit.known is None else ', and with the good one: '}"
            "it does not reach the model, or the judges do not see what it changes"
        )
    console.say(f"  smallest lift that a budget can detect: {format_lifts(audited.table)}")
    if audited.lift is not None and audited.lift > WARNED:
        console.say(f"  this run is unlikely to detect a lift below {audited.lift * 100:.0f} points")


def _no_proposal_line(drafted: "ProposalMade") -> str:
    """Why nothing was tried, for whoever wonders whether the proposer or the rules for it are to blame."""
    refused = drafted.refused
    if drafted.proposal.exhausted and not refused:
        return f"  the proposer has nothing more to propose: {drafted.proposal.reason}"
    why = f"{len(refused)} refused, the first because {refused[0].reason}" if refused else drafted.proposal.reason
    return f"  proposal {drafted.number}: no new skill; {why[:300]}"


def _step_line(step: "SearchStep") -> str:
    taken = "leads now" if step.accepted else "fell behind" if step.dropped else "not taken"
    taken = f"{taken}: its guard fell too far" if step.harmful else taken
    return f"  tried {step.candidate[:8]}: {step.mean:.1%} on training tasks, to beat {step.bar:.1%}: {taken}"


def _exam_line(held: "ExamResult") -> str:
    attempt = held.test
    why = "; ".join(attempt.differences_between_arms()) if attempt.verdict == "withheld" else ""
    return (
        f"  exam {held.exam.number}: {held.candidate[:8]} against {held.exam.incumbent[:8]}: {attempt.verdict} "
        f"after {attempt.decided_at} pairs (level {held.level:g}){why and f': {why}'}{_guard_part(held)}"
    )


def _guard_part(held: "ExamResult") -> str:
    from whet.skills.certificates.certificate import make_record
    from whet.skills.certificates.guard_text import format_both_scores, format_guard

    if held.test.guard is None:
        return ""
    record = make_record(held)
    return f"; {format_guard(record)}; {format_both_scores(record)}"


def _comparison_line(compared: "RuleComparison") -> str:
    taken = "accepted" if compared.accepted else "not accepted"
    return f"  rule {compared.rule}: {compared.candidate[:8]} against {compared.incumbent[:8]}: {taken}"


def _removal_line(removal: "Removal") -> str:
    found = {
        "certified": f"at most {max(0.0, -removal.exam_result.test.at_least()) * 100:.1f} points lower",
        "futile": "kept: without them the skill is worse",
        "undecided": "kept: undecided",
        "withheld": "kept: the two versions are missing scores unevenly",
    }[str(removal.exam_result.test.verdict)]
    rules = ", ".join(f"'{unit.splitlines()[0][:60]}'" for unit in removal.units)
    return f"  without {rules}: {found}"


MOST_LINES = 30
"""Lines of the diff that are printed at the end."""


def _print_result(console: "Terminal", outcome: "SharpenResult", options: SharpenOptions) -> None:
    from whet.skills.report.files import PAGE
    from whet.skills.report.text import in_plain_words
    from whet.skills.report.verdict import verdict_sentence

    folder = outcome.folder
    console.say(f"\n{verdict_sentence(outcome)}")
    _print_changes(console, outcome)
    console.say(f"\n{in_plain_words(outcome)}")
    console.say(f"\n{'certified skill' if outcome.certified else 'skill as it was'}: {folder / 'best'}")
    if outcome.leader.digest != outcome.best.digest:
        console.say(f"best candidate of the search, not proved: {folder / 'leader'}")
    if outcome.accepted is not None:
        console.say(f"accepted by the rule '{outcome.done.plan.gate}', not proved: {folder / 'accepted'}")
    if outcome.shortened is not None:
        console.say(f"shorter version of the certified skill: {folder / 'shortened'}")
    console.say(f"report: {folder / PAGE}")
    console.say("\nnext:\n" + "\n".join(f"  {line}" for line in _next_commands(outcome, options)))


def _with_model(options: SharpenOptions) -> str:
    """The command that sharpens the same skill again, with proposals of a model."""
    from whet.cli.output import command

    changed = {"--proposer": "llm", "--out": f"{options.out}-llm"}
    words, rest = [], iter(sys.argv[1:])
    for word in rest:
        if word in changed:
            next(rest, None)
        elif word != "--resume" and word.partition("=")[0] not in changed:
            words.append(word)
    return command(*words, *(part for pair in changed.items() for part in pair))


def _print_changes(console: "Terminal", outcome: "SharpenResult") -> None:
    from whet.skills.report.verdict import count_changes, list_changes

    lines = list_changes(outcome)
    if not lines:
        return
    console.say(f"\n{count_changes(lines)}:", *(f"  {line}" for line in lines[:MOST_LINES]))
    if len(lines) > MOST_LINES:
        console.say(f"  ... and {len(lines) - MOST_LINES} more lines")


def _next_commands(outcome: "SharpenResult", options: SharpenOptions) -> Iterator[str]:
    from whet.cli.output import command

    if not outcome.certified and not outcome.solved_nothing and options.proposer.split(":")[0] not in {"llm", "agent"}:
        yield f"{_with_model(options)}  # a model reads the rollouts and proposes"
    folder = str(outcome.folder)
    if outcome.certified:
        yield command("adopt", folder)
    if outcome.accepted is None:
        yield command("certify", "--check", str(outcome.folder / "certificate.json"))
    yield command("show", str(outcome.folder / "search"))
