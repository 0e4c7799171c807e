"""`whet certify`: whether one skill is better than another, and whether a certificate holds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from whet.skills.certificates.certificate import Certificate


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
    seed: Annotated[
        int | None, typer.Option(help="Reproduce an order of tasks; by default it is drawn by chance.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(help="Rollouts at once.", min=1)] = None,
    sandbox: Annotated[str | None, typer.Option(help="bubblewrap (default), or local (no isolation).")] = None,
    judge_model: Annotated[str | None, typer.Option(help="Model that judges ask, where a task names none.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; by default a new one under runs/.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out; nothing is paid for twice.")
    ] = False,
    check: Annotated[
        Path | None, typer.Option(help="Only check this run folder or certificate, and print what was checked.")
    ] = None,
    sign: Annotated[
        Path | None, typer.Option(help="SSH key to sign the certificate with; with --check, if it holds.")
    ] = None,
    allowed_signers: Annotated[
        Path | None, typer.Option(help="With --check: file of SSH keys, one of which must have signed.")
    ] = None,
) -> None:
    """Hold one skill against another, task by task, and stop as soon as the answer is clear."""
    from whet.cli.asking import asked, counted, resumable
    from whet.cli.certify_check import check_certificate
    from whet.cli.tables import terminal
    from whet.errors import UserError
    from whet.event_loop import run_coroutine
    from whet.skills.certificates.certificate import CERTIFICATE
    from whet.skills.certificates.checks.signature import sign as sign_certificate
    from whet.skills.gate.plan import GatePlan
    from whet.skills.gate.seed import Seed
    from whet.skills.rollouts.budget import read_budget
    from whet.skills.sharpen.certify import CertifyRequest
    from whet.skills.sharpen.certify import certify as run_certify

    if check is not None:
        check_certificate(check, allowed_signers, sign)
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
    wish = CertifyRequest(old, new, request, within, GatePlan(within.rollouts or 0, seed or 0, alpha), seed)
    with resumable(request.out), counted(terminal(), within) as count:

        def watch(event: object) -> None:
            if isinstance(event, Seed):
                typer.echo(
                    f"order of tasks: seed {'drawn' if event.drawn else 'chosen'}, committed as {event.commitment}"
                )
            count(event)

        certificate = run_coroutine(run_certify(wish, config, watch))
    _tell(certificate, request.out)
    if sign is not None:
        typer.echo(f"signed: {sign_certificate(request.out / CERTIFICATE, sign)}")


def _tell(certificate: "Certificate", folder: Path) -> None:
    from whet.skills.certificates.certificate import CERTIFICATE
    from whet.skills.certificates.text import format_models, format_verdict

    (record,) = certificate.records
    found = record.findings
    lift = f"lift between {found.at_least * 100:+.1f} and {found.at_most * 100:+.1f} points"
    measured = f"{len(record.positions)} positions, {found.coverage:.0%} of them measured"
    typer.echo(f"{format_verdict(record, len(certificate.tasks))} ({lift}; {measured})")
    if told := format_models(record.reported):
        typer.echo(told)
    typer.echo(f"{certificate.used}")
    typer.echo(str(folder / CERTIFICATE))
