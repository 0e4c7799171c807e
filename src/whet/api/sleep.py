"""Learning from a developer's own sessions and repositories."""

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from whet.api.arguments import (
    merge_options,
)
from whet.event_loop import run_coroutine
from whet.runs.config import Config, project_config
from whet.sleep.harvest import HarvestReport
from whet.sleep.harvest import harvest as harvest_sessions
from whet.sleep.mining.mine import Mined, MineReport
from whet.sleep.mining.mine import mine as mine_from_repository
from whet.sleep.mining.options import MineOptions
from whet.sleep.mining.sessions.mine import SessionsReport, mine_repositories
from whet.sleep.night.flow import NightPlan, Setting, agree
from whet.sleep.night.flow import plan_night as find_night_plan
from whet.sleep.night.flow import run_night as sleep_until_morning
from whet.sleep.options import SleepOptions, SleepScheduleOptions
from whet.sleep.report import NightRecord
from whet.sleep.repository_settings import refuse_wrong_table
from whet.sleep.review.adopt import Adopted as AdoptedProposal
from whet.sleep.review.adopt import adopt_proposal as adopt_staged
from whet.sleep.review.adopt import roll_back
from whet.sleep.schedule import hold_lock
from whet.sleep.schedule.host import Host
from whet.sleep.schedule.schedule import Checked, night_command
from whet.sleep.schedule.schedule import check as try_schedule
from whet.sleep.schedule.schedule import install as install_schedule
from whet.sleep.schedule.schedule import remove as remove_schedule
from whet.sleep.staging import Proposal as StagedProposal
from whet.sleep.staging import drop_backups, list_proposals, reject
from whet.sleep.store import Forgotten, SleepStore, sleep_folder


def harvest(
    options: SleepOptions | None = None, watch: Callable[[int, int], None] = lambda _files, _bytes: None
) -> HarvestReport:
    """Read, mask and keep the sessions that coding agents left in the home folder. No model is called.

    >>> harvest(SleepOptions(clis=("codex",))).read  # doctest: +SKIP
    12
    """
    chosen = _complete(options)
    now = datetime.now().astimezone()
    with SleepStore(sleep_folder(os.environ)) as store, hold_lock(store, now):
        return harvest_sessions(chosen, store, now, home=Path.home(), env=os.environ, watch=watch)


def forget(what: str) -> Forgotten:
    """Delete a session, or all sessions of a repository, and everything that was derived from them.

    >>> forget("~/projects/shop").sessions  # doctest: +SKIP
    12
    """
    with SleepStore(sleep_folder(os.environ)) as store, hold_lock(store, datetime.now().astimezone()):
        forgotten = store.forget(what)
        drop_backups(store)
        return forgotten


def mine_sessions(
    options: SleepOptions | None = None, watch: Callable[[str], None] = lambda _: None
) -> list[SessionsReport]:
    """Make rules and proved tasks of the sessions that were harvested, by repository. No model is called.

    `watch` gets the name of each session before it is tried.

    >>> [task.id for report in mine_sessions() for task in report.tasks]  # doctest: +SKIP
    ['session-0b2f6c1d9e']
    """
    chosen = _complete(options)
    now = datetime.now().astimezone()
    with SleepStore(sleep_folder(os.environ)) as store, hold_lock(store, now):
        return run_coroutine(mine_repositories(chosen, store, now, os.environ, Path.home(), watch))


def plan_night(
    options: SleepOptions | None = None, *, config: Config | None = None, scheduled: bool = False
) -> NightPlan:
    """Read new sessions, and find out what a night would try and what that may cost. No model is called.

    >>> plan_night(SleepOptions(model="anthropic/claude-sonnet-4-5")).rules  # doctest: +SKIP
    """
    with SleepStore(sleep_folder(os.environ)) as store:
        return run_coroutine(find_night_plan(_night_setting(options, config, scheduled=scheduled), store))


def run_night(
    options: SleepOptions | None = None,
    *,
    config: Config | None = None,
    consent: bool = False,
    scheduled: bool = False,
    watch: Callable[[str], None] = lambda _: None,
) -> NightRecord:
    """Run a night, or continue one that was killed: read sessions, try what was corrected again and again as a rule in
    the memory file, and stage what is proved.

    `consent` records that the endpoint of the model may see files of the repositories. A `scheduled` night waits until
    the machine is idle, within its window.

    >>> run_night(SleepOptions(model="anthropic/claude-sonnet-4-5"), consent=True).outcome  # doctest: +SKIP
    <Outcome.PROPOSED: 'proposed'>
    """
    with SleepStore(sleep_folder(os.environ)) as store:
        setting = _night_setting(options, config, watch, scheduled=scheduled)
        if consent:
            agree(setting, store)
        return run_coroutine(sleep_until_morning(setting, store, scheduled=scheduled))


def _night_setting(
    options: SleepOptions | None,
    config: Config | None,
    watch: Callable[[str], None] = lambda _: None,
    *,
    scheduled: bool,
) -> Setting:
    chosen = _complete(options, scheduled=scheduled)
    return Setting(chosen, config or project_config(), Path.home(), os.environ, watch)


def _complete(options: SleepOptions | None, *, scheduled: bool = False) -> SleepOptions:
    """The options with the user's own settings. A wrong whet.toml here is an error: a person is there to read it."""
    refuse_wrong_table(Path.cwd(), scheduled=scheduled)
    return (options or SleepOptions()).complete(os.environ)


def proposals() -> list[StagedProposal]:
    """Everything that nights proposed, the oldest first, with what became of it.

    >>> [one.edit for one in proposals() if one.state == "staged"]  # doctest: +SKIP
    ['Run make test; there is no npm here.']
    """
    with SleepStore(sleep_folder(os.environ)) as store:
        return list_proposals(store)


def adopt_proposal(
    proposal: str, target: Sequence[str] = (), *, commit: bool = False, force: bool = False
) -> AdoptedProposal:
    """Write a proposal of a night into its files, or into those that are named, all or none."""
    with SleepStore(sleep_folder(os.environ)) as store:
        return adopt_staged(store, proposal, target, commit=commit, force=force)


def reject_proposal(proposal: str, because: str) -> StagedProposal:
    """Reject a proposal of a night. Its rule is not proposed again unless new sessions support it."""
    with SleepStore(sleep_folder(os.environ)) as store:
        return reject(store, proposal, because, datetime.now().astimezone())


def roll_back_proposal(proposal: str) -> AdoptedProposal:
    """Restore the files as they were before a proposal was adopted. If one changed since, the reverse is proposed."""
    with SleepStore(sleep_folder(os.environ)) as store:
        return roll_back(store, proposal, datetime.now().astimezone())


def schedule(options: SleepScheduleOptions | None = None) -> list[str]:
    """Let a night start by itself every day, or remove that. Returns what was done, in lines.

    >>> schedule(SleepScheduleOptions(at="03:00", backend="print"))  # doctest: +SKIP
    """
    chosen, host = options or SleepScheduleOptions(), Host(Path.home(), os.environ)
    if chosen.remove:
        return [f"{name}: removed" for name in remove_schedule(host)] or ["nothing was scheduled"]
    settings = SleepOptions().complete(os.environ)
    return install_schedule(chosen, settings, host, night_command())


def check_schedule() -> Checked:
    """Start the scheduled command as the schedule does, without the environment of a shell, as a dry run."""
    return try_schedule(Host(Path.home(), os.environ))


def mine_tasks(
    repository: Path | str,
    *,
    options: MineOptions | None = None,
    watch: Callable[[Mined], None] = lambda _: None,
) -> MineReport:
    """Make tasks from the history and the tested code of a Python repository, and keep those that are proved.

    >>> mine_tasks("shop", options=MineOptions(to="tasks", limit=10)).proved  # doctest: +SKIP
    """
    chosen = merge_options(MineOptions, options, {"repository": Path(repository)})
    return run_coroutine(mine_from_repository(chosen, watch))
