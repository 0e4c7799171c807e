"""Training rows as a server sends them, cut to what a trainer takes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Reply:
    """A stretch of a row that the model sampled."""

    start: int
    end: int
    trained: bool
    version: str | None
    """The version of the weights that sampled it."""
    finish: str | None
    """Why the model stopped."""


@dataclass(frozen=True, slots=True)
class Row:
    """A training row as docs/training.md describes it. Prompt and completion meet at `prompt_len`."""

    tokens: list[int]
    loss_mask: list[int]
    logprobs: list[float]
    prompt_len: int
    replies: tuple[Reply, ...]
    main: bool
    """It belongs to the main thread, not to a sub-agent."""
    temperature: float | None

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Self:
        """Read a record of the format 'rows'."""
        spans = [span for span in record["spans"] if span["kind"] == "sampled"]  # one per call
        replies = [
            Reply(span["start"], span["end"], span["trained"], span["weight_version"], finish)
            for span, finish in zip(spans, record["finish_reasons"], strict=True)
        ]
        return cls(
            record["tokens"],
            record["loss_mask"],
            record["logprobs"],
            record["prompt_len"],
            tuple(replies),
            record["kind"] == "root",
            record["sampling"]["temperature"],
        )

    def fit(self, prompt: int, response: int) -> Self | None:
        """The row, cut after the last trained reply that fits; None if its prompt or its first trained reply is too
        long."""
        last = self.prompt_len + response
        kept = [place for place, one in enumerate(self.replies, 1) if one.trained and one.end <= last]
        if self.prompt_len > prompt or not kept:
            return None
        replies = self.replies[: kept[-1]]
        end = replies[-1].end
        parts = self.tokens[:end], self.loss_mask[:end], self.logprobs[:end]
        return type(self)(*parts, self.prompt_len, replies, self.main, self.temperature)


def find_main_row(rows: Iterable[Row]) -> Row | None:
    """The longest row of the main thread."""
    return max((row for row in rows if row.main), key=lambda row: len(row.tokens), default=None)
