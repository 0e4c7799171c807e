"""`whet run`: agents on tasks."""

import sys
from enum import Enum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from whet.runs.options import RunOptions


class Capture(StrEnum):
    ON = "on"
    OFF = "off"


class Home(Enum):
    FRESH = "fresh"
    OWN = "own"


def run(
    tasks: Annotated[Path, typer.Argument(help="Task folder, .jsonl or .parquet file, or a folder of these.")],
    agent: Annotated[
        list[str] | None, typer.Option(help="Agent, or several: a,b. 'command:ARGV' runs any program.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Model of whet.toml, or several: a,b. 'local/NAME' serves one here.")
    ] = None,
    skill: Annotated[
        list[str] | None, typer.Option(help="Skill folder, or several: a,b. 'none' is an arm without one.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Rollouts of each task.", min=1)] = None,
    concurrency: Annotated[int | None, typer.Option(help="Rollouts at once.", min=1)] = None,
    sandbox: Annotated[str | None, typer.Option(help="bubblewrap (default), or local (no isolation).")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; by default a new one under runs/.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out; what is done is not repeated.")
    ] = False,
    cache: Annotated[
        str, typer.Option(help="Use of recorded replies: off, read, write (read and add), or replay-only (no network).")
    ] = "off",
    capture: Annotated[
        Capture, typer.Option(help="off: agents call the model that they are logged in to, and no call is recorded.")
    ] = Capture.ON,
    home: Annotated[
        Home | None, typer.Option(help="own: agents start with a copy of your settings; by default with none.")
    ] = None,
    judge_model: Annotated[
        str | None, typer.Option(help="Model that judges ask, where a task names none; not the one under test.")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(help="Dollars that the run may cost; then it stops, to be resumed.", min=0)
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Tokens, read and written, that the run may use.", min=1)
    ] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Minutes that the run may take.", min=0)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")] = False,
) -> None:
    """Run agents on tasks, record every model call and score the work."""
    from whet.api import requested
    from whet.cli.loop import run_async
    from whet.cli.progress import watcher
    from whet.gateway import Limits
    from whet.runs.config import find_config, read_config
    from whet.runs.run import run as run_request

    config = read_config(find_config(Path.cwd()))
    request = requested(
        tasks,
        config,
        agents=names("agent", agent),
        models=names("model", model),
        skills=[None if name == "none" else Path(name) for name in names("skill", skill) or ["none"]],
        samples=samples,
        concurrency=concurrency,
        sandbox=sandbox,
        out=out,
        resume=resume,
        cache=cache,
        capture=capture is Capture.ON,
        home=home.value if home else None,
        judge_model=judge_model,
        limits=Limits(cost=max_cost, total_tokens=max_tokens, wall_sec=max_minutes and max_minutes * 60),
    )
    warn_of_sandbox(request)
    with watcher(as_json=as_json, resume=resume_command(sys.argv[1:], request.out)) as watch:
        try:
            run_async(run_request(request, config, watch.on))
        except KeyboardInterrupt:
            watch.stopped()
            raise


def names(option: str, given: list[str] | None) -> list[str]:
    """Names as one gives them: several options, or several names with commas between them."""
    from whet.errors import UserError

    # A command line may hold commas of its own.
    values = given or ()
    names = [name for value in values for name in ([value] if value.startswith("command:") else value.split(","))]
    if not all(name.strip() for name in names):
        raise UserError(f"--{option} is '{','.join(values)}'; expected a name, or several with commas between them")
    return list(dict.fromkeys(name.strip() for name in names))


def warn_of_sandbox(request: "RunOptions") -> None:
    """Say loudly that nothing is isolated, if it is so."""
    if request.sandbox == "local":
        typer.echo("sandbox 'local' isolates nothing: agents run as you, with your files and network", err=True)


def resume_command(words: list[str], out: Path) -> str:
    """The command that continues what was begun with these words."""
    from whet.cli.tables import command

    if not any(word == "--out" or word.startswith("--out=") for word in words):
        words = [*words, "--out", str(out)]
    return command(*words, *([] if "--resume" in words else ["--resume"]))
