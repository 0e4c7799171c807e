"""`whet fork`: a rollout again up to a call, and on from there."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from whet.runs.fork import Fork, Forked


def fork(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    rollout: Annotated[
        str, typer.Argument(help="Rollout, by the beginning of its id, or by its task if it is the only one.")
    ],
    at: Annotated[int, typer.Option(help="The first call to be made anew, as `whet show RUN ROLLOUT` numbers them.")],
    model: Annotated[str | None, typer.Option(help="Model from there on; by default the one of then.")] = None,
    skill: Annotated[
        str | None, typer.Option(help="Skill folder that the agent has, or none; by default none if it had none.")
    ] = None,
    samples: Annotated[int, typer.Option(help="How often to go on from there.", min=1)] = 1,
    concurrency: Annotated[int | None, typer.Option(help="Rollouts at once.", min=1)] = None,
    live_if_diverged: Annotated[
        bool,
        typer.Option(
            "--live-if-diverged",
            help="Where the agent does something else than was recorded, ask the model from there on; "
            "by default there is no score.",
        ),
    ] = False,
    tasks: Annotated[Path | None, typer.Option(help="Where the task is now; by default where it was.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; by default a new one under runs/.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the fork in --out; what is done is not repeated.")
    ] = False,
    judge_model: Annotated[str | None, typer.Option(help="Model that judges ask, where a task names none.")] = None,
    max_cost: Annotated[float | None, typer.Option(help="Dollars that the fork may cost.", min=0)] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens, read and written, that it may use.", min=1)] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Minutes that it may take.", min=0)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")] = False,
) -> None:
    """Do a rollout again with its recorded replies up to a call, then go on with a live model: what if, from there?"""
    from whet.cli.progress import watcher
    from whet.cli.run import resume_command, warn_of_sandbox
    from whet.errors import UserError
    from whet.event_loop import run_coroutine
    from whet.gateway import Limits
    from whet.runs.config import find_config, read_config
    from whet.runs.fork import Fork, plan_fork
    from whet.runs.fork import fork as run_fork
    from whet.runs.options import new_folder
    from whet.runs.run import Event, Started

    if resume and out is None:
        raise UserError("--resume needs --out: the folder of the fork to continue")
    config = read_config(find_config(Path.cwd()))
    request = Fork(
        run=run,
        rollout=rollout,
        at=at,
        out=out or new_folder(),
        model=model,
        skill="none" if skill == "none" else Path(skill) if skill else None,
        tasks=tasks,
        samples=samples,
        concurrency=concurrency or config.defaults.concurrency,
        live_if_diverged=live_if_diverged,
        resume=resume,
        judge_model=judge_model,
        limits=Limits(cost=max_cost, total_tokens=max_tokens, wall_sec=max_minutes and max_minutes * 60),
    )
    forked = plan_fork(request, config)
    warn_of_sandbox(forked.request)
    with watcher(as_json=as_json, resume=resume_command(sys.argv[1:], request.out)) as watch:

        def on(event: Event) -> None:
            if isinstance(event, Started):
                typer.echo(_as_json(forked) if as_json else _intention(request, forked))
            watch.on(event)

        try:
            run_coroutine(run_fork(forked, config, on))
        except KeyboardInterrupt:
            watch.stopped()
            raise
    if not as_json:
        _tell_outcome(forked)


def _intention(request: "Fork", forked: "Forked") -> str:
    about, (model,) = forked.origin.about, forked.request.models
    replayed = Counter(one.speaker.label if one.speaker else "main" for one in forked.origin.prefix.replayed)
    who = ", ".join(f"{label} {number}" for label, number in replayed.items()) or "none"
    return (
        f"fork of {request.run} {about['rollout']} at call {request.at}: replays its calls before that ({who}) for $0, "
        f"then asks model {model}"
    )


def _as_json(forked: "Forked") -> str:
    replayed = len(forked.origin.prefix.replayed)
    return json.dumps({"event": "fork", **forked.origin.about, "replays": replayed, "score": forked.score})


def _tell_outcome(forked: "Forked") -> None:
    from whet.cli.tables import replay_told
    from whet.runs.results import ResultReader
    from whet.runs.store.store import Store

    with Store.open_read(forked.request.out) as store:
        results = [(one.row, one.last.result) for one in ResultReader(store) if one.last]
    typer.echo("")
    for row, result in results:
        if result is None:
            continue
        scores = f"{_shown(forked.score)} -> {_shown(result.score.value)}"
        told = replay_told(result) if result.replay else result.score.reason
        typer.echo(f"{row.id}  score {scores}  {told}")


def _shown(score: float | None) -> str:
    return "missing" if score is None else f"{score:.2f}"
