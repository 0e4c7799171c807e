"""`slime`: one Sample per row. Rows of one rollout share its id; each has the whole reward."""

from collections.abc import Iterable, Iterator
from itertools import count

from whet.gateway.dialects.neutral import Json
from whet.trace.export.chat import prompt_text
from whet.trace.export.speech import text_of
from whet.trace.training.rows import Harvest, TrainingRow


def records(harvests: Iterable[Harvest]) -> Iterator[Json]:
    numbers: dict[str, int] = {}
    indices = count()
    for harvest in harvests:
        episode, prompt = harvest.episode, prompt_text(harvest.graph)
        for row in harvest.rows.rows:
            yield {
                "group_index": numbers.setdefault(episode.group, len(numbers)),
                "index": next(indices),
                "rollout_id": episode.rollout,
                "prompt": prompt,
                "tokens": row.tokens,
                "response": _response(harvest, row),
                "response_length": len(row.tokens) - row.prompt_len,
                "label": episode.task,
                "reward": episode.reward,
                "loss_mask": row.loss_mask[row.prompt_len :],
                "rollout_log_probs": row.logprobs[row.prompt_len :],
                "weight_versions": [
                    version
                    for call in row.calls
                    for version in (call.weights, *call.later_weights)
                    if version is not None
                ],
                "remove_sample": False,
                "status": "truncated" if row.truncated else "completed",
                "metadata": {"task_id": episode.task, "row_weight": row.weight, "n_rows_in_rollout": row.of},
            }


def _response(harvest: Harvest, row: TrainingRow) -> str:
    """The text of the replies, for people. Training uses the ids."""
    graph = harvest.graph
    replies = {turn.exchange: turn.reply for turn in graph.turns}
    nodes = [reply for span in row.trained_spans if (reply := replies.get(span.call)) is not None]
    return "\n".join(text_of(graph.nodes[node].message.parts) for node in nodes)
