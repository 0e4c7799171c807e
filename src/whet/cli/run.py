"""`whet run`: run agents on tasks."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from whet.cli.options import Json, Layout, takes
from whet.cli.output import say
from whet.runs.options import RolloutOptions, RunOptions

if TYPE_CHECKING:
    from whet.runs.config import Config

T = TypeVar("T", bound=RolloutOptions)
LAYOUT = Layout(
    arguments=("tasks",),
    required=("tasks",),
    flags={"agents": "--agent", "models": "--model", "skills": "--skill"},
    help={"record": "Agents call the model that they are logged in to; no call is recorded."},
)


@takes(RunOptions, LAYOUT)
def run(options: RunOptions, as_json: Json = False) -> None:
    """Run agents on tasks, record every model call and score the work."""
    from whet import api
    from whet.cli.progress import watcher

    options, config = complete_options(options)
    with watcher(as_json=as_json, resume=resume_command(sys.argv[1:], options.out)) as watch:
        api.run(options=options, config=config, watch=watch.on)


def complete_options(options: T) -> "tuple[T, Config]":
    """The options with the defaults of whet.toml, and its content. Warns if nothing is isolated."""
    from whet.runs.config import project_config

    config = project_config()
    options = options.complete(config)
    warn_of_sandbox(options)
    return options, config


def warn_of_sandbox(options: RolloutOptions) -> None:
    if options.sandbox == "local":
        say("sandbox 'local' isolates nothing: agents run as you, with your files and network", err=True)


def resume_command(words: list[str], out: Path) -> str:
    """The command that continues what was begun with these words."""
    from whet.cli.output import command

    if not any(word == "--out" or word.startswith("--out=") for word in words):
        words = [*words, "--out", str(out)]
    return command(*words, *([] if "--resume" in words else ["--resume"]))
