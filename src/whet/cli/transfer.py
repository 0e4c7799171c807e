"""`whet transfer`: whether a skill helps other agents and models too."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from whet.skills.sharpen.transfer import Lifts


def transfer(
    skill: Annotated[Path, typer.Argument(help="Skill folder, or a Markdown file that agents always read.")],
    tasks: Annotated[
        Path, typer.Option(help="Task folder or file; of its tasks those with split 'test', if any has one.")
    ],
    agents: Annotated[list[str] | None, typer.Option(help="Agents: a,b.")] = None,
    models: Annotated[list[str] | None, typer.Option(help="Models: x,y.")] = None,
    against: Annotated[Path | None, typer.Option(help="Older skill to hold it against; by default none.")] = None,
    samples: Annotated[int | None, typer.Option(help="Rollouts of each task.", min=1)] = None,
    concurrency: Annotated[int | None, typer.Option(help="Rollouts at once.", min=1)] = None,
    sandbox: Annotated[str | None, typer.Option(help="bubblewrap (default), or local (no isolation).")] = None,
    judge_model: Annotated[str | None, typer.Option(help="Model that judges ask, where a task names none.")] = None,
    max_cost: Annotated[float | None, typer.Option(help="Dollars that the run may cost; then it stops.", min=0)] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; by default a new one under runs/.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out; what is done is not repeated.")
    ] = False,
) -> None:
    """Run every agent on every model with a skill and without it, and say where it helps."""
    from whet.api import requested
    from whet.cli.options import split_names
    from whet.cli.progress import watcher
    from whet.cli.run import resume_command, warn_of_sandbox
    from whet.cli.tables import terminal
    from whet.event_loop import run_coroutine
    from whet.gateway import Limits
    from whet.runs.config import find_config, read_config
    from whet.skills.sharpen.transfer import READABLE, assurances, doubts
    from whet.skills.sharpen.transfer import transfer as run_transfer

    config = read_config(find_config(Path.cwd()))
    request = requested(
        tasks,
        config,
        agents=split_names("--agents", agents or ()),
        models=split_names("--models", models or ()),
        samples=samples,
        concurrency=concurrency,
        sandbox=sandbox,
        out=out,
        resume=resume,
        judge_model=judge_model,
        limits=Limits(cost=max_cost),
    )
    warn_of_sandbox(request)
    with watcher(as_json=False, resume=resume_command(sys.argv[1:], request.out)) as watch:
        try:
            lifts = run_coroutine(run_transfer(skill, against, request, config, watch.on))
        except KeyboardInterrupt:
            watch.stopped()
            raise
    console = terminal()
    console.print(
        f"\nwhat {lifts.skill.name} does, against {lifts.against.digest[:8] if lifts.against else 'no skill'}:"
    )
    console.print(_table(lifts))
    for line in (*assurances(lifts), *doubts(lifts)):
        console.print(f"  {line}", soft_wrap=True)
    console.print(str(request.out / READABLE), soft_wrap=True)


def _table(lifts: "Lifts") -> "Table":
    from rich.text import Text

    from whet.cli.tables import plain_table
    from whet.skills.sharpen.transfer import SAID, cell, missing, paired

    table = plain_table(
        "agent", "model", "the skill", "lift, points [95 % together]", "better/alike/worse", "tasks", "missing"
    )
    for (agent, model), one in lifts.lifts.items():
        counts = f"{one.wins}/{one.ties}/{one.losses}"
        facts = (SAID[one.verdict], cell(one), counts, str(paired(one)), missing(one))
        table.add_row(Text(agent), Text(model), *map(Text, facts))
    return table
