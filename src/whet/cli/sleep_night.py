"""The commands of `whet sleep` that run a night: a real one, and a demonstration."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.options import Layout, takes
from whet.cli.output import command, say
from whet.sleep.options import SleepOptions

if TYPE_CHECKING:
    from whet.sleep.night.flow import NightPlan

ENDED_EARLY = 3
"""Exit code of a night that its budget or its window ended."""
FLAGS = {"clis": "--cli", "include": "--repo", "lookback": "--since"}

app = typer.Typer(no_args_is_help=True)


def layout(*shown: str) -> Layout:
    """The options of a command: some of those that whet.toml can have."""
    return Layout(flags=FLAGS, left_out=tuple(name for name in SleepOptions.model_fields if name not in shown))


OF_A_NIGHT = (
    *("clis", "include", "lookback", "all_origins", "targets", "agent", "model", "login", "proposer_model"),
    *("preferences", "budget", "monthly_budget", "min_support"),
)


@app.command("run")
@takes(SleepOptions, layout(*OF_A_NIGHT))
def run(
    options: SleepOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what the night would try and may cost; call no model.")
    ] = False,
    consent: Annotated[
        bool, typer.Option("--consent", help="Agree that the model's endpoint may see files of your repositories.")
    ] = False,
    scheduled: Annotated[
        bool, typer.Option("--scheduled", help="Wait until the machine is idle, within the window.")
    ] = False,
) -> None:
    """Read new sessions, try what you keep correcting as a rule in your memory file, and stage what is proved. A night
    that was killed continues.

    \b
    whet sleep run --model anthropic/claude-sonnet-4-5 --dry-run
    whet sleep run --model anthropic/claude-sonnet-4-5 --budget '60,$5'
    """
    from whet import api
    from whet.cli.sleep_review import status
    from whet.sleep.night.consent import NoConsentError
    from whet.sleep.report import Outcome
    from whet.sleep.schedule import HeldError

    if dry_run:
        _print_plan(api.plan_night(options, scheduled=scheduled))
        return
    try:
        record = api.run_night(options, consent=consent, scheduled=scheduled, watch=say)
    except NoConsentError as missing:
        if scheduled or not sys.stdin.isatty():
            raise
        _ask_for(missing.endpoint)
        record = api.run_night(options, consent=True, watch=say)
    except HeldError as held:
        say(str(held))  # the other night does the work
        return
    status()
    if record.outcome is Outcome.FAILED:
        raise typer.Exit(1)
    if record.outcome in {Outcome.BUDGET, Outcome.NO_TIME}:
        raise typer.Exit(ENDED_EARLY)


def _ask_for(endpoint: str) -> None:
    say(f"The night sends files of your repositories to {endpoint}, as your agents do.")
    if not typer.confirm("Do you agree? You are asked once for each endpoint"):
        raise typer.Exit(1)


def _print_plan(plan: "NightPlan") -> None:
    from whet.look.numbers import plural

    rules = plural(len(plan.rules), "rule", "rules")
    say(f"{plural(plan.sessions, 'session', 'sessions')}; {rules} to try; nothing is run yet")
    for rule in plan.rules:
        say(f"  {rule.repository}: {rule.text} ({plural(len(rule.sessions), 'session', 'sessions')})", hang=4)
    say(f"  {plan.agent} on {plan.model}, at {plan.endpoint or 'this machine'}")
    budgets = ", ".join(map(str, plan.allowance.budgets))
    say(f"  at most {budgets}, whichever ends first")
    say(f"  {plan.use}; all of them: {plan.use.of(plan.allowance.rollouts)}")
    for line in plan.left_out:
        say(f"  left out: {line}", hang=4)


@app.command("demo")
def demo(
    folder: Annotated[Path | None, typer.Option("--folder", help="New folder for it (default: temporary).")] = None,
) -> None:
    """Play a whole night on a made-up home and repository, with a scripted model. It takes about a minute and touches
    nothing of yours."""
    import tempfile

    from whet.event_loop import run_coroutine
    from whet.sleep.demo.night import play_night

    place = folder or Path(tempfile.mkdtemp(prefix="whet-sleep-demo-"))
    world, report = run_coroutine(play_night(place, say))
    say("")
    say(report.rstrip("\n"))
    say(f"\nLook at it with WHET_SLEEP_HOME={world.store}, for example:")
    for shown in (("show", "1"), ("adopt", "1"), ("rollback", "1")):
        say(f"  WHET_SLEEP_HOME={world.store} {command('sleep', *shown)}")
    say(f"The made-up home is {world.home}. Remove all of it with: rm -r {place}")
