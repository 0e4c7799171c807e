"""`areal`: one line per row; `areal-individual`: one line per call. Each value has a leading batch axis."""

from collections.abc import Iterable, Iterator, Sequence

from whet.gateway.dialects.neutral import Json
from whet.trace.training.calls import TokenCall
from whet.trace.training.rows import Harvest

UNKNOWN = 0
"""The weight version, if the engine does not report one."""
NOT_SAMPLED = -1


def records(harvests: Iterable[Harvest]) -> Iterator[Json]:
    for harvest in harvests:
        for row in harvest.rows.rows:
            versions = [NOT_SAMPLED] * len(row.tokens)
            calls = {call.id: call for call in row.calls}
            for span in row.trained_spans:
                versions[span.start : span.end] = [_version(calls[span.call])] * (span.end - span.start)
            yield _interaction(row.tokens, row.loss_mask, row.logprobs, versions, harvest.episode.reward)


def individual(harvests: Iterable[Harvest]) -> Iterator[Json]:
    """Every trained call after its whole prompt. The last call gets the reward, each earlier one a discounted part."""
    for harvest in harvests:
        reward, rows = harvest.episode.reward, harvest.rows.rows
        calls = {call.id: call for row in rows for call in row.calls}
        trained = sorted((calls[span.call] for row in rows for span in row.trained_spans), key=lambda call: call.order)
        for after, call in zip(range(len(trained) - 1, -1, -1), trained, strict=True):
            own = None if reward is None else reward * harvest.training.discount**after
            read, sampled = [0] * len(call.prompt), len(call.sampled)
            yield _interaction(
                [*call.prompt, *call.sampled],
                [*read, *[1] * sampled],
                [*map(float, read), *(call.logprobs or ())],
                [*[NOT_SAMPLED] * len(read), *[_version(call)] * sampled],
                own,
            )


def _version(call: TokenCall) -> int:
    return int(call.weights) if call.weights is not None and call.weights.isdecimal() else UNKNOWN


def _interaction(
    tokens: Sequence[int],
    mask: Sequence[int],
    logprobs: Sequence[float],
    versions: Sequence[int],
    reward: float | None,
) -> Json:
    return {
        "input_ids": [tokens],
        "loss_mask": [mask],
        "logprobs": [logprobs],
        "versions": [versions],
        "attention_mask": [[True] * len(tokens)],
        "rewards": [reward],
    }
