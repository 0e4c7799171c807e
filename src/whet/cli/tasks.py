"""`whet tasks`: prove tasks, and choose among them."""

import json
import textwrap
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.options import Layout, takes
from whet.cli.output import say
from whet.errors import UserError
from whet.runs.options import CheckTasksOptions
from whet.sleep.mining.options import MineOptions

if TYPE_CHECKING:
    from whet.runs.checks.tasks import TaskCheck
    from whet.scoring import Score

app = typer.Typer(help="Make tasks, check them, and select those of the right difficulty.", no_args_is_help=True)


@app.callback()
def _tasks() -> None:
    pass


@app.command("check")
@takes(CheckTasksOptions, Layout(arguments=("tasks",), required=("tasks",)))
def check(
    options: CheckTasksOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per task.")] = False,
) -> None:
    """Check each task: its solution must score 1, and doing nothing must score less."""
    from whet.event_loop import run_coroutine
    from whet.runs.checks.tasks import TaskVerdict
    from whet.runs.checks.tasks import check as prove
    from whet.runs.config import find_config, read_config
    from whet.sandbox import sandbox_named

    tasks, problems = options.read_readable_tasks()
    for problem in problems:
        _print_unreadable(problem, as_json=as_json)

    # Checks end in any order and are printed as they end, so the column is as wide as the longest name.
    width = max((len(task.id) for task in tasks), default=0)

    async def run() -> bool:
        good = not problems
        config = read_config(find_config(Path.cwd()))
        proofs = prove(tasks, sandbox_named(options.sandbox), config=config, judge_model=options.judge_model)
        async with aclosing(proofs) as checks:
            async for found in checks:
                _print_check(found, width, as_json=as_json)
                good = good and found.verdict is not TaskVerdict.BROKEN
        return good

    if not run_coroutine(run()):
        raise typer.Exit(1)


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="Name of the task; for several commits, what their names begin with.")],
    from_commit: Annotated[
        str | None,
        typer.Option(help="Make the task from a commit of this repository, or one from each commit of a range A..B."),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where tasks are.")] = Path("tasks"),
) -> None:
    """Make a task folder to edit, with tests and a solution; or tasks from commits that changed tests."""
    from whet.cli.output import command
    from whet.tasks.skeleton import new_tasks

    made = new_tasks(folder, name, Path.cwd(), from_commit)
    for task in made:
        say(f"made {task}")
    say("Edit instruction.md of each new task: it is all that the agent is given to read. Then:")
    say(command("tasks", "check", str(folder)))


@app.command("mine")
@takes(MineOptions, Layout(arguments=("repository",), required=("repository",)))
def mine(
    options: MineOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Make tasks from the history and the tested code of a Python repository, and keep those that are proved."""
    from whet.cli.formats import to_json
    from whet.cli.mine import print_mined, print_report
    from whet.event_loop import run_coroutine
    from whet.sleep.mining.mine import mine as mine_tasks

    report = run_coroutine(mine_tasks(options, (lambda _: None) if as_json else print_mined))
    if as_json:
        typer.echo(to_json(report.model_dump(mode="json")))
    else:
        print_report(report)
    if not report.proved:
        raise typer.Exit(1)


@app.command("filter")
def filter_(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    out: Annotated[Path, typer.Option(help="New .jsonl file for rows, or new folder with links to task folders.")],
    low: Annotated[float, typer.Option("--min", help="Lowest mean score.", min=0, max=1)] = 0.1,
    high: Annotated[float, typer.Option("--max", help="Highest mean score.", min=0, max=1)] = 0.9,
) -> None:
    """Select the tasks that are neither too easy nor too hard, by their mean score in a run."""
    from whet.cli.output import command
    from whet.look.numbers import plural
    from whet.runs.select_tasks import Band, filter_tasks

    if low > high:
        raise UserError(f"--min {low:g} is above --max {high:g}; expected a band of scores")
    found = filter_tasks(run, Band(low, high), out)
    left_out = f"{found.too_hard} below {low:g}, {found.too_easy} above {high:g}, {found.unscored} without a score"
    say(f"{plural(found.kept, 'task', 'tasks')} within {low:g} to {high:g} ({left_out})")
    if not found.kept:
        raise typer.Exit(1)
    say(command("run", str(out)))


def _print_unreadable(problem: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"task": None, "verdict": "unreadable", "reason": problem}))
    else:
        say(f"unreadable {problem}", hang=11)


def _print_check(found: "TaskCheck", width: int, *, as_json: bool) -> None:
    if as_json:
        typer.echo(_as_json(found))
        return
    say(_as_line(found, width), hang=11)
    for name, text in found.outputs.items():
        typer.echo(f"{'':11}{name}:")
        typer.echo(textwrap.indent(text, " " * 13))


def _as_line(found: "TaskCheck", width: int) -> str:
    scores = f"solution {_score(found.solution)}, nothing {_score(found.nothing)}" if found.solution else ""
    notes = "".join(f"\n{'':11}warning: {warning}" for warning in found.warnings)
    reason = f"  {found.reason}" if found.reason else ""
    return f"{found.verdict:<10} {found.task.id:<{width}}  {scores}{reason}{notes}".rstrip()


def _as_json(found: "TaskCheck") -> str:
    return json.dumps(
        {
            "task": found.task.id,
            "verdict": found.verdict,
            "reason": found.reason,
            "solution": found.solution and found.solution.value,
            "nothing": found.nothing and found.nothing.value,
            "outputs": dict(found.outputs),
            "warnings": found.warnings,
        }
    )


def _score(score: "Score | None") -> str:
    if score is None:
        return "-"
    return f"{score.value:g}" if score.value is not None else f"missing ({score.cause})"
