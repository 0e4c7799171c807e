"""The manifest of an export: its contents, and everything that was left out, with the reason."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.trace.training.rows import Harvest

ADVANTAGE = "(reward - mean of the group) / population standard deviation of the group"


@dataclass(slots=True)
class ExportManifest:
    """Counts the contents of an export, rollout by rollout."""

    rollouts: int = 0
    exported: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """Rollouts that were left out, by reason."""
    records: int = 0
    repeated: int = 0
    """Records that were left out because they repeat an earlier one."""
    counts: Counter[str] = field(default_factory=Counter)
    breaks: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    """Calls with ids that were not trained, by reason."""
    truncated: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    largest_row: int = 0
    rewards: dict[str, set[float]] = field(default_factory=lambda: defaultdict(set))
    samples: Counter[str] = field(default_factory=Counter)
    """Scored rollouts by group."""
    apart: Path | None = None
    """The file of the truncated rows, if there are any."""

    def leave_out(self, reason: str, rollouts: int) -> None:
        """Count rollouts that were left out without being read."""
        if rollouts:
            self.rollouts += rollouts
            self.left_out[reason] += rollouts

    def count(self, harvest: Harvest) -> None:
        """Count a rollout that is exported."""
        self.exported += 1
        self.counts.update(harvest.counts)
        self.breaks.update(harvest.breaks)
        self.refused.update(harvest.refused)
        self.truncated.update(
            "output limit" if "limit" in (row.truncated or "") else "too long" for row in harvest.rows.apart
        )
        self.dropped.update(harvest.rows.dropped)
        self.largest_row = max([self.largest_row, *(len(row.tokens) for row in harvest.rows.rows)])
        if harvest.episode.reward is not None:
            self.rewards[harvest.episode.group].add(harvest.episode.reward)
            self.samples[harvest.episode.group] += 1

    @property
    def groups_without_variance(self) -> int:
        """Groups of several rollouts with equal rewards, which yield no advantage."""
        return sum(len(self.rewards[group]) == 1 for group, times in self.samples.items() if times > 1)

    @property
    def merge_ratio(self) -> float | None:
        """Tokens of one row per call, divided by the tokens of the merged rows."""
        merged = self.counts["tokens of merged rows"]
        return self.counts["tokens of one row per call"] / merged if merged else None

    def as_json(self) -> dict[str, Any]:
        return {
            "rollouts": self.rollouts,
            "rollouts exported": self.exported,
            "rollouts left out": dict(self.left_out),
            "records": self.records,
            "records left out as repeated": self.repeated,
            **dict(self.counts),
            "calls not trained": dict(self.refused),
            "chain breaks": dict(self.breaks),
            "rows apart by reason": dict(self.truncated),
            "rows dropped by reason": dict(self.dropped),
            "largest row": self.largest_row,
            "merge ratio": self.merge_ratio,
            "groups": len(self.rewards),
            "groups without variance": self.groups_without_variance,
            "advantage": ADVANTAGE,
        }

    def lines(self, with_rows: bool) -> Iterator[str]:
        """The summary that is printed."""
        counts = self.counts
        yield f"{self.exported} of {self.rollouts} rollouts, {self.records} records"
        for reason, times in sorted(self.left_out.items()):
            yield f"  left out: {times} {reason}"
        if self.repeated:
            yield f"  {self.repeated} conversations that an earlier line has already"
        if not with_rows:
            return
        yield (
            f"{counts['rows']} rows, {counts['tokens']:,} tokens, of which {counts['trained tokens']:,} are trained; "
            f"longest {self.largest_row:,}"
        )
        kinds = ("seen", "trained", "context only", "discarded", "without ids", "unclassified")
        yield "calls: " + ", ".join(f"{counts[f'calls {kind}']} {kind}" for kind in kinds)
        if self.merge_ratio is not None:
            yield f"one row per call would have {self.merge_ratio:.1f} times as many tokens"
        for title, reasons in (
            ("not trained", self.refused),
            ("chain broken", self.breaks),
            ("row kept apart", self.truncated),
            ("row dropped", self.dropped),
        ):
            for reason, times in sorted(reasons.items()):
                yield f"  {title}: {times} × {reason}"
        if self.apart is not None:
            yield f"  {self.truncated.total()} truncated rows are in {self.apart}"
        if counts["rows straddled"]:
            yield f"  {counts['rows straddled']} rows were sampled by several versions of the weights"
        if self.groups_without_variance:
            yield f"  {self.groups_without_variance} groups have the same reward throughout: their advantage is 0"
        if self.samples:
            yield f"advantage: {ADVANTAGE}"
