"""The sampled tokens of a llama.cpp reply, each with its log-probability.

llama.cpp leaves the log-probabilities out of tokens that end within a character, and of those that a stop string cut
off. They are asked for again: what the model makes of the same ids does not depend on what is then sampled.
"""

from collections.abc import Sequence
from typing import Any

import aiohttp

MOST_LIKELY = 500
"""Among so many tokens a sampled one is looked for first; telling all of them takes most of a second."""
ALL = 1_000_000
_HARMLESS = [["a", 1000.0]]
"""What is sampled instead while asking again: a token that ends with a whole character, so that anything is told."""


async def entries_of(
    llama: aiohttp.ClientSession, prompt: Sequence[int], sampled: Sequence[int], entries: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """One entry for each sampled token: the one that was told, where it is sure which; else one that is asked for."""
    places = surely(sampled, [entry["id"] for entry in entries])
    return [
        entries[place] if place is not None else await _ask_again(llama, [*prompt, *sampled[:index]], sampled[index])
        for index, place in enumerate(places)
    ]


def surely(sampled: Sequence[int], entries: Sequence[int]) -> list[int | None]:
    """For each sampled id the place of its entry among those that were told, or None where it has none or it is unsure.

    >>> surely([7, 8, 9, 8], [7, 9, 8]), surely([8, 8], [8])
    ([0, None, 1, 2], [None, None])
    """
    early = _earliest(sampled, entries)
    late = [
        len(entries) - 1 - place if place is not None else None for place in _earliest(sampled[::-1], entries[::-1])
    ]
    return [place if place == other else None for place, other in zip(early, reversed(late), strict=True)]


def _earliest(sampled: Sequence[int], entries: Sequence[int]) -> list[int | None]:
    places: list[int | None] = []
    next_ = 0
    for id_ in sampled:
        fits = next_ < len(entries) and entries[next_] == id_
        places.append(next_ if fits else None)
        next_ += fits
    return places


async def _ask_again(llama: aiohttp.ClientSession, before: list[int], id_: int) -> dict[str, Any]:
    for count in (MOST_LIKELY, ALL):
        body = {"prompt": before, "n_predict": 1, "n_probs": count, "temperature": 0, "logit_bias": _HARMLESS}
        async with llama.post("/completion", json=body, raise_for_status=True) as reply:
            (entry,) = (await reply.json())["completion_probabilities"]
        for likely in entry["top_logprobs"]:
            if likely["id"] == id_:
                # Its bytes are told with the token that ends the character.
                return {"id": id_, "token": "", "bytes": [], "logprob": likely["logprob"], "top_logprobs": []}
    raise LookupError(f"token {id_} is not among those that the model knows")
