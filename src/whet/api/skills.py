"""Improving skills, and proving that they are better."""

from collections.abc import Callable, Sequence
from pathlib import Path

from whet.api.arguments import (
    AgentLike,
    ModelLike,
    as_source,
    as_tuple,
    declare_objects,
    index_by_name,
    merge_options,
    name_of,
    refuse_missing_run,
)
from whet.errors import UserError
from whet.event_loop import run_coroutine
from whet.runs.config import Config, project_config
from whet.runs.run import Event
from whet.skills.certificates.certificate import Certificate
from whet.skills.gate.plan import AUTO, GatePlan
from whet.skills.options import AdoptOptions, CertifyOptions, SharpenOptions, TransferOptions
from whet.skills.proposers.base import Proposer
from whet.skills.proposers.schedule import ScheduleOptions
from whet.skills.results import SharpenResult
from whet.skills.rollouts.budget import read_budget
from whet.skills.sharpen.adopt import Adoption
from whet.skills.sharpen.adopt import adopt as adopt_version
from whet.skills.sharpen.adopt import undo as undo_adoption
from whet.skills.sharpen.certify import CertifyRequest, CertifyWatch
from whet.skills.sharpen.certify import certify as certify_skill
from whet.skills.sharpen.events import SharpenEvent
from whet.skills.sharpen.options import (
    default_proposer_model,
    read_guard,
    read_policy,
    read_preferences,
    read_proposer,
)
from whet.skills.sharpen.run import SharpenRequest, sharpen_skill
from whet.skills.sharpen.transfer import Lifts
from whet.skills.sharpen.transfer import transfer as transfer_skill
from whet.tasks import TaskSource


async def sharpen_async(
    skill: Path | str | None = None,
    tasks: TaskSource = (),
    *,
    options: SharpenOptions | None = None,
    proposer: str | Proposer | None = None,
    agent: AgentLike | None = None,
    model: ModelLike | None = None,
    config: Config | None = None,
    watch: Callable[[SharpenEvent], None] = lambda _: None,
) -> SharpenResult:
    """`sharpen`, in the caller's own event loop. Cancelling it stops the run cleanly; it can be resumed."""
    agents, models = index_by_name("agent", as_tuple(agent)), index_by_name("model", as_tuple(model))
    config = declare_objects(config or project_config(), agents, models)
    name = proposer if isinstance(proposer, str) else name_of(proposer) if proposer is not None else None
    named = {
        "skill": skill,
        "tasks": as_source(tasks),
        "agent": next(iter(agents), None),
        "model": next(iter(models), None),
    }
    chosen = merge_options(SharpenOptions, options, {**named, "proposer": name})
    request = sharpen_request(chosen, config)
    if proposer is not None and not isinstance(proposer, str):
        return await sharpen_skill(request, proposer, config, watch)
    asked = chosen.proposer_model or default_proposer_model(chosen.proposer, request.run, config)
    declared = read_proposer(chosen.proposer, asked, chosen.proposer_agent)
    return await sharpen_skill(request, declared, config, watch)


def sharpen(
    skill: Path | str | None = None,
    tasks: TaskSource = (),
    *,
    options: SharpenOptions | None = None,
    proposer: str | Proposer | None = None,
    agent: AgentLike | None = None,
    model: ModelLike | None = None,
    config: Config | None = None,
    watch: Callable[[SharpenEvent], None] = lambda _: None,
) -> SharpenResult:
    """Improve a skill on training tasks, and certify the improvement on tasks that no proposal has seen.

    `proposer` is a name, as for `whet sharpen`, or an object with the method of `Proposer`. NotMeasured when too many
    scores are missing for a conclusion; then the run can be resumed.

    >>> sharpen("skills/sums", "tasks", options=SharpenOptions(budget="$5"), proposer="llm").best  # doctest: +SKIP
    """
    return run_coroutine(
        sharpen_async(
            skill,
            tasks,
            options=options,
            proposer=proposer,
            agent=agent,
            model=model,
            config=config,
            watch=watch,
        )
    )


def sharpen_request(options: SharpenOptions, config: Config) -> SharpenRequest:
    """What `sharpen` is to do, read and checked."""
    if options.skill is None:
        raise UserError("`skill` is missing; expected a skill folder or a Markdown file")
    refuse_missing_run(options)
    budget = read_budget(options.budget)
    rule = None if options.gate == "certify" else options.gate
    guard = read_guard(options.guard, options.guard_margin, gate=rule, shorten=options.shorten)
    plan = GatePlan(
        budget.rollouts or 0,
        options.seed or 0,
        options.alpha,
        samples=options.samples or AUTO,
        search=options.search,
        gate=options.gate,
        shorten=options.shorten,
        guard=guard,
        one_exam=options.one_exam,
    )
    return SharpenRequest(
        options.skill,
        options.run_options().complete(config),
        budget,
        plan,
        options.proposer,
        read_policy(options.policy),
        read_preferences(options.preferences),
        ScheduleOptions(options.schedule, options.epochs, options.batch, options.edits),
        options.memory_file,
        options.known_good,
        seed=options.seed,
        force=options.force,
    )


def certify(
    old: Path | str | None = None,
    new: Path | str | None = None,
    tasks: TaskSource = (),
    *,
    options: CertifyOptions | None = None,
    agent: AgentLike | None = None,
    model: ModelLike | None = None,
    config: Config | None = None,
    watch: CertifyWatch = lambda _: None,
) -> Certificate:
    """Test whether a new skill is better than an old one, or with `non_inferior` that it is not worse, in an exam that
    ends as soon as the answer is clear.

    >>> certify("skills/old", "skills/new", "tasks", agent="codex").certified  # doctest: +SKIP
    """
    agents, models = index_by_name("agent", as_tuple(agent)), index_by_name("model", as_tuple(model))
    config = declare_objects(config or project_config(), agents, models)
    named = {"old": old, "new": new, "tasks": as_source(tasks)}
    arm = {"agent": next(iter(agents), None), "model": next(iter(models), None)}
    chosen = merge_options(CertifyOptions, options, {**named, **arm})
    if chosen.old is None or chosen.new is None or chosen.tasks == ():
        raise UserError("expected two skills and `tasks`")
    refuse_missing_run(chosen)
    budget = read_budget(chosen.budget)
    guard = read_guard(chosen.guard, chosen.guard_margin, non_inferior=chosen.non_inferior)
    plan = GatePlan(budget.rollouts or 0, chosen.seed or 0, chosen.alpha, guard=guard)
    rollouts = chosen.run_options().complete(config)
    request = CertifyRequest(
        chosen.old, chosen.new, rollouts, budget, plan, chosen.seed, chosen.non_inferior, chosen.summary
    )
    return run_coroutine(certify_skill(request, config, watch))


def adopt(run: Path | str | None = None, *, options: AdoptOptions | None = None, undo: bool = False) -> Adoption:
    """Write the certified skill of a sharpen run over the one that the run started with, or undo that.

    >>> adopt("runs/sharpened").files[0].path  # doctest: +SKIP
    PosixPath('/home/me/project/CLAUDE.md')
    """
    chosen = merge_options(AdoptOptions, options, {"run": run, "undo": undo or None})
    if chosen.undo:
        return undo_adoption(chosen.run)
    return adopt_version(chosen.run, chosen.version, chosen.to, uncertified=chosen.uncertified)


def transfer(
    skill: Path | str | None = None,
    tasks: TaskSource = (),
    *,
    options: TransferOptions | None = None,
    agent: AgentLike | Sequence[AgentLike] | None = None,
    model: ModelLike | Sequence[ModelLike] | None = None,
    config: Config | None = None,
    watch: Callable[[Event], None] = lambda _: None,
) -> Lifts:
    """Measure how much a skill helps each agent on each model, compared with no skill or with an older one.

    >>> transfer("sharpened/best/sums", "tasks", agent=["opencode", "codex"], model="m").lifts  # doctest: +SKIP
    """
    agents, models = index_by_name("agent", as_tuple(agent)), index_by_name("model", as_tuple(model))
    config = declare_objects(config or project_config(), agents, models)
    named = {"skill": skill, "tasks": as_source(tasks), "agents": tuple(agents), "models": tuple(models)}
    chosen = merge_options(TransferOptions, options, named)
    if chosen.skill is None:
        raise UserError("`skill` is missing; expected a skill folder or a Markdown file")
    rollouts = chosen.run_options().complete(config)
    return run_coroutine(transfer_skill(chosen.skill, chosen.against, rollouts, config, watch))
