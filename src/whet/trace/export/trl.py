"""TRL: captured traces for the harness worker, pre-tokenised SFT rows, GRPO rows, and preference pairs."""

from collections.abc import Iterable, Iterator
from itertools import groupby, takewhile

from whet.exchange import Kind
from whet.gateway.dialects.neutral import Json
from whet.trace.conversations.graph import Graph, Turn
from whet.trace.conversations.tree import Node
from whet.trace.export.chat import replies_from_record
from whet.trace.export.speech import chat_messages, chat_tools
from whet.trace.training.calls import CallKind
from whet.trace.training.rows import Harvest, TrainingRow

IGNORED = -100
"""The label of a token that is not trained."""


def traces(harvests: Iterable[Harvest]) -> Iterator[Json]:
    """`trl-trace`: one TrainingTrace per rollout, a turn per call, chain by chain."""
    for harvest in harvests:
        by_exchange = {turn.exchange: turn for turn in harvest.graph.turns}
        turns = [
            _trace_turn(harvest, row, place, by_exchange)
            for row in harvest.rows.rows
            for place, span in enumerate(row.spans)
            if span.trained
        ]
        if turns:
            yield {"schema_version": 1, "turns": turns}


def _trace_turn(harvest: Harvest, row: TrainingRow, place: int, turns: dict[int, Turn]) -> Json:
    span = row.spans[place]
    turn, graph, episode = turns.get(span.call), harvest.graph, harvest.episode
    call = next(call for call in row.calls if call.id == span.call)
    return {
        "node_id": f"{episode.rollout}-{span.call}",
        "prompt_token_ids": row.tokens[: span.start],
        "completion_token_ids": row.tokens[span.start : span.end],
        "per_token_logps": row.logprobs[span.start : span.end],
        "loss_mask": [0] * span.start + [1] * (span.end - span.start),
        "request": _request(graph, turn) if turn else {},
        "response": {"choices": [{"message": _response(graph, turn), "finish_reason": call.finish}]} if turn else {},
        "metadata": {
            "rollout_id": episode.rollout,
            "group_id": episode.group,
            "task_id": episode.task,
            "reward": episode.reward,
            "thread_id": call.thread,
            "kind": call.kind,
            "row": row.number,
            "weight_version": call.weights,
        },
    }


def _request(graph: Graph, turn: Turn) -> Json:
    before = [*(graph.nodes[node] for node in turn.system), *graph.path(turn.prompt)]
    messages = [message for node in before for message in chat_messages(node.message)]
    return {"messages": messages, "tools": chat_tools(graph.settings[turn.setting].tools)}


def _response(graph: Graph, turn: Turn) -> Json:
    if turn.reply is None:
        return {"role": "assistant", "content": None}
    return chat_messages(graph.nodes[turn.reply].message)[0]


def sft(harvests: Iterable[Harvest]) -> Iterator[Json]:
    """`trl-sft`: input_ids and labels, one line per row. No chat template is applied."""
    for harvest in harvests:
        for row in harvest.rows.rows:
            labels = [id_ if one else IGNORED for id_, one in zip(row.tokens, row.loss_mask, strict=True)]
            yield {"input_ids": row.tokens, "labels": labels}


def grpo(harvests: Iterable[Harvest]) -> Iterator[Json]:
    """`trl-grpo`: the return value of a rollout function, one line per rollout: the longest row of its main thread."""
    for harvest in harvests:
        mains = [row for row in harvest.rows.rows if row.kind is CallKind.ROOT]
        if not mains:
            continue
        row = max(mains, key=lambda one: len(one.tokens))
        yield {
            "prompt_ids": row.tokens[: row.prompt_len],
            "completion_ids": row.tokens[row.prompt_len :],
            "env_mask": row.loss_mask[row.prompt_len :],
            "logprobs": row.logprobs[row.prompt_len :],
            "reward": harvest.episode.reward,
            "task_id": harvest.episode.task,
            "rollout_id": harvest.episode.rollout,
            "group_id": harvest.episode.group,
        }


def pairs(harvests: Iterable[Harvest]) -> Iterator[Json]:
    """`trl-pairs`: the best and the worst rollout of a group as prompt, chosen and rejected. Groups are adjacent."""
    for _, group in groupby(harvests, key=lambda harvest: harvest.episode.group):
        best: tuple[float, Harvest, list[Json]] | None = None
        worst: tuple[float, Harvest, list[Json]] | None = None
        for harvest in group:
            reward, spoken = harvest.episode.reward, _main_conversation(harvest.graph)
            if reward is None or not spoken:
                continue
            if best is None or reward > best[0]:
                best = (reward, harvest, spoken)
            if worst is None or reward < worst[0]:
                worst = (reward, harvest, spoken)
        if best is not None and worst is not None and best[0] > worst[0]:
            yield from _pair(best, worst, max(_count_repeated(best[1]), _count_repeated(worst[1])))


def _count_repeated(harvest: Harvest) -> int:
    """Number of messages at the start of a fork that come from the forked rollout."""
    replies = replies_from_record(harvest)
    spoken = [(node.id in replies, len(chat_messages(node.message))) for node in _main_nodes(harvest.graph)]
    last = max((place for place, (repeated, _) in enumerate(spoken, 1) if repeated), default=0)
    return sum(count for _, count in spoken[:last])


def _pair(
    best: tuple[float, Harvest, list[Json]], worst: tuple[float, Harvest, list[Json]], repeated: int
) -> Iterator[Json]:
    together = zip(best[2], worst[2], strict=False)
    shared = len(list(takewhile(lambda both: both[0] == both[1], together)))
    chosen, rejected = best[2][shared:], worst[2][shared:]
    if shared and shared >= repeated and chosen and rejected:
        yield {
            "prompt": best[2][:shared],
            "chosen": chosen,
            "rejected": rejected,
            "chosen_reward": best[0],
            "rejected_reward": worst[0],
            "task_id": best[1].episode.task,
            "rollout_ids": [best[1].episode.rollout, worst[1].episode.rollout],
        }


def _main_conversation(graph: Graph) -> list[Json]:
    return [message for node in _main_nodes(graph) for message in chat_messages(node.message)]


def _main_nodes(graph: Graph) -> list[Node]:
    main = next((thread for thread in graph.threads if thread.kind is Kind.MAIN), None)
    if main is None:
        return []
    last = graph.segments(main)[-1][-1]
    return graph.conversation(last) if last.reply is not None else []
