"""Training rows: chains of calls laid out as tokens with a loss mask, one row per chain, and the count of all that was
and was not trained."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whet.trace.conversations.graph import Graph, GraphReader
from whet.trace.training.breaks import breaks
from whet.trace.training.calls import CallKind, TokenCall, Training, call_of, calls_of, kind_of
from whet.trace.training.episode import CallRecord, Episode, record_of
from whet.trace.training.merge import Forest, merge
from whet.trace.training.versions import WeightUpdate, find_updates, order_versions

SCHEMA = "whet.row/1"
SAMPLED = "sampled"


@dataclass(frozen=True, slots=True)
class RowSpan:
    """A stretch of a row."""

    call: int
    kind: str
    """prompt, interstitial or sampled."""
    start: int
    end: int
    trained: bool = False


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One chain of calls."""

    calls: tuple[TokenCall, ...]
    spans: tuple[RowSpan, ...]
    tokens: list[int]
    loss_mask: list[int]
    """1 exactly on the sampled tokens that are trained in this row."""
    logprobs: list[float]
    """0.0 wherever the mask is 0."""
    prompt_len: int
    kind: CallKind
    thread: str
    truncated: str | None = None
    """How it was truncated, if it was."""
    number: int = 0
    """Its place among the rows of its rollout."""
    of: int = 1
    weight: float = 1.0
    """Its share of its rollout: those of all rows add up to 1."""

    @property
    def is_last(self) -> bool:
        return self.number == self.of - 1

    @property
    def trained_spans(self) -> list[RowSpan]:
        """The replies that are trained here."""
        return [span for span in self.spans if span.trained]

    @property
    def trained_calls(self) -> list[TokenCall]:
        """The calls whose replies are trained here."""
        trained = {span.call for span in self.trained_spans}
        return [call for call in self.calls if call.id in trained]

    @property
    def straddled(self) -> bool:
        """Whether several versions of the weights may have sampled what is trained here."""
        calls = self.trained_calls
        return len({call.weights for call in calls}) > 1 or any(call.later_weights for call in calls)

    def weight_versions(self, log: Sequence[WeightUpdate]) -> list[str]:
        """The known versions of the weights that may have sampled what is trained here, in the order of the log."""
        used = [version for call in self.trained_calls for version in (call.weights, *call.later_weights)]
        return order_versions([version for version in used if version is not None], log)

    def scores(self, reward: float) -> list[float]:
        """The reward on the last trained token of the rollout's last row, and 0 everywhere else."""
        scores = [0.0] * len(self.tokens)
        if self.is_last:
            scores[self.trained_spans[-1].end - 1] = reward
        return scores


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one rollout, in the order of export."""

    rows: tuple[TrainingRow, ...]
    apart: tuple[TrainingRow, ...]
    """Truncated ones, which are not to be trained as they are."""
    dropped: tuple[str, ...]
    """Why rows were dropped that no trainer could take."""
    forest: Forest


def rows_of(calls: Iterable[TokenCall], training: Training | None = None) -> Rows:
    """Merge calls into rows. Each trained reply is in exactly one row with mask 1."""
    training = training or Training()
    forest = merge(calls)
    taken: set[int] = set()
    rows: list[TrainingRow] = []
    dropped: list[str] = []
    for path in forest.paths():
        trained = {call.id for call in path if call.refused is None and call.id not in taken}
        if not trained:
            continue
        taken |= trained
        row = _row(path, trained, training.max_tokens)
        if isinstance(row, TrainingRow):
            rows.append(row)
        else:
            dropped.append(row)
    whole = [row for row in rows if row.truncated is None or training.keep_truncated]
    apart = [row for row in rows if row.truncated is not None and not training.keep_truncated]
    return Rows(_assign_weights(whole, training), _assign_weights(apart, training), tuple(dropped), forest)


def _row(path: Sequence[TokenCall], trained: set[int], longest: int | None) -> TrainingRow | str:
    """The row of a path up to its last trained reply, or up to the last that fits; else why there is none."""
    ends = [place for place, call in enumerate(path, 1) if call.id in trained]
    fitting = [place for place in ends if longest is None or path[place - 1].end <= longest]
    if not fitting:
        what = "its first prompt" if len(path[0].prompt) > (longest or 0) else "its first trained reply"
        return f"{what} reaches beyond {longest} tokens"
    chain = tuple(path[: fitting[-1]])
    last = chain[-1]
    tokens = last.prompt.tolist() + last.sampled.tolist()
    mask, logprobs = [0] * len(tokens), [0.0] * len(tokens)
    spans: list[RowSpan] = []
    held = 0
    for call in chain:
        spans.append(RowSpan(call.id, "interstitial" if spans else "prompt", held, len(call.prompt)))
        held = call.end
        spans.append(RowSpan(call.id, SAMPLED, len(call.prompt), held, call.id in trained))
        if call.id in trained:
            assert call.logprobs is not None
            mask[len(call.prompt) : held] = [1] * len(call.sampled)
            logprobs[len(call.prompt) : held] = call.logprobs.tolist()
    capped = [call.id for call in chain if call.id in trained and call.finish == "length"]
    truncated = f"the reply of call {capped[0]} ended at the output limit" if capped else None
    if len(fitting) < len(ends):
        truncated = f"cut behind call {last.id} to fit into {longest} tokens"
    first = next(call for call in chain if call.id in trained)
    return TrainingRow(
        chain, tuple(spans), tokens, mask, logprobs, len(chain[0].prompt), first.kind, first.thread, truncated
    )


def _assign_weights(rows: Sequence[TrainingRow], training: Training) -> tuple[TrainingRow, ...]:
    weights = [training.subagent_weight if row.kind is CallKind.SUBAGENT else 1.0 for row in rows]
    return tuple(
        replace(row, number=number, of=len(rows), weight=weight / sum(weights))
        for number, (row, weight) in enumerate(zip(rows, weights, strict=True))
    )


def canonical_row(episode: Episode, row: TrainingRow) -> dict[str, Any]:
    """A row with all that any trainer may want to know of it."""
    weights = {call.id: call.weights for call in row.calls}
    return {
        "schema": SCHEMA,
        "row_id": f"{episode.rollout}-{row.number}",
        "rollout_id": episode.rollout,
        "group_id": episode.group,
        "task_id": episode.task,
        "attempt": episode.sample,
        "thread_id": row.thread,
        "kind": row.kind,
        "segment": row.number,
        "n_rows_in_rollout": row.of,
        "is_last_row": row.is_last,
        "row_weight": row.weight,
        "tokens": row.tokens,
        "loss_mask": row.loss_mask,
        "logprobs": row.logprobs,
        "prompt_len": row.prompt_len,
        "spans": [
            {
                "call_id": str(span.call),
                "kind": span.kind,
                "start": span.start,
                "end": span.end,
                "trained": span.trained,
                "weight_version": weights[span.call] if span.kind == SAMPLED else None,
            }
            for span in row.spans
        ],
        "weight_versions": row.weight_versions(episode.updates),
        "straddled": row.straddled,
        "reward": episode.reward,
        "rewards": dict(episode.rewards),
        "reward_source": "substituted" if episode.substituted else "whet",
        "advantage": episode.advantage,
        "truncated": row.truncated is not None,
        "finish_reasons": [call.finish for call in row.calls],
        "stop_cause": episode.stop,
        "model": episode.model,
        "tokenizer_digest": None,
        "template_digest": None,
        "sampling": {"temperature": row.calls[-1].temperature},
        "capture_level": "tokens",
        "skill_digest": episode.skill,
        **({"labels": episode.labels} if episode.labels is not None else {}),
    }


@dataclass(frozen=True, slots=True)
class Harvest:
    """All that is derived of one rollout."""

    episode: Episode
    """Its exchanges left out."""
    training: Training
    records: Sequence[CallRecord]
    """What is known of its exchanges beside their bodies."""
    graph: Graph
    rows: Rows
    calls: Sequence[TokenCall]
    counts: Mapping[str, int]
    breaks: Mapping[str, int]
    """Places where a thread's tokens do not go on from its call before, by cause."""
    refused: Mapping[str, int]
    """Calls that were not trained, by reason."""


def harvest(episode: Episode, training: Training) -> Harvest:
    """Derive conversations and rows of a rollout. Its exchanges are read one after the other, and none is kept."""
    reader, records, read = GraphReader(), [], []
    versions: dict[int, list[str | None]] = {}
    for exchange in episode.exchanges:
        reader.add(exchange)
        records.append(record_of(exchange))
        if (call := call_of(exchange, training)) is not None:
            read.append(call)
            found = find_updates(exchange, episode.updates)
            versions[call.id] = [update.version if update else None for update in found] or [None]
    graph = reader.graph()
    sent_back = graph.replies_sent_back()
    calls = [
        replace(
            call,
            sent_back=call.id in sent_back,
            weights=call.weights or versions[call.id][0] or episode.weight_version,
            later_weights=tuple(filter(None, versions[call.id][1:])),
        )
        for call in calls_of(read, graph)
    ]
    rows = rows_of(calls, training)
    kept = rows.forest.calls.values()
    refused = Counter(call.refused for call in kept if call.refused is not None)
    counts, broken = _counts(records, calls, rows), breaks(graph, calls, rows.forest)
    return Harvest(replace(episode, exchanges=()), training, records, graph, rows, calls, counts, broken, refused)


def _counts(records: Sequence[CallRecord], calls: Sequence[TokenCall], rows: Rows) -> dict[str, int]:
    answered = [record for record in records if record.status == 200]
    every = [*rows.rows, *rows.apart]
    trained = [span.call for row in every for span in row.trained_spans]
    return {
        "calls seen": len(records),
        "calls answered": len(answered),
        "calls without ids": len(answered) - len(calls),
        "calls trained": len(trained),
        "calls discarded": len(rows.forest.discarded),
        "calls context only": len(rows.forest.calls) - len(trained),
        "calls unclassified": sum(kind_of(record.speaker) is CallKind.UNKNOWN for record in answered),
        "calls ambiguous": len(rows.forest.ambiguous),
        "rows": len(rows.rows),
        "rows apart": len(rows.apart),
        "rows dropped": len(rows.dropped),
        "rows straddled": sum(row.straddled for row in rows.rows),
        "tokens": sum(len(row.tokens) for row in rows.rows),
        "trained tokens": sum(sum(row.loss_mask) for row in rows.rows),
        "tokens of one row per call": sum(rows.forest.calls[id_].end for id_ in trained),
        "tokens of merged rows": sum(len(row.tokens) for row in every),
    }
