"""`whet rejudge`: judge a stored run again."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from whet.runs.rejudge import Judged
    from whet.scoring import Score


def rejudge(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    judge: Annotated[
        Path | None, typer.Option(help="TOML or JSON file with [[judge]] and [[rank]]; by default the tasks' judges.")
    ] = None,
    tasks: Annotated[Path | None, typer.Option(help="Where the tasks are now; by default where they were.")] = None,
    judge_model: Annotated[str | None, typer.Option(help="Model that judges ask, where none is named.")] = None,
    cache: Annotated[
        str, typer.Option(help="Use of recorded replies: off, read, write (read and add), or replay-only (no network).")
    ] = "off",
    max_cost: Annotated[float | None, typer.Option(help="Dollars that the judges may cost.", min=0)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per rollout.")] = False,
) -> None:
    """Judge a stored run again, without running agents. What was said before is kept."""
    from whet.event_loop import run_coroutine
    from whet.gateway import Limits
    from whet.runs.config import find_config, read_config
    from whet.runs.rejudge import Rejudge
    from whet.runs.rejudge import rejudge as judge_again

    request = Rejudge(run, judge, tasks, judge_model, cache, Limits(cost=max_cost))
    seen: list[Judged] = []

    def watch(judged: "Judged") -> None:
        seen.append(judged)
        typer.echo(_as_json(judged) if as_json else _as_line(judged))

    run_coroutine(judge_again(request, read_config(find_config(Path.cwd())), watch))
    if not as_json:
        typer.echo(_summary(seen))


def _as_line(judged: "Judged") -> str:
    where = f"{judged.row.id}  {judged.row.task}"
    if judged.skipped:
        return f"{where}  not judged: {judged.skipped}"
    kept = f"  (kept: {', '.join(judged.kept)})" if judged.kept else ""
    return f"{where}  {_shown(judged.before)} -> {_shown(judged.after)}  {judged.after.reason}{kept}"


def _as_json(judged: "Judged") -> str:
    return json.dumps(
        {
            "rollout": judged.row.id,
            "task": judged.row.task,
            "before": judged.before.value,
            "after": judged.after.value,
            "cause": judged.after.cause,
            "reason": judged.after.reason,
            "kept": judged.kept,
            "skipped": judged.skipped,
        }
    )


def _summary(seen: "list[Judged]") -> str:
    again = [judged for judged in seen if not judged.skipped]
    changed = sum(judged.before.value != judged.after.value for judged in again)
    kept = sorted({name for judged in again for name in judged.kept})
    told = f"{len(again)} judged again, {changed} scores changed, {len(seen) - len(again)} not judged"
    return told + (f"; kept as they were, for they need the box: {', '.join(kept)}" if kept else "")


def _shown(score: "Score") -> str:
    return f"{score.value:.2f}" if score.value is not None else f"missing ({score.cause})"
