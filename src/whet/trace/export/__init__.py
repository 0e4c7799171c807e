"""Exports rollouts as training rows, conversations, spans and tables; one file per format."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from whet.errors import UserError
from whet.text.redact import secrets_in
from whet.text.secrets import SecretMasker
from whet.trace.export import areal, atif, chat, openrlhf, otlp, prime_rl, skyrl, slime, tables, trl, verl
from whet.trace.export.manifest import ExportManifest
from whet.trace.export.sinks import DocumentsSink, JsonLinesSink, Sink, TablesSink, open_sink
from whet.trace.training.calls import Training
from whet.trace.training.episode import Episode
from whet.trace.training.rows import Harvest, canonical_row, harvest

UNSCORED = "without a score"


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """An export format."""

    name: str
    says: str
    records: Callable[[Iterable[Harvest]], Iterator[Any]]
    needs_ids: bool = True
    needs_score: bool = True
    """Whether rollouts without a score are left out. They are never counted as 0."""
    sink: Callable[[Path], Sink] = JsonLinesSink
    says_the_same: Callable[[Any], bytes] | None = None
    """A key that is equal for two records if one of them is enough."""
    has_labels: bool = False
    """Whether it has a place for the labels that people set."""


def _rows(harvests: Iterable[Harvest]) -> Iterator[Any]:
    return (canonical_row(one.episode, row) for one in harvests for row in one.rows.rows)


_TEXT: dict[str, Any] = {"needs_ids": False, "needs_score": False}
_ALL = (
    ExportFormat(
        "rows",
        "whet's own rows, with everything that the others derive from",
        _rows,
        needs_score=False,
        has_labels=True,
    ),
    ExportFormat("trl-trace", "TRL: TrainingTrace, one per rollout", trl.traces),
    ExportFormat("trl-sft", "TRL: pre-tokenised SFT", trl.sft, needs_score=False),
    ExportFormat("trl-grpo", "TRL: what a GRPO rollout function returns", trl.grpo),
    ExportFormat("trl-pairs", "TRL: preference pairs, best and worst of a task; text", trl.pairs, needs_ids=False),
    ExportFormat("verl", "verl: agent-loop outputs", verl.records),
    ExportFormat("skyrl", "SkyRL: step-wise generator outputs, one per rollout", skyrl.records),
    ExportFormat("prime-rl", "prime-rl: training samples", prime_rl.records),
    ExportFormat("prime-rl-split", "prime-rl, older: prompt and completion apart", prime_rl.split),
    ExportFormat("areal", "AReaL: interactions, one per row", areal.records),
    ExportFormat(
        "areal-individual", "AReaL: interactions, one per call, the reward discounted backwards", areal.individual
    ),
    ExportFormat("openrlhf", "OpenRLHF: executor results", openrlhf.records),
    ExportFormat("slime", "slime: samples", slime.records),
    ExportFormat(
        "chat",
        "chat messages, one conversation per line; text",
        chat.records,
        **_TEXT,
        says_the_same=chat.digest_messages,
        has_labels=True,
    ),
    ExportFormat(
        "atif",
        "ATIF 1.8: a folder, one document per rollout",
        atif.documents,
        **_TEXT,
        sink=DocumentsSink,
        has_labels=True,
    ),
    ExportFormat("otlp", "OpenTelemetry GenAI spans as OTLP/JSON", otlp.records, **_TEXT),
    ExportFormat(
        "parquet",
        "a folder of Parquet tables: rollouts, exchanges, scores",
        tables.records,
        **_TEXT,
        sink=TablesSink,
        has_labels=True,
    ),
)
FORMATS: Mapping[str, ExportFormat] = MappingProxyType({target.name: target for target in _ALL})


def export(
    episodes: Iterable[Episode],
    target: ExportFormat,
    out: Path,
    training: Training,
    manifest: ExportManifest | None = None,
    *,
    distinct: bool = False,
) -> ExportManifest:
    """Write rollouts to a new file or folder, one after the other, with the separate rows and the manifest next to it.

    The episodes of a group must be adjacent. UserError if the format needs token ids and no call has any.
    """
    manifest = manifest or ExportManifest()
    beside = {kind: out.with_name(f"{out.name}.{kind}") for kind in ("apart.jsonl", "manifest.json")}
    for path in beside.values():
        if path.exists():
            raise UserError(f"{path}: exists already; `out` needs a new name")
    with open_sink(beside["apart.jsonl"], JsonLinesSink) as apart, open_sink(out, target.sink) as sink:
        for record in make_records(episodes, target, training, manifest, apart.write, distinct=distinct):
            sink.write(record)
    if any(manifest.truncated.values()):
        manifest.apart = beside["apart.jsonl"]
    else:
        beside["apart.jsonl"].unlink()
    facts = {"format": target.name, "training": training, "arguments of tool calls": "text", **manifest.as_json()}
    beside["manifest.json"].write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=2) + b"\n")
    return manifest


def make_records(
    episodes: Iterable[Episode],
    target: ExportFormat,
    training: Training,
    manifest: ExportManifest,
    set_apart: Callable[[Any], None],
    *,
    distinct: bool = False,
) -> Iterator[Any]:
    """The records of these rollouts, one after the other. Truncated rows go to `set_apart`.

    The episodes of a group must be adjacent. UserError at the end if the format needs token ids and no call has any.
    """
    records = target.records(_harvests(episodes, target, training, manifest, set_apart))
    masker = SecretMasker()
    for secret in secrets_in(os.environ):
        masker.add("secret", secret)
    for record in _distinct(records, target, manifest) if distinct else records:
        manifest.records += 1
        # Tokens stay as they were sampled; texts are for others to read.
        yield record if target.needs_ids else masker.value(record)
    if target.needs_ids:
        _refuse_useless(target, manifest)


def _refuse_useless(target: ExportFormat, manifest: ExportManifest) -> None:
    """UserError if no call has token ids, or none of them can be trained on."""
    answered = manifest.counts["calls answered"]
    if answered and manifest.counts["calls without ids"] == answered:
        texts = ", ".join(one.name for one in _ALL if not one.needs_ids)
        raise UserError(
            f"`format` '{target.name}' needs token ids, and none of {answered} calls has them: give the model "
            f"'capture' in whet.toml, or export text: {texts}"
        )
    if manifest.refused and not manifest.counts["calls trained"]:
        reasons = ", ".join(f"{times} × {reason}" for reason, times in manifest.refused.most_common())
        raise UserError(f"no call can be trained on: {reasons}; docs/training.md says which settings a model needs")


def _distinct(records: Iterable[Any], target: ExportFormat, manifest: ExportManifest) -> Iterator[Any]:
    if target.says_the_same is None:
        raise UserError(f"`distinct`: records of {target.name} are never the same; expected the format 'chat'")
    seen: set[bytes] = set()
    for record in records:
        key = target.says_the_same(record)
        if key in seen:
            manifest.repeated += 1
        else:
            yield record
        seen.add(key)


def _harvests(
    episodes: Iterable[Episode],
    target: ExportFormat,
    training: Training,
    manifest: ExportManifest,
    set_apart: Callable[[Any], None],
) -> Iterator[Harvest]:
    for episode in episodes:
        manifest.rollouts += 1
        if target.needs_score and episode.reward is None:
            manifest.left_out[UNSCORED] += 1
            continue
        found = harvest(episode, training)
        manifest.count(found)
        for row in found.rows.apart:
            set_apart(canonical_row(episode, row) | {"apart": row.truncated})
        yield found
