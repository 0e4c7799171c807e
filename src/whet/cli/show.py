"""`whet show`: a run's rollouts, or one rollout with its steps, judgements and logs."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.formats import Format, FormatOption, to_csv, to_json, to_markdown

if TYPE_CHECKING:
    from rich.text import Text

    from whet.cli.tables import Terminal, TextTable
    from whet.rollout.result import Result
    from whet.runs.results import AttemptRecord, RolloutRecord
    from whet.runs.stats.summary import Tally
    from whet.runs.store.store import Store
    from whet.trace.steps.summary import Summary

TRANSCRIPT = "transcript "
"""How the names of logs begin that an agent's own record consists of."""
FILE = "file "
NOT_SHOWN = (TRANSCRIPT, FILE, "judge call ", "result ", "given ")
"""How the names of logs begin that are only written to files."""
SECTION_LIMIT = 1200
"""Characters of one log or judgement that are shown."""
STEPS_LIMIT = 8000
"""Characters of all steps together."""


def show(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    rollout: Annotated[
        str | None,
        typer.Argument(help="Rollout: the start of its id, or its task if the task has one rollout."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Show long steps and logs in full.")] = False,
    to: Annotated[int | None, typer.Option(metavar="STEP", help="Show only the steps up to this one.")] = None,
    budget: Annotated[
        int, typer.Option(metavar="CHARACTERS", help="Approximate length of all steps together.", min=1)
    ] = STEPS_LIMIT,
    summaries: Annotated[
        bool, typer.Option("--summaries", help="Show a one-line summary of each rollout's steps.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option(help="New folder to write the rollout's logs and transcripts to.")
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show a run, or one rollout: scores, steps, verification, logs."""
    from whet.cli.show_sharpen import show_sharpen
    from whet.cli.tables import terminal
    from whet.errors import UserError
    from whet.runs.results import ResultReader
    from whet.runs.store.lock import is_being_written
    from whet.runs.store.store import Store
    from whet.skills.run_folders import RunKind, kind_of

    if rollout is None and (save is not None or to is not None):
        needs = "--save FOLDER" if save is not None else f"--to {to}"
        raise UserError(f"{needs.split()[0]} needs a rollout: whet show RUN ROLLOUT {needs}")
    if output is not Format.TABLE:
        typer.echo(_formatted(run, rollout, output), nl=False)
        return
    console = terminal()
    if rollout is None and kind_of(run) in (RunKind.SHARPEN, RunKind.CERTIFY):
        show_sharpen(console, run)
        return
    with Store.open_read(run) as store:
        if rollout is None:
            _show_run(console, store, running=is_being_written(run))
            if summaries:
                _show_summaries(console, store)
            return
        record = ResultReader(store).find(run, rollout)
        if save is not None:
            _save_logs(record, save)
        elif to is not None:
            _show_prefix(console, record, to, None if full else budget)
        else:
            _show_rollout(console, store, record, None if full else SECTION_LIMIT, None if full else budget)


def _formatted(run: Path, rollout: str | None, output: Format) -> str:
    """A run or a rollout for programs and pages."""
    from whet.cli.summary import arms_table, task_table
    from whet.errors import UserError
    from whet.runs.results import ResultReader
    from whet.runs.store.lock import is_being_written
    from whet.runs.store.store import Store
    from whet.runs.stored_run import load, rollout_record

    loaded = load(run)
    if rollout is not None:
        if output is not Format.JSON:
            raise UserError(f"--format {output} is for a run; a rollout is shown as table or json")
        with Store.open_read(run) as store:
            found = loaded[ResultReader(store).find(run, rollout).row.id]
        result = found.result.model_dump(mode="json") if found.result else None
        return to_json({**rollout_record(found, loaded.skills), "result": result}) + "\n"
    if output is Format.CSV:
        return to_csv(loaded.records())
    if output is Format.JSON:
        return to_json(loaded.document(running=is_being_written(run))) + "\n"
    with Store.open_read(run) as store:
        tasks, rollouts = task_table(_named_arms(store)), _rollout_table(store)
    return to_markdown(arms_table(loaded.arms, loaded.skills), *([tasks] if len(loaded.arms) > 1 else []), rollouts)


def _show_run(console: "Terminal", store: "Store", *, running: bool) -> None:
    from whet.cli.summary import summary_table, task_matrix
    from whet.runs.scheduler import STOPPED, STOPPED_ARMS
    from whet.runs.stats.summary import skill_names, tally
    from whet.runs.stats.words import STILL_RUNNING, describe_stop

    console.say(_rollout_table(store, running=running))
    if len(arms := _named_arms(store)) > 1:
        console.say("", task_matrix(arms))
    if running:
        console.say("", STILL_RUNNING)
    console.say(summary_table(tally(store), skill_names(store), running=running))
    for line in describe_stop(store.get(STOPPED), store.get(STOPPED_ARMS)):
        console.say("", line)


def _named_arms(store: "Store") -> "dict[str, dict[str, Tally]]":
    """Every arm, task by task, by what tells it from the others."""
    from whet.runs.stats.arms import short_names
    from whet.runs.stats.summary import cells, skill_names

    arms = cells(store)
    names = short_names(arms, skill_names(store))
    return {names[arm]: tasks for arm, tasks in arms.items()}


def _rollout_table(store: "Store", *, running: bool = False) -> "TextTable":
    from whet.cli.tables import Column, TextTable
    from whet.look.numbers import duration, thousands
    from whet.runs.results import ResultReader
    from whet.runs.rollout_words import describe_speakers
    from whet.runs.stats.summary import skill_names

    names = skill_names(store)
    plan = list(ResultReader(store))
    # What is the same in every line is said once, in the summary.
    varying = [key for key in ("agent", "model", "skill", "sample") if len({getattr(one.row, key) for one in plan}) > 1]
    results = {one.row.id: result for one in plan if one.last and (result := one.last.result) is not None}
    speakers = any(describe_speakers(result.spending) for result in results.values())
    table = TextTable(
        [
            *(Column("rollout"), Column("task"), *map(Column, varying), Column("score", right=True)),
            *(Column("calls", 3, right=True), *([Column("speakers", 6)] if speakers else [])),
            *(Column("tokens", 4, right=True), Column("time", 5, right=True), Column("why", 1, gives_way=True)),
        ]
    )
    for one in plan:
        row, result = one.row, results.get(one.row.id)
        shown = {"agent": row.agent, "model": row.model, "skill": names[row.skill], "sample": str(row.sample)}
        spent = result.spending if result else None
        table.add(
            *(row.id, row.task, *(shown[key] for key in varying)),
            _score(one.last, running=running),
            str(spent.calls) if spent else "",
            *([describe_speakers(spent) if spent else ""] if speakers else []),
            thousands(spent.input_tokens + spent.output_tokens) if spent and spent.captured else "",
            duration(sum(result.seconds.values())) if result else "",
            # A full score needs no reason.
            "" if result and result.score.value == 1 and not result.flags else _why(result),
        )
    return table


def _show_summaries(console: "Terminal", store: "Store") -> None:
    from whet.cli.tables import Prose
    from whet.runs.results import ResultReader

    console.say()
    for one in ResultReader(store):
        if one.last is not None:
            console.say(Prose(f"{one.row.id}  {_summary(one.last)}", {r"\A\w+": "bold"}))


def _summary(attempt: "AttemptRecord") -> "Summary":
    from whet.trace.steps.summary import summary

    changed = [change.path for change in attempt.result.changes] if attempt.result else []
    return summary(attempt.steps(), changed)


def _score(last: "AttemptRecord | None", *, running: bool = False) -> "Text":
    from rich.text import Text

    from whet.scoring import Cause

    if last is None:
        return Text("not yet" if running else "not run", style="dim")
    if running and last.row.ended is None:
        return Text("running", style="dim")
    if last.value is not None:
        return Text(f"{last.value:.2f}")
    # A process that was killed leaves its attempt open.
    return Text(f"missing: {last.cause or Cause.INTERRUPTED}", style="red")


def _why(result: "Result | None") -> str:
    if result is None:
        return ""
    flags = " ".join(f"[{flag}]" for flag in result.flags)
    return f"{result.score.reason} {flags}".strip()


def _show_rollout(
    console: "Terminal", store: "Store", rollout: "RolloutRecord", limit: int | None, budget: int | None
) -> None:
    from whet.cli.tables import Prose
    from whet.runs.run import FORK
    from whet.runs.stats.summary import skill_names
    from whet.trace.conversations.graph import build
    from whet.trace.steps.steps import steps
    from whet.trace.steps.summary import summary
    from whet.trace.steps.text import compact
    from whet.trace.training.losses import Losses

    row, attempts = rollout.row, rollout.attempts
    arm = f"agent {row.agent}  model {row.model}  skill {skill_names(store)[row.skill]}"
    console.say(Prose(f"{row.id}  task {row.task}  {arm}  sample {row.sample}", {r"\A\w+": "bold"}))
    if (origin := store.get(FORK)) is not None:
        console.say(f"fork of {origin['run']} {origin['rollout']} at call {origin['at']}")
    if not attempts:
        console.say("not run yet")
    for attempt in attempts[:-1]:
        console.say(f"attempt {attempt.row.number}: missing: {attempt.cause}")
    for attempt in attempts[-1:]:
        result = attempt.result
        console.say(f"attempt {attempt.row.number}: {_score(attempt)}  {_why(result)}".rstrip())
        if result is not None:
            _show_facts(console, result)
        losses = Losses()
        found = steps(build(losses.each(attempt.exchanges())))
        _section(console, "withheld or lost between agent and model", "\n".join(losses.lines()), limit)
        if found:
            changed = [change.path for change in result.changes] if result else []
            _section(console, "steps", str(summary(found, changed)), None)
            _print_steps(console, compact(found, budget))
        if result is not None:
            _show_judgements(console, result, limit)
        logs = attempt.logs()
        for name, data in logs.items():
            if not name.startswith(NOT_SHOWN):
                _section(console, name, data.decode(errors="replace"), limit)
        own = [
            f"{name.removeprefix(TRANSCRIPT)}  {len(data):,} bytes"
            for name, data in logs.items()
            if name.startswith(TRANSCRIPT)
        ]
        _section(console, "transcript of the agent (--save FOLDER writes it)", "\n".join(own), limit)


def _show_facts(console: "Terminal", result: "Result") -> None:
    from whet.look.numbers import money
    from whet.runs.rollout_words import (
        describe_calls,
        describe_phases,
        describe_replay,
        describe_skill,
        describe_stop,
        describe_tokens,
        explain_flag,
    )

    spent, report = result.spending, result.report
    usage = [describe_calls(spent)] + ([describe_tokens(spent), money(spent.cost)] if spent.captured else [])
    console.say("  ".join([*usage, *describe_phases(result)]))
    if len(spent.tokens) > 1:
        shares = (f"{name} {given:,} + {made:,}" for name, (given, made) in spent.tokens.items())
        console.say(f"tokens by speaker: {', '.join(shares)}")
    if result.replay is not None:
        console.say(describe_replay(result))
    for flag in result.flags:
        if meaning := explain_flag(flag):
            console.say(f"{flag}: {meaning}")
    if report is not None:
        console.say(describe_stop(report, result.limit))
        if skill := describe_skill(result):
            console.say(skill)
        _section(console, "answer", report.text, None)
        _section(console, "error", report.error or "", None)
    uses = [f"{use.name} {shlex.join(use.argv)}  (exit code {use.exit_code})" for use in result.tool_uses]
    _section(console, "calls of the task's tools", "\n".join(uses), None)
    _section(console, "changes", "\n".join(f"{change.kind} {change.path}" for change in result.changes), SECTION_LIMIT)


def _save_logs(rollout: "RolloutRecord", folder: Path) -> None:
    """Write what the last attempt left, each log a file."""
    from whet.errors import UserError

    if rollout.last is None:
        raise UserError(f"rollout '{rollout.row.id}' has not been run yet")
    if folder.exists():
        raise UserError(f"{folder}: exists already; --save needs a new folder")
    for name, data in rollout.last.logs().items():
        path = folder / name.replace(TRANSCRIPT, "transcript/", 1).replace(FILE, "files/", 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _show_prefix(console: "Terminal", rollout: "RolloutRecord", to: int, budget: int | None) -> None:
    from whet.errors import UserError
    from whet.trace.steps.text import compact

    found = rollout.last.steps() if rollout.last else []
    if not 1 <= to <= len(found):
        raise UserError(f"--to {to}: rollout '{rollout.row.id}' has {len(found)} steps; expected one of them")
    _print_steps(console, compact(found[:to], budget))


def _print_steps(console: "Terminal", text: str) -> None:
    from whet.cli.tables import Prose
    from whet.text.secrets import mask_secrets

    heads, gaps = r"(?m)^ *\d+ (?:call \d+|[a-z-]+[^:\n]{0,60}):", r"\[\.\.\. [\d,]+ \w+ left out \.\.\.\]"
    console.say(Prose(mask_secrets(text), {heads: "bold", gaps: "dim"}))


def _show_judgements(console: "Terminal", result: "Result", limit: int | None) -> None:
    for name, score in result.judgements.items():
        shown = f"{score.value:g}" if score.value is not None else f"missing ({score.cause})"
        _section(console, f"judge {name}: {shown}", score.reason, limit)
        for command in score.details.get("commands", []):
            title = f"$ {command['command']}  (exit code {command['exit_code']}, {command['seconds']} s)"
            _section(console, title, command["output"].strip() or "(no output)", limit)


def _section(console: "Terminal", title: str, text: str, limit: int | None) -> None:
    from rich.text import Text

    from whet.text.secrets import mask_secrets

    if not text.strip():
        return
    text = mask_secrets(text)
    if limit is not None and len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n[... {len(text) - 2 * half} characters left out; --full shows them ...]\n{text[-half:]}"
    console.say(Text(f"\n── {title}", style="bold"))
    console.say(text.rstrip())
