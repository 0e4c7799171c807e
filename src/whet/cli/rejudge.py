"""`whet rejudge`: judge a stored run again."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.options import Layout, takes
from whet.cli.output import say
from whet.runs.options import RejudgeOptions

if TYPE_CHECKING:
    from whet.runs.rejudge import Judged
    from whet.scoring import Score


LAYOUT = Layout(arguments=("run",), left_out=("sandbox",), limits=("max_cost",))


@takes(RejudgeOptions, LAYOUT)
def rejudge(
    options: RejudgeOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per rollout.")] = False,
) -> None:
    """Judge a stored run again, without running agents. The earlier judgements are kept."""
    from whet.event_loop import run_coroutine
    from whet.runs.config import project_config
    from whet.runs.rejudge import rejudge as judge_again

    seen: list[Judged] = []

    def watch(judged: "Judged") -> None:
        seen.append(judged)
        if as_json:
            typer.echo(_as_json(judged))
        else:
            say(_as_line(judged), hang=4)

    run_coroutine(judge_again(options, project_config(), watch))
    if not as_json:
        say(_summary(seen))


def _as_line(judged: "Judged") -> str:
    where = f"{judged.row.id}  {judged.row.task}"
    if judged.skipped:
        return f"{where}  not judged: {judged.skipped}"
    kept = f"  (kept: {', '.join(judged.kept)})" if judged.kept else ""
    return f"{where}  {_format_score(judged.before)} -> {_format_score(judged.after)}  {judged.after.reason}{kept}"


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
            "rerun": judged.rerun,
            "skipped": judged.skipped,
        }
    )


def _summary(seen: "list[Judged]") -> str:
    again = [judged for judged in seen if not judged.skipped]
    changed = sum(judged.before.value != judged.after.value for judged in again)
    kept = sorted({name for judged in again for name in judged.kept})
    counts = f"{len(again)} judged again, {changed} scores changed, {len(seen) - len(again)} not judged"
    rerun = sum(judged.rerun for judged in seen)
    counts += f"; {rerun} to run again, because their tests have changed: whet run ... --resume" if rerun else ""
    return counts + (f"; not judged again, because they need the sandbox: {', '.join(kept)}" if kept else "")


def _format_score(score: "Score") -> str:
    return f"{score.value:.2f}" if score.value is not None else f"missing ({score.cause})"
