"""`whet sharpen`: a better skill, and the proof that it is better."""

from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.options import Layout, takes
from whet.skills.options import SharpenOptions

if TYPE_CHECKING:
    from rich.console import Console

    from whet.skills.gate.gate import ExamResult
    from whet.skills.gate.heuristics import RuleComparison
    from whet.skills.proposers.base import SearchStep
    from whet.skills.proposers.driver import ProposalMade
    from whet.skills.results import SharpenResult
    from whet.skills.search.shorten import Removal
    from whet.skills.sharpen.events import AuditFinished, SharpenEvent


LAYOUT = Layout(
    arguments=("skill", "tasks"),
    required=("skill", "tasks"),
    advanced=("schedule", "epochs", "batch"),
    limits=("max_cost",),
)


@takes(SharpenOptions, LAYOUT)
def sharpen(
    options: SharpenOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print how the budget would be split and what it can show; run nothing.")
    ] = False,
) -> None:
    """Improve a skill on training tasks, and certify the improvement on tasks that no proposal has seen."""
    from whet import api
    from whet.cli.asking import count_rollouts, resumable
    from whet.cli.estimate import print_estimate
    from whet.cli.run import complete_options
    from whet.cli.tables import terminal

    options, config = complete_options(options)
    console = terminal()
    if dry_run:
        print_estimate(console, api.sharpen_request(options, config), config)
        return
    with resumable(options.out), count_rollouts(console, options.budget) as count:

        def watch(event: "SharpenEvent") -> None:
            count(event)
            _print_event(console, event)

        outcome = api.sharpen(options=options, config=config, watch=watch)
    _print_result(console, outcome)


def _print_event(console: "Console", event: "SharpenEvent") -> None:
    from whet.skills.gate.gate import ExamResult
    from whet.skills.gate.heuristics import RuleComparison
    from whet.skills.proposers.base import SearchStep
    from whet.skills.proposers.driver import ProposalMade
    from whet.skills.search.shorten import Removal
    from whet.skills.sharpen.events import AuditFinished, SharpenStarted

    match event:
        case SharpenStarted(folder, skill, splits, budget, used, seed):
            console.print(f"skill {skill.name}; {splits}; at most {budget}; {folder}", soft_wrap=True)
            how = "drawn" if seed.drawn else "chosen"
            console.print(f"  order of exams: seed {how}, committed as {seed.commitment}", soft_wrap=True)
            if used.runs:
                console.print(f"  {used}", soft_wrap=True)
        case AuditFinished():
            _print_audit(console, event)
        case ProposalMade(candidate=None):
            if event.refused or event.proposal.reason:
                console.print(_no_proposal_line(event), soft_wrap=True)
        case SearchStep():
            console.print(_step_line(event), soft_wrap=True)
        case ExamResult():
            console.print(_exam_line(event), soft_wrap=True)
        case RuleComparison():
            console.print(_comparison_line(event), soft_wrap=True)
        case Removal():
            console.print(_removal_line(event), soft_wrap=True)


def _print_audit(console: "Console", audited: "AuditFinished") -> None:
    from whet.cli.estimate import format_lifts
    from whet.cli.tables import money
    from whet.skills.rollouts.audit import WARNED

    audit = audited.audit
    lost = f"; {audit.lost} of {audit.rollouts} rollouts have no score" if audit.lost else ""
    console.print(
        f"  audit: re-running the same skill changed {audit.discordance:.0%} of task scores{lost}; "
        f"a rollout takes {audited.seconds:.3g} s and costs {money(audited.cost)}; "
        f"the budget covers about {audited.rollouts} rollouts",
        soft_wrap=True,
    )
    if audit.known is not None:
        added = sum(audit.known) / max(1, len(audit.known))
        console.print(f"  the positive control adds {added * 100:+.1f} points", soft_wrap=True)
    if not audit.moves:
        console.print(
            f"  scores {'are the same' if not audit.discordance else 'differ by no more than chance'} without the skill"
            f"{': it adds nothing as it is, or ' if audit.known is None else ', and with the good one: '}"
            "it does not reach the model, or the judges do not see what it changes",
            soft_wrap=True,
        )
    console.print(f"  smallest lift that a budget can detect: {format_lifts(audited.table)}", soft_wrap=True)
    if audited.lift is not None and audited.lift > WARNED:
        console.print(f"  this run is unlikely to detect a lift below {audited.lift * 100:.0f} points", soft_wrap=True)


def _no_proposal_line(drafted: "ProposalMade") -> str:
    """Why nothing was tried, for whoever wonders whether the proposer or the rules for it are to blame."""
    refused = drafted.refused
    why = f"{len(refused)} refused, the first because {refused[0].reason}" if refused else drafted.proposal.reason
    return f"  proposal {drafted.number}: no new skill; {why[:300]}"


def _step_line(step: "SearchStep") -> str:
    taken = "leads now" if step.accepted else "fell behind" if step.dropped else "not taken"
    return f"  tried {step.candidate[:8]}: {step.mean:.1%} on training tasks, to beat {step.bar:.1%}: {taken}"


def _exam_line(held: "ExamResult") -> str:
    attempt = held.test
    why = "; ".join(attempt.differences_between_arms()) if attempt.verdict == "withheld" else ""
    return (
        f"  exam {held.exam.number}: {held.candidate[:8]} against {held.exam.incumbent[:8]}: {attempt.verdict} "
        f"after {attempt.decided_at} pairs (level {held.level:g}){why and f': {why}'}"
    )


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


def _print_result(console: "Console", outcome: "SharpenResult") -> None:
    from whet.cli.tables import command
    from whet.skills.report.text import PAGE, in_plain_words

    folder = outcome.folder
    console.print(f"\n{in_plain_words(outcome)}", soft_wrap=True)
    console.print(f"\n{'certified skill' if outcome.certified else 'skill as it was'}: {folder / 'best'}")
    if outcome.leader.digest != outcome.best.digest:
        console.print(f"best candidate of the search, not proved: {folder / 'leader'}")
    if outcome.accepted is not None:
        console.print(f"accepted by the rule '{outcome.done.plan.gate}', not proved: {folder / 'accepted'}")
    if outcome.shortened is not None:
        console.print(f"shorter version of the certified skill: {folder / 'shortened'}")
    console.print(f"report: {folder / PAGE}")
    check = [] if outcome.accepted else [command("certify", "--check", str(folder / "certificate.json"))]
    lines = [*check, command("show", str(folder / "search"))]
    console.print("\nnext:\n" + "\n".join(f"  {line}" for line in lines), soft_wrap=True)
