"""`skyrl`: one GeneratorOutput per rollout, step by step: an entry per trained call, chain by chain."""

from collections.abc import Iterable, Iterator

from whet.gateway.dialects.neutral import Json
from whet.trace.training.rows import Harvest


def records(harvests: Iterable[Harvest]) -> Iterator[Json]:
    for harvest in harvests:
        episode = harvest.episode
        finishes = {call.id: call.finish for call in harvest.calls}
        steps = [(row, span) for row in harvest.rows.rows for span in row.trained_spans]
        if not steps:
            continue
        lengths = [span.end - span.start for _, span in steps]
        rewards = [[0.0] * length for length in lengths]
        rewards[-1][-1] = episode.reward or 0.0
        yield {
            "prompt_token_ids": [row.tokens[: span.start] for row, span in steps],
            "response_ids": [row.tokens[span.start : span.end] for row, span in steps],
            "rewards": rewards,
            "loss_masks": [[1] * length for length in lengths],
            "stop_reasons": [finishes[span.call] for _, span in steps],
            "rollout_logprobs": [row.logprobs[span.start : span.end] for row, span in steps],
            "trajectory_ids": [{"instance_id": episode.group, "repetition_id": episode.sample} for _ in steps],
            "is_last_step": [place == len(steps) for place in range(1, len(steps) + 1)],
            "rollout_metrics": None,
        }
