"""`openrlhf`: one executor result per row, with one action range per trained reply."""

from collections.abc import Iterable, Iterator

from whet.gateway.dialects.neutral import Json
from whet.trace.export.chat import prompt_text
from whet.trace.training.rows import Harvest


def records(harvests: Iterable[Harvest]) -> Iterator[Json]:
    for harvest in harvests:
        episode, prompt = harvest.episode, prompt_text(harvest.graph)
        for row in harvest.rows.rows:
            yield {
                "prompt": prompt,
                "label": episode.task,
                "observation_tokens": row.tokens,
                "action_ranges": [(span.start, span.end) for span in row.trained_spans],
                "rollout_log_probs": row.logprobs,
                "reward": episode.reward,
                "scores": episode.reward,
                "extra_logs": {"row_weight": row.weight},
                "truncated": row.truncated is not None,
            }
