"""`whet sharpen`: a better skill, and the proof that it is better."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.skills.gate.kinds import GateKind, SearchKind
from whet.skills.proposers.schedule import Schedule

if TYPE_CHECKING:
    from rich.console import Console

    from whet.skills.gate.gate import ExamResult
    from whet.skills.gate.heuristics import RuleComparison
    from whet.skills.proposers.base import SearchStep
    from whet.skills.proposers.driver import ProposalMade
    from whet.skills.results import SharpenResult
    from whet.skills.search.shorten import Removal
    from whet.skills.sharpen.events import AuditFinished, SharpenEvent


def sharpen(
    skill: Annotated[Path, typer.Argument(help="Skill folder, or a Markdown file that agents always read.")],
    tasks: Annotated[Path, typer.Argument(help="Task folder, .jsonl or .parquet file, or a folder of these.")],
    proposer: Annotated[
        str,
        typer.Option(
            help="Who proposes edits: 'criteria' makes rules of what judges ask for in vain; 'llm' lets a model "
            "reflect on the work; 'agent' lets a coding agent edit the skill; 'rules:FILE' tries a list."
        ),
    ] = "criteria",
    optimizer_model: Annotated[
        str | None, typer.Option(help="Model of the proposers 'llm' and 'agent'; by default --model.")
    ] = None,
    optimizer_agent: Annotated[
        str | None, typer.Option(help="Agent of the proposer 'agent'; by default --agent.")
    ] = None,
    search: Annotated[
        SearchKind,
        typer.Option(
            help="How to look for better skills: one proposal after the other (ratchet), several at once of which the "
            "worse are dropped early (race), or from whatever is best on some task, by sections (pareto)."
        ),
    ] = SearchKind.RATCHET,
    gate: Annotated[
        GateKind,
        typer.Option(
            help="What decides on the leader: an exam (certify), or for comparison a rule of other optimizers."
        ),
    ] = GateKind.CERTIFY,
    shorten: Annotated[
        bool,
        typer.Option("--shorten", help="Use leftover budget to show that some learned rules can be left out."),
    ] = False,
    also: Annotated[
        Path | None,
        typer.Option(help="A document that agents always read (AGENTS.md, CLAUDE.md, GEMINI.md), sharpened together."),
    ] = None,
    preferences: Annotated[
        str, typer.Option(metavar="TEXT|FILE", help="House rules that proposals are to keep, or a file that has them.")
    ] = "",
    policy: Annotated[
        str, typer.Option(help="What may be changed: anything, only-learned-block, or sections=TITLE,TITLE.")
    ] = "anything",
    schedule: Annotated[
        Schedule, typer.Option(help="How many edits a proposal may have as the search goes on: from 4 down to 2.")
    ] = Schedule.COSINE,
    epochs: Annotated[
        int, typer.Option(help="Parts of the search; after each the proposer looks back on what changed.", min=1)
    ] = 4,
    batch: Annotated[
        int, typer.Option(help="Training tasks that a proposer is shown at once; then the next ones.", min=1)
    ] = 40,
    samples: Annotated[
        int | None,
        typer.Option(
            help="Rollouts per training task, whenever a skill is measured; by default several if tasks are few.", min=1
        ),
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Agent that does the tasks.")] = None,
    model: Annotated[str | None, typer.Option(help="Model that it calls.")] = None,
    budget: Annotated[
        str, typer.Option(help="All that it may use: rollouts (400), '2M tokens', '$5', '3h' or '45min'.")
    ] = "400",
    alpha: Annotated[
        float, typer.Option(help="Chance that the run certifies what is no better.", min=0.0001, max=0.5)
    ] = 0.10,
    seed: Annotated[
        int | None,
        typer.Option(help="Reproduce a split and the order of exams; by default the order is drawn by chance."),
    ] = None,
    concurrency: Annotated[int | None, typer.Option(help="Rollouts at once.", min=1)] = None,
    sandbox: Annotated[str | None, typer.Option(help="bubblewrap (default), or local (no isolation).")] = None,
    judge_model: Annotated[
        str | None, typer.Option(help="Model that judges ask, where a task names none; not the one under test.")
    ] = None,
    max_cost: Annotated[float | None, typer.Option(help="Dollars that the run may cost; then it stops.", min=0)] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; by default a new one under runs/.")] = None,
    known_good: Annotated[
        Path | None, typer.Option(help="A skill that is known to be better: the audit tells whether it is seen to be.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Go on although the budget cannot show what may be expected.")
    ] = False,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Say what the budget is for and what it may show; spend nothing.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out; nothing is paid for twice.")
    ] = False,
) -> None:
    """Improve a skill on training tasks, and certify the improvement on tasks that no proposal has seen."""
    from whet.cli.asking import asked, counted, resumable
    from whet.cli.estimate import print_estimate
    from whet.cli.tables import terminal
    from whet.event_loop import run_coroutine
    from whet.gateway import Limits
    from whet.skills.gate.plan import AUTO, GatePlan
    from whet.skills.proposers.schedule import ScheduleOptions
    from whet.skills.rollouts.budget import read_budget
    from whet.skills.sharpen.options import read_policy, read_preferences, read_proposer
    from whet.skills.sharpen.run import SharpenRequest, sharpen_skill

    within = read_budget(budget)
    writer = read_proposer(proposer, optimizer_model, optimizer_agent)
    request, config = asked(
        tasks,
        agent=agent,
        model=model,
        concurrency=concurrency,
        sandbox=sandbox,
        judge_model=judge_model,
        out=out,
        resume=resume,
        limits=Limits(cost=max_cost),
    )
    wish = SharpenRequest(
        skill,
        request,
        within,
        GatePlan(
            within.rollouts or 0, seed or 0, alpha, samples=samples or AUTO, search=search, gate=gate, shorten=shorten
        ),
        proposer,
        read_policy(policy),
        read_preferences(preferences),
        ScheduleOptions(schedule, epochs, batch),
        also,
        known_good,
        seed=seed,
        force=force,
    )
    console = terminal()
    if estimate:
        print_estimate(console, wish, config)
        return

    with resumable(request.out), counted(console, within) as count:

        def watch(event: "SharpenEvent") -> None:
            count(event)
            _tell(console, event)

        outcome = run_coroutine(sharpen_skill(wish, writer, config, watch))
    _conclude(console, outcome)


def _tell(console: "Console", event: "SharpenEvent") -> None:
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
            _tell_audit(console, event)
        case ProposalMade(candidate=None):
            if event.refused or event.proposal.reason:
                console.print(_nothing_line(event), soft_wrap=True)
        case SearchStep():
            console.print(_step_line(event), soft_wrap=True)
        case ExamResult():
            console.print(_held_line(event), soft_wrap=True)
        case RuleComparison():
            console.print(_compared_line(event), soft_wrap=True)
        case Removal():
            console.print(_removal_line(event), soft_wrap=True)


def _tell_audit(console: "Console", audited: "AuditFinished") -> None:
    from whet.cli.estimate import shown_lifts
    from whet.cli.tables import money
    from whet.skills.rollouts.audit import WARNED

    audit = audited.audit
    lost = f"; {audit.lost} of {audit.rollouts} rollouts were lost" if audit.lost else ""
    console.print(
        f"  audit: the same skill twice differs on {audit.discordance:.0%} of the tasks{lost}; "
        f"a rollout takes {audited.seconds:.3g} s and costs {money(audited.cost)}; "
        f"the budget is good for {audited.rollouts} of them",
        soft_wrap=True,
    )
    if audit.known is not None:
        added = sum(audit.known) / max(1, len(audit.known))
        console.print(f"  the skill that is known to be good adds {added * 100:+.1f} points", soft_wrap=True)
    if not audit.moves:
        console.print(
            f"  scores {'are the same' if not audit.discordance else 'differ by no more than chance'} without the skill"
            f"{': it adds nothing as it is, or ' if audit.known is None else ', and with the good one: '}"
            "it does not reach the model, or the judges do not see what it changes",
            soft_wrap=True,
        )
    console.print(f"  smallest lift that a budget shows: {shown_lifts(audited.table)}", soft_wrap=True)
    if audited.lift is not None and audited.lift > WARNED:
        console.print(f"  this run will hardly show a lift below {audited.lift * 100:.0f} points", soft_wrap=True)


def _nothing_line(drafted: "ProposalMade") -> str:
    """Why nothing was tried, for whoever wonders whether the proposer or the rules for it are to blame."""
    refused = drafted.refused
    why = f"{len(refused)} refused, the first because {refused[0].reason}" if refused else drafted.proposal.reason
    return f"  draft {drafted.number}: no new skill; {why[:300]}"


def _step_line(step: "SearchStep") -> str:
    taken = "leads now" if step.accepted else "fell behind" if step.dropped else "not taken"
    return f"  tried {step.candidate[:8]}: {step.mean:.1%} on training tasks, to beat {step.bar:.1%}: {taken}"


def _held_line(held: "ExamResult") -> str:
    attempt = held.test
    why = "; ".join(attempt.differences_between_arms()) if attempt.verdict == "withheld" else ""
    return (
        f"  attempt {held.exam.number}: {held.candidate[:8]} against {held.exam.incumbent[:8]}: {attempt.verdict} "
        f"after {attempt.decided_at} positions (level {held.level:g}){why and f': {why}'}"
    )


def _compared_line(compared: "RuleComparison") -> str:
    taken = "accepted" if compared.accepted else "not accepted"
    return f"  rule {compared.rule}: {compared.candidate[:8]} against {compared.incumbent[:8]}: {taken}"


def _removal_line(removal: "Removal") -> str:
    found = {
        "certified": f"at most {max(0.0, -removal.exam_result.test.at_least()) * 100:.1f} points lower",
        "futile": "kept: without them the skill is worse",
        "undecided": "kept: the data cannot tell",
        "withheld": "kept: the two versions lost scores unevenly",
    }[str(removal.exam_result.test.verdict)]
    rules = ", ".join(f"'{unit.splitlines()[0][:60]}'" for unit in removal.units)
    return f"  without {rules}: {found}"


def _conclude(console: "Console", outcome: "SharpenResult") -> None:
    from whet.cli.tables import command
    from whet.skills.report.text import PAGE, in_plain_words

    folder = outcome.folder
    console.print(f"\n{in_plain_words(outcome)}", soft_wrap=True)
    console.print(f"\n{'certified skill' if outcome.certified else 'skill as it was'}: {folder / 'best'}")
    if outcome.leader.digest != outcome.best.digest:
        console.print(f"best that was found, not proved: {folder / 'leader'}")
    if outcome.accepted is not None:
        console.print(f"accepted by the rule '{outcome.done.plan.gate}', not proved: {folder / 'accepted'}")
    if outcome.shortened is not None:
        console.print(f"shorter version of the certified skill: {folder / 'shortened'}")
    console.print(f"report: {folder / PAGE}")
    check = [] if outcome.accepted else [command("certify", "--check", str(folder / "certificate.json"))]
    lines = [*check, command("show", str(folder / "search"))]
    console.print("\nnext:\n" + "\n".join(f"  {line}" for line in lines), soft_wrap=True)
