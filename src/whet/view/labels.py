"""The labels of all runs, as pages need them. A file of labels is read again only when it has changed."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from whet.ids import digest
from whet.runs.labels import LABELS, Label, RunLabels, group_by_attempt
from whet.view.library import RunEntry, read_file_stamp
from whet.view.snapshot import FileStamp


@dataclass(frozen=True)
class LabelIndex:
    """The labels of a run at one moment."""

    labels: Sequence[Label] = ()

    @cached_property
    def by_attempt(self) -> Mapping[int, Sequence[Label]]:
        """Labels and notes by the ids of their attempts."""
        return group_by_attempt(self.labels)

    @cached_property
    def tags(self) -> Mapping[int, frozenset[str]]:
        """By attempt: its labels as filters name them, `verdict:good`, and `note` if it has notes."""
        return {attempt: frozenset(map(tag_of, labels)) for attempt, labels in self.by_attempt.items()}

    @cached_property
    def counts(self) -> Counter[str]:
        """How many attempts have each label."""
        return Counter(tag for tags in self.tags.values() for tag in tags)


@dataclass
class LabelReader:
    """Reads the labels of runs. Safe to use from several threads."""

    shown: bool = True
    """False: no run has labels, as far as pages know."""
    _kept: dict[str, tuple[FileStamp, LabelIndex]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, entry: RunEntry) -> LabelIndex:
        """The labels of a run as they are now. UserError when they cannot be read."""
        stamp = read_file_stamp(entry.path / LABELS)
        if not self.shown or stamp == (0, 0, 0):
            return LabelIndex()
        with self._lock:
            kept = self._kept.get(entry.name)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        index = LabelIndex(RunLabels(entry.path).current())
        with self._lock:
            self._kept[entry.name] = (stamp, index)
        return index


def tag_of(label: Label) -> str:
    """A label as filters name it."""
    return label.name if label.is_note else f"{label.name}:{label.value}"


def digest_result(body: bytes | None) -> bytes | None:
    """What a label keeps of the result that its author saw; None when there was none."""
    return None if body is None else bytes.fromhex(digest(body))
