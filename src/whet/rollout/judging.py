"""The judging phase of an attempt: what judges see of the agent's tool calls, their verdicts, and what they cost."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from whet.agents.tools import LoggedUse
from whet.exchange import Exchange, Recorder
from whet.gateway import Model
from whet.gateway.dialects.neutral import ToolCall
from whet.rollout.model_client import ModelClient
from whet.rollout.resources import RunResources
from whet.rollout.result import Flag, Rollout, Spending, session_spending
from whet.scoring import NO_VERDICT, ObservedCall, Score, TaskJudge, Work
from whet.trace.conversations.replies import reply_of


@dataclass(slots=True)
class Judgement:
    """The scores of one rollout so far, what they cost, and flags."""

    scores: dict[str, Score] = field(default_factory=dict)
    """By the name of the judge."""
    spending: Spending | None = None
    """What their model calls cost; None when there were none."""
    flags: tuple[str, ...] = ()


async def judge_work(
    work: Work,
    judges: Sequence[TaskJudge],
    rollout: Rollout,
    resources: RunResources,
    record: Recorder,
    judgement: Judgement,
) -> None:
    """Let each judge score the work, in order, and write into `judgement`. Their model calls go to `record`."""
    scores = judgement.scores
    async with ModelClient(
        resources.gateway, resources.judge_models, resources.judge_model, record, "judge", rollout.sample
    ) as client:
        for judge in judges:
            scores[judge.name] = await judge.judge(replace(work, referee=client))
    asked = [session.model for session in client.sessions.values()]
    self_judged = rollout.captured and any(is_same_model(rollout.model, one) for one in asked)
    judgement.flags = (
        *(flag for score in scores.values() for flag in score.details.get("flags", ())),
        *((Flag.SELF_JUDGED,) if self_judged else ()),
        *((NO_VERDICT,) if any(score.is_undecided for score in scores.values()) else ()),
    )
    if client.sessions:
        judgement.spending = client_spending(client)


def is_same_model(one: Model, other: Model) -> bool:
    """Whether two models are the same weights: the same declaration, or one address with one name there."""
    same_address = not {*one.urls}.isdisjoint(other.urls)
    return one.name == other.name or (same_address and one.upstream_name == other.upstream_name)


def client_spending(client: ModelClient) -> Spending:
    """What all calls of a model client cost."""
    each = (session_spending(session, session.model) for session in client.sessions.values())
    return sum(each, start=Spending(cost=0))


def find_requested_calls(exchange: Exchange) -> list[ObservedCall]:
    """The tool calls in the model's reply to the agent."""
    reply = reply_of(exchange) if exchange.status == 200 else None
    return [
        ObservedCall(part.name, part.arguments, "model")
        for part in (reply.parts if reply else ())
        if isinstance(part, ToolCall)
    ]


def list_logged_calls(uses: Iterable[LoggedUse]) -> list[ObservedCall]:
    """The calls of the task's own programs."""
    return [ObservedCall(use.name, shlex.join(use.argv), "program", failed=use.exit_code != 0) for use in uses]
