"""`whet fork`: a rollout again up to a call, and on from there."""

import json
import sys
from collections import Counter
from typing import TYPE_CHECKING

import typer

from whet.cli.options import Json, Layout, takes
from whet.cli.output import say
from whet.runs.options import ForkOptions

if TYPE_CHECKING:
    from whet.runs.fork import Forked


LAYOUT = Layout(
    arguments=("run", "rollout"),
    left_out=("sandbox", "task", "split", "limit"),
    help={"tasks": "Where the task is now (default: where it was)."},
)


@takes(ForkOptions, LAYOUT)
def fork(options: ForkOptions, as_json: Json = False) -> None:
    """Repeat a rollout with its recorded replies up to a call, then continue with a live model."""
    from whet.cli.progress import watcher
    from whet.cli.run import resume_command, warn_of_sandbox
    from whet.event_loop import run_coroutine
    from whet.runs.config import project_config
    from whet.runs.fork import fork as run_fork
    from whet.runs.fork import plan_fork
    from whet.runs.run import Event, Started

    config = project_config()
    options = options.complete(config)
    forked = plan_fork(options, config)
    warn_of_sandbox(forked.request)
    with watcher(as_json=as_json, resume=resume_command(sys.argv[1:], options.out)) as watch:

        def on(event: Event) -> None:
            if isinstance(event, Started):
                (typer.echo if as_json else say)(_as_json(forked) if as_json else _intention(options, forked))
            watch.on(event)

        run_coroutine(run_fork(forked, config, on))
    if not as_json:
        _print_outcome(forked)


def _intention(options: ForkOptions, forked: "Forked") -> str:
    about, (model,) = forked.origin.about, forked.request.models
    replayed = Counter(one.speaker.label if one.speaker else "main" for one in forked.origin.prefix.calls_to_replay)
    who = ", ".join(f"{label} {number}" for label, number in replayed.items()) or "none"
    return (
        f"fork of {options.run} {about['rollout']} at call {options.at}: replays its calls before that ({who}) for $0, "
        f"then asks model {model}"
    )


def _as_json(forked: "Forked") -> str:
    replayed = len(forked.origin.prefix.calls_to_replay)
    return json.dumps({"event": "fork", **forked.origin.about, "replays": replayed, "score": forked.score})


def _print_outcome(forked: "Forked") -> None:
    from whet.runs.results import ResultReader
    from whet.runs.rollout_words import describe_replay
    from whet.runs.store.store import Store

    with Store.open_read(forked.request.out) as store:
        results = [(one.row, one.last.result) for one in ResultReader(store) if one.last]
    say("")
    for row, result in results:
        if result is None:
            continue
        scores = f"{_format_score(forked.score)} -> {_format_score(result.score.value)}"
        line = describe_replay(result) if result.replay else result.score.reason
        say(f"{row.id}  score {scores}  {line}", hang=4)


def _format_score(score: float | None) -> str:
    return "missing" if score is None else f"{score:.2f}"
