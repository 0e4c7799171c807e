"""`whet certify`: whether one skill is better than another, and whether a certificate holds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from whet.skills.certificate import Certificate


def certify(
    old: Annotated[Path | None, typer.Argument(help="Skill that is to be beaten.")] = None,
    new: Annotated[Path | None, typer.Argument(help="Skill that may be better.")] = None,
    tasks: Annotated[
        Path | None, typer.Option(help="Task folder or file; of its tasks those with split 'val', if any has one.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Agent that does the tasks.")] = None,
    model: Annotated[str | None, typer.Option(help="Model that it calls.")] = None,
    budget: Annotated[
        str, typer.Option(help="All that it may use: rollouts (200), '2M tokens', '$5', '3h' or '45min'.")
    ] = "200",
    alpha: Annotated[
        float, typer.Option(help="Chance that a skill is certified that is no better.", min=0.0001, max=0.5)
    ] = 0.05,
    seed: Annotated[int, typer.Option(help="Another seed is another exam.")] = 0,
    concurrency: Annotated[int | None, typer.Option(help="Rollouts at once.", min=1)] = None,
    sandbox: Annotated[str | None, typer.Option(help="bubblewrap (default), or local (no isolation).")] = None,
    judge_model: Annotated[str | None, typer.Option(help="Model that judges ask, where a task names none.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; by default a new one under runs/.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out; nothing is paid for twice.")
    ] = False,
    check: Annotated[
        Path | None, typer.Option(help="Only compute this certificate again, and say what does not hold.")
    ] = None,
) -> None:
    """Hold one skill against another, task by task, and stop as soon as the answer is clear."""
    from whet.cli.asking import asked, counted, resumable
    from whet.cli.loop import run_async
    from whet.cli.tables import terminal
    from whet.errors import UserError
    from whet.skills.budget import read_budget
    from whet.skills.certifying import Certifying
    from whet.skills.certifying import certify as run_certify
    from whet.skills.plan import Plan

    if check is not None:
        _check(check)
        return
    if old is None or new is None or tasks is None:
        raise UserError("expected two skills and --tasks, or --check with a certificate")
    within = read_budget(budget)
    request, config = asked(
        tasks,
        agent=agent,
        model=model,
        concurrency=concurrency,
        sandbox=sandbox,
        judge_model=judge_model,
        out=out,
        resume=resume,
    )
    wish = Certifying(old, new, request, within, Plan(within.rollouts or 0, seed, alpha, attempts=1))
    with resumable(request.out), counted(terminal(), within) as count:
        certificate = run_async(run_certify(wish, config, count))
    _tell(certificate, request.out)


def _tell(certificate: "Certificate", folder: Path) -> None:
    from whet.skills.certificate import CERTIFICATE

    (record,) = certificate.records
    found = record.findings
    lift = f"between {found.at_least * 100:+.1f} and {found.at_most * 100:+.1f} points"
    told = {
        "certified": f"certified: the new skill is better, by at least {found.at_least * 100:.1f} points",
        "futile": f"futile: a lift of {record.terms.worth * 100:.0f} points or more is unlikely",
        "undecided": "undecided: the data cannot tell",
    }[found.verdict]
    typer.echo(f"{told} (lift {lift}; {found.decided_at} positions, {found.coverage:.0%} of them measured)")
    typer.echo(f"{certificate.used}")
    typer.echo(str(folder / CERTIFICATE))


def _check(path: Path) -> None:
    from whet.skills.certificate import problems, read_certificate

    certificate = read_certificate(path)
    wrong = problems(certificate)
    for problem in wrong:
        typer.echo(f"{path}: {problem}", err=True)
    if wrong:
        raise typer.Exit(1)
    records = certificate.all_records
    positions = sum(len(record.positions) for record in records)
    typer.echo(f"{path}: holds: {len(records)} attempts and {positions} positions, computed again")
