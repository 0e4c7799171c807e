"""`prime-rl`: one sample per row; `prime-rl-split`: the older form, with separate prompt and completion."""

from collections.abc import Iterable, Iterator

from whet.gateway.dialects.neutral import Json
from whet.trace.training.rows import Harvest, TrainingRow

NEUTRAL_TEMPERATURE = 1.0
"""The temperature of tokens that were not sampled, or whose temperature is unknown."""


def records(harvests: Iterable[Harvest]) -> Iterator[Json]:
    for harvest in harvests:
        advantage = harvest.episode.advantage
        for row in harvest.rows.rows:
            yield {
                "token_ids": row.tokens,
                "mask": [bool(one) for one in row.loss_mask],
                "logprobs": row.logprobs,
                "temperatures": _temperatures(row),
                "env_name": harvest.episode.task,
                "advantages": None if advantage is None else [advantage] * len(row.tokens),
            }


def split(harvests: Iterable[Harvest]) -> Iterator[Json]:
    for harvest in harvests:
        for row in harvest.rows.rows:
            mask = [bool(one) for one in row.loss_mask]
            yield {
                "prompt_ids": row.tokens[: row.prompt_len],
                "prompt_mask": mask[: row.prompt_len],
                "completion_ids": row.tokens[row.prompt_len :],
                "completion_mask": mask[row.prompt_len :],
                "completion_logprobs": row.logprobs[row.prompt_len :],
                "advantage": harvest.episode.advantage,
                "temperature": row.calls[-1].temperature or NEUTRAL_TEMPERATURE,
            }


def _temperatures(row: TrainingRow) -> list[float]:
    sent = {call.id: call.temperature for call in row.calls}
    temperatures = [NEUTRAL_TEMPERATURE] * len(row.tokens)
    for span in row.trained_spans:
        temperatures[span.start : span.end] = [sent[span.call] or NEUTRAL_TEMPERATURE] * (span.end - span.start)
    return temperatures
