"""Split tasks into train tasks for the search, validation tasks for exams, and test tasks for the held-out test."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from whet.errors import UserError
from whet.ids import digest
from whet.tasks import Task

SHARES = (0.4, 0.3, 0.3)
"""Shares of train, validation and test tasks, among tasks without a split of their own."""
FEWEST_TRAIN = 3
FEWEST_VALIDATION = 5
"""An exam draws with replacement, so it is valid with few tasks; but its verdict is about these tasks only."""


@dataclass(frozen=True, slots=True)
class Splits:
    """The tasks of each split; no task is in two of them."""

    train: tuple[Task, ...]
    validation: tuple[Task, ...]
    test: tuple[Task, ...]

    def __str__(self) -> str:
        return f"{len(self.train)} training, {len(self.validation)} validation and {len(self.test)} test tasks"


def split_tasks(tasks: Sequence[Task], seed: int) -> Splits:
    """Split tasks by their key 'split', and all others by a hash of seed and id, so that an added task moves no other.

    UserError when a task is in two splits, or a split has too few tasks.
    """
    sides: dict[str, list[Task]] = {"train": [], "val": [], "test": []}
    for task in tasks:
        sides[task.split or _draw(task, seed)].append(task)
    splits = Splits(*(tuple(side) for side in sides.values()))
    _refuse_too_few(splits)
    _refuse_overlap(splits)
    return splits


def _draw(task: Task, seed: int) -> str:
    thrown = int(digest(str(seed).encode(), task.id.encode()), 16) / 2**128
    train, validation, _ = SHARES
    return "train" if thrown < train else "val" if thrown < train + validation else "test"


def _refuse_too_few(splits: Splits) -> None:
    named = {"train": (splits.train, FEWEST_TRAIN), "val": (splits.validation, FEWEST_VALIDATION)}
    for name, (side, fewest) in named.items():
        if len(side) < fewest:
            raise UserError(
                f"there are {splits}; expected at least {fewest} with split '{name}'; give tasks a key 'split' "
                "(train, val or test), or add tasks: with about 15, a random split is large enough"
            )


def _refuse_overlap(splits: Splits) -> None:
    seen: dict[str, str] = {}
    counted = Counter(task.id for side in (splits.train, splits.validation, splits.test) for task in side)
    twice = next((name for name, count in counted.items() if count > 1), None)
    if twice is not None:
        raise UserError(f"two tasks have the id '{twice}'; expected a different id for each task")
    for name, side in (("train", splits.train), ("val", splits.validation), ("test", splits.test)):
        here = {_content(task): task.id for task in side}
        if both := here.keys() & seen.keys():
            same = both.pop()
            raise UserError(
                f"task '{here[same]}' with split '{name}' is the same as task '{seen[same]}' in another split; "
                "a task of the search cannot certify a skill"
            )
        seen |= here


def _content(task: Task) -> str:
    """The content that an agent sees: two tasks with the same content are the same, whatever their ids and splits."""
    content = task.model_dump_json(include={"instruction", "followups", "files", "setup"})
    # Files outside of the task are not compared one by one: the digest covers them.
    elsewhere = task.digest if task.workspace or task.attachments else ""
    return f"{content}{elsewhere}"
