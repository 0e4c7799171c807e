"""`--filter`: selects rollouts by data that is known before their calls are read."""

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from whet.errors import UserError, did_you_mean
from whet.trace.training.episode import Episode

_FORM = re.compile(r"\s*(\w+)\s*(>=|<=|!=|=|>|<)\s*(.*?)\s*")
_COMPARED: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    "=": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_TEXTS = ("agent", "model", "task", "skill", "split")
_NAMES = ("score", "tag", "flag", *_TEXTS)


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition."""

    name: str
    sign: str
    value: str

    def holds(self, episode: Episode) -> bool:
        """Whether a rollout meets the condition. One without a score meets no condition on scores."""
        if self.name == "score":
            return episode.reward is not None and _COMPARED[self.sign](episode.reward, float(self.value))
        found: Sequence[str] = {"tag": episode.tags, "flag": episode.flags}.get(self.name, ())
        if self.name in _TEXTS:
            found = (getattr(episode, self.name),)
        if self.name == "task" and fnmatchcase(episode.task, self.value):
            return self.sign == "="
        return (self.value in found) == (self.sign == "=")


def read_filter(text: str) -> Filter:
    """Parse a condition such as `score>=0.5` or `tag=math`. UserError if it is invalid.

    >>> read_filter("score >= 0.5")
    Filter(name='score', sign='>=', value='0.5')
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise UserError(f"`filter` '{text}': expected NAME=VALUE, NAME!=VALUE, or score>=NUMBER and the like")
    name, sign, value = form.groups()
    if name not in _NAMES:
        raise UserError(f"`filter` '{text}': unknown name '{name}'; {did_you_mean(name, list(_NAMES))}")
    if name == "score":
        try:
            float(value)
        except ValueError as error:
            raise UserError(f"`filter` '{text}': the score is '{value}'; expected a number") from error
    elif sign not in {"=", "!="}:
        raise UserError(f"`filter` '{text}': {name} is text; expected {name}=VALUE or {name}!=VALUE")
    return Filter(name, sign, value)
