"""Opens the service on its folder: reads what it serves, opens models and sandbox, and brings the queue back."""

import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from whet.agents import CliAgent, agent_named
from whet.agents.registry import CLIS
from whet.errors import UserError
from whet.gateway import Model
from whet.runs.config import Config
from whet.runs.episodes import WEIGHT_VERSION
from whet.runs.resources import find_changed_keys, limits_of, open_resources
from whet.runs.run import TASKS
from whet.runs.scheduler import explain_disk_errors, open_store
from whet.runs.store.served import WaitingRow
from whet.runs.store.store import DATABASE, Store
from whet.runs.store.writer import StoreWriter
from whet.runs.verdicts import AT_ONCE
from whet.serve.access import LOCAL, Caller
from whet.serve.addresses import AddressRules, place_model
from whet.serve.budgets import Budgets, has_limits
from whet.serve.openenv.catalog import own_addresses
from whet.serve.options import DEFAULT_AGENT, ServeOptions
from whet.serve.policies import Policies
from whet.serve.reading import StoreReader
from whet.serve.requests import Offer
from whet.serve.runner import Runner
from whet.serve.service import PAUSED, Service
from whet.serve.submitting import Submitter
from whet.serve.worker import CheckModel, Worker
from whet.skill import Skill, read_skill
from whet.version import __version__

AGENTS = "agents"
"""Under this key a run stores its agents as they are declared."""


@asynccontextmanager
async def open_service(
    options: ServeOptions,
    config: Config,
    env: Mapping[str, str] = os.environ,
    callers: Collection[Caller] | None = None,
    check_model: CheckModel | None = None,
) -> AsyncIterator[Service]:
    """The service on its folder, new or continued, for as long as the context lasts. UserError when it cannot be
    opened.

    `callers` are all who may call; rollouts of others that still wait are cancelled. None: whoever comes. `check_model`
    is asked about models at addresses that clients name; by default the option `allow` decides.
    """
    # A limit on the time of a run would end the server.
    config = config.model_copy(update={"limits": config.limits.model_copy(update={"wall_sec": None})})
    options = options.complete(config)
    tasks = options.read_tasks() if options.tasks else []
    skills = _read_skills(options)
    agents = _list_agents(options, config)
    folders = tuple(skill.folder for skill in skills.values())
    run = options.run_options(agents=agents, skills=folders, out=options.rollouts, resume=True)
    check = check_model or _check_by_rules(AddressRules(options.allow, own_addresses(env)))
    async with open_resources(run, tasks, config, env, more_tasks=True) as resources, AsyncExitStack() as opened:
        default = next(iter(skills.values())) if options.skills and options.skills[0] is not None else None
        offer = Offer({task.id: task for task in tasks}, agents, options.models, skills, default, resources)
        opened.enter_context(explain_disk_errors(options.rollouts))
        found = _open_folder(options, offer)
        writer = await opened.enter_async_context(StoreWriter(options.rollouts))
        read = opened.enter_context(StoreReader(options.rollouts))
        budgets = Budgets(resources, read, opened)
        if has_limits(limits_of(run, config)):
            await budgets.add_earlier()
        for caller in callers or ():
            await budgets.add(caller)
        declared = [url for name in offer.models for url in resources.models[name].urls]
        check_update = check_model or _check_by_rules(AddressRules(options.allow, declared))
        worker = Worker(writer, read, offer, found.policies, budgets, check, check_update)
        worker.unsettled = found.unsettled
        runner = Runner(worker, writer, found.policies, budgets, options.concurrency)
        runner.paused, runner.ended = set(found.paused), found.ended
        submitter = Submitter(
            offer, found.policies, budgets, runner, writer, read, check, options.queue, found.next_ordinal
        )
        service = Service(offer, found.policies, budgets, runner, submitter, writer, read, check_update)
        opened.push_async_callback(service.drain, 0)
        runner.restore(found.waiting)
        if callers is not None:
            await _cancel_strangers(runner, {LOCAL.name, *(caller.name for caller in callers)})
        runner.dispatch()
        yield service


@dataclass(frozen=True, slots=True)
class _Found:
    """What the folder holds of earlier."""

    waiting: list[WaitingRow]
    policies: Policies
    paused: list[str]
    ended: Counter[tuple[str, str]]
    unsettled: set[str]
    next_ordinal: int


def _open_folder(options: ServeOptions, offer: Offer) -> _Found:
    """Make the run folder, or bring it up to date. UserError when a task or an agent is not what it was."""
    folder, resources = options.rollouts, offer.resources
    exists = (folder / DATABASE).is_file()
    about: dict[str, Any] = {
        "version": __version__,
        "sandbox": resources.sandbox.name,
        TASKS: options.task_paths,
        WEIGHT_VERSION: None,
    }
    with open_store(folder, offer.tasks.values(), resume=exists, about=about) as store:
        store.set(AGENTS, _merge_agents(store, resources.dump_agents(), options))
        policies = Policies({name: resources.models[name] for name in offer.models}, store.policy_updates())
        for row in policies.find_moved(time.time()):
            store.served.add_policy(row)
            policies.add(row)
        return _Found(
            waiting=store.served.waiting(),
            policies=policies,
            paused=store.get(PAUSED) or [],
            ended=Counter(store.served.count_outcomes()),
            unsettled=store.served.tasks_missing(AT_ONCE),
            next_ordinal=store.served.next_ordinal(),
        )


def _merge_agents(store: Store, now: dict[str, Any], options: ServeOptions) -> dict[str, Any]:
    before: dict[str, Any] = store.get(AGENTS) or {}
    for name, declared in now.items():
        if changed := find_changed_keys(before.get(name, declared), declared):
            raise UserError(
                f"agent '{name}' is not what it was when the server in {options.out} began: "
                f"{' and '.join(changed)} changed; start it with another `out`"
            )
    return before | now


async def _cancel_strangers(runner: Runner, known: set[str]) -> None:
    """Cancel what waits of callers whose token is gone: they must not spend any more."""
    for one in list(runner.open.values()):
        if one.row.owner not in known:
            await runner.cancel(one.row.rollout)


def _read_skills(options: ServeOptions) -> dict[str, Skill]:
    """The offered skills by name, in their order."""
    found: dict[str, Skill] = {}
    for path in options.skills:
        if path is None:
            continue
        skill = read_skill(path)
        if skill.name in found:
            raise UserError(
                f"{path}: there are two skills of the name '{skill.name}'; expected a different one for each"
            )
        found[skill.name] = skill
    return found


def _list_agents(options: ServeOptions, config: Config) -> tuple[str, ...]:
    """The offered agents, the default first: those of the options, or all that are declared or installed."""
    if options.agents:
        return options.agents
    named = config.defaults.agent
    others = [*config.agents, DEFAULT_AGENT, *(agent.kind for agent in CLIS), "loop", "chat"]
    found = [name for name in dict.fromkeys(others) if name != named and _is_installed(name, config)]
    # The first of the programs is the default, not what whet.toml happens to declare.
    found.sort(key=lambda name: name != DEFAULT_AGENT)
    return (named, *found) if named is not None else tuple(found)


def _is_installed(name: str, config: Config) -> bool:
    try:
        agent = agent_named(name, config.agents)
        if isinstance(agent, CliAgent):
            agent.check()
    except UserError:
        return False
    return True


def _check_by_rules(rules: AddressRules) -> CheckModel:
    async def check(model: Model) -> Model:
        return place_model(model, [await rules.check(url) for url in model.urls])

    return check
