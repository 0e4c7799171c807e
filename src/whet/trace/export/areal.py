"""`areal`: one line per row, each value with a batch axis in front."""

from collections.abc import Iterable, Iterator

from whet.gateway.dialects.neutral import Json
from whet.trace.rows import Harvest

VERSION = 0
"""Of the weights that sampled. One run has one model, whose version it is not told."""


def records(harvests: Iterable[Harvest]) -> Iterator[Json]:
    for harvest in harvests:
        for row in harvest.rows.rows:
            yield {
                "input_ids": [row.tokens],
                "loss_mask": [row.loss_mask],
                "logprobs": [row.logprobs],
                "versions": [[VERSION if one else -1 for one in row.loss_mask]],
                "attention_mask": [[True] * len(row.tokens)],
                "rewards": [harvest.episode.reward],
            }
