"""`whet run`: run agents on tasks."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from whet.cli.options import Json, Layout, Yes, takes
from whet.cli.output import say
from whet.cli.view import WatchInBrowser, view_beside
from whet.runs.options import RolloutOptions, RunOptions

if TYPE_CHECKING:
    from whet.cli.progress import JsonLines, ProgressDisplay
    from whet.runs.config import Config
    from whet.runs.run import Event
    from whet.runs.stats.summary import Tally

T = TypeVar("T", bound=RolloutOptions)
LAYOUT = Layout(
    arguments=("tasks",),
    required=("tasks",),
    flags={"agents": "--agent", "models": "--model", "skills": "--skill"},
    help={"record": "Agents call the model that they are logged in to; no call is recorded."},
)


BELOW = 1
"""Exit code of a run whose mean is below --fail-under."""
FailUnder = Annotated[
    float | None,
    typer.Option(help="Exit with code 1 if an arm's mean score is below this.", min=0, max=1),
]


@takes(RunOptions, LAYOUT)
def run(
    options: RunOptions,
    as_json: Json = False,
    fail_under: FailUnder = None,
    yes: Yes = False,
    in_browser: WatchInBrowser = False,
) -> None:
    """Run agents on tasks, record every model call and score the work.

    \b
    whet run tasks --agent claude-code --model anthropic/claude-sonnet-4-5
    whet run tasks --agent loop,codex --model openai/gpt-5 --skill none,skills/x
    whet run tasks --task 'fix-*' --samples 3 --out runs/a --resume
    """
    from whet import api
    from whet.cli.progress import watcher
    from whet.runs.stats.use import PILOT

    options, config = complete_options(options)
    options = options if as_json else options.fill({"pilot": PILOT})
    with view_beside(options.out, wanted=in_browser):
        with watcher(as_json=as_json, resume=resume_command(sys.argv[1:], options.out)) as watch:
            done = api.run(options=options, config=config, watch=lambda event: on_event(event, watch, options, yes=yes))
        refuse_unscored(done.folder)
        if fail_under is not None and (low := describe_low_arms(done.folder, fail_under)):
            for line in low:
                say(f"whet: {line}", err=True)
            raise typer.Exit(BELOW)


def on_event(event: "Event", watch: "ProgressDisplay | JsonLines", options: RunOptions, *, yes: bool) -> None:
    """Pass an event on to what shows the run. After the pilot, say what the run will cost, and ask."""
    from whet.cli.asking import report_pilot
    from whet.cli.progress import JsonLines
    from whet.cli.tables import terminal
    from whet.runs.stats.use import Piloted

    if not isinstance(event, Piloted) or isinstance(watch, JsonLines):
        watch.on(event)
        return
    if watch.live is not None:
        watch.live.stop()
    report_pilot(terminal(), event, options.out, yes=yes)
    if watch.live is not None:
        watch.live.start()


def complete_options(options: T) -> "tuple[T, Config]":
    """The options with the defaults of whet.toml, and its content. Warns if nothing is isolated."""
    from whet.runs.config import project_config

    config = project_config()
    options = options.complete(config)
    warn_of_sandbox(options)
    return options, config


def refuse_unscored(folder: Path) -> None:
    """UserError when no rollout of a run has a score."""
    from whet.errors import UserError
    from whet.runs.stats.summary import tally, total
    from whet.runs.store.store import Store

    with Store.open_read(folder) as store:
        whole = total(tally(store).values())
    if not whole.measured:
        counts = ", ".join(f"{cause} {count}" for cause, count in sorted(whole.missing.items()))
        raise UserError(f"nothing was scored{counts and f'; missing: {counts}'}")


def describe_low_arms(folder: Path, least: float) -> list[str]:
    """A line for each arm of a run whose mean does not reach `least`."""
    from whet.runs.stats.summary import skill_names, tally
    from whet.runs.store.store import Store

    with Store.open_read(folder) as store:
        arms, names = tally(store), skill_names(store)
    return [
        f"--fail-under {least:g} is not reached: {agent}, {model}, skill {names[skill]}: {_describe_mean(arm)}"
        for (agent, model, skill), arm in arms.items()
        if not arm.reaches(least)
    ]


def _describe_mean(arm: "Tally") -> str:
    mean, bounds = arm.mean(), arm.bounds()
    parts = [f"mean {mean.mean:.3f}" if mean else "no score"]
    parts += [f"{bounds[0]:.3f} if missing scores were 0"] if bounds else []
    parts += [f"{arm.not_run} rollouts were not run"] if arm.not_run else []
    return ", ".join(parts)


def warn_of_sandbox(options: RolloutOptions) -> None:
    if options.sandbox == "local":
        say("sandbox 'local' isolates nothing: agents run as you, with your files and network", err=True)


def resume_command(words: list[str], out: Path) -> str:
    """The command that continues what was begun with these words."""
    from whet.cli.output import command

    if "--retry" in words:
        # What is still to be run again is known to the run; a second --retry would choose anew.
        place = words.index("--retry")
        words = words[:place] + words[place + 2 :]
    words = [word for word in words if not word.startswith("--retry=")]
    if not any(word == "--out" or word.startswith("--out=") for word in words):
        words = [*words, "--out", str(out)]
    return command(*words, *([] if "--resume" in words else ["--resume"]))
