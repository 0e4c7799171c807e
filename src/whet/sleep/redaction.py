"""Removes secrets and people's names from sessions, before anything of them is stored or sent to a model.

`Redaction.redact_session` masks a session; `refuse_secrets` and `refuse_private` are the second check, on what leaves.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from whet.errors import UserError
from whet.sleep.known_values import find_known_values
from whet.sleep.people import People, find_authors, find_mail
from whet.sleep.session import Session, Step, Turn
from whet.text.redact import mask_pieces
from whet.text.secrets import Rule, SecretMasker
from whet.text.vendor_patterns import vendor_rules

REPOSITORY, HOME = "$REPO", "$HOME"
"""What stands for the session's repository and for a home folder in paths."""
_MASK = re.compile(r"\[redacted:[a-z0-9-]{1,40}:\d{1,6}\]|<author-\d{1,6}>")
_OTHER_HOME = re.compile(r"(?<![\w.$}-])/(?:home|Users)/[A-Za-z0-9._-]{1,64}(?=[/\s\"'`:,;)\]]|$)")
_AFTER = r"(?![A-Za-z0-9_-]|\.[A-Za-z0-9])"
"""A path does not end in the middle of a name."""
_SEAM = 4096
"""How much of two outputs is looked at together."""
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


class SecretFoundError(UserError):
    """A text that would leave the machine, or go into a file of the user, holds a secret. Its value is not named."""


class Redaction:
    """Masks the sessions of one night. What it knows of secrets stays in memory.

    >>> redaction = Redaction({"SHOP_TOKEN": "f00-ba4-b4z"}, Path("/home/dev"))
    >>> redaction.redact_text("curl -H 'X-Shop: f00-ba4-b4z' # see /home/dev/notes")
    "curl -H 'X-Shop: [redacted:known:1]' # see $HOME/notes"
    """

    def __init__(
        self, env: Mapping[str, str], home: Path, repositories: Iterable[Path] = (), extra: Iterable[str] = ()
    ) -> None:
        """Args: extra: Regular expressions of what else the user wants masked."""
        self._home = home
        self._repositories = sorted(repositories, key=lambda path: len(path.parts), reverse=True)
        self._known = sorted(find_known_values(env, home, self._repositories))
        self._rules = [*vendor_rules(), *map(_read_extra, extra)]
        self._authors: dict[Path, Mapping[str, int]] = {}
        self.count = 0
        """Distinct secrets that were masked so far, in each session by itself."""

    def redact_session(self, session: Session) -> Session:
        """The session with masks in all its texts. `cwd` and places in files stay: they are needed, and never sent."""
        masks = self._masks(self._repository_of(session))
        for text in _texts(session):
            masks.look(text)
        steps = iter(masks.join_split([step for turn in session.turns for step in turn.steps]))
        turns = [turn.model_copy(update={"steps": tuple(islice(steps, len(turn.steps)))}) for turn in session.turns]
        self.count += len(masks.secrets)
        return session.model_copy(
            update={
                "branch": session.branch and masks.text(session.branch),
                "turns": tuple(_redact_turn(turn, masks) for turn in turns),
            }
        )

    def redact_text(self, text: str, repository: Path | None = None) -> str:
        """One text that belongs to no session."""
        masks = self._masks(repository)
        masks.look(text)
        return masks.text(text)

    def refuse_secrets(self, text: str, what: str) -> None:
        """The check of every prompt before it is sent. SecretFoundError names `what` and the kind of secret."""
        masks = self._masks(None)
        masks.look(text)
        if masks.secrets:
            kind = next(iter(masks.secrets.values())).split(":")[1]
            raise SecretFoundError(f"{what} holds a secret of the kind '{kind}'; expected a text without secrets")

    def refuse_private(self, text: str, what: str) -> None:
        """The check of every text that is proposed for a file: no secret, no mask, no mail address, no home path."""
        self.refuse_secrets(text, what)
        if mask := _MASK.search(text):
            raise SecretFoundError(
                f"{what} holds {mask[0]}, a mask for something private; expected a text without masks"
            )
        if find_mail(text):
            raise SecretFoundError(f"{what} holds an e-mail address; expected a text without any")
        if _OTHER_HOME.search(text) or _path(self._home).search(text):
            raise SecretFoundError(f"{what} holds a path in a home folder; expected paths inside the repository")

    def scan_file(self, content: bytes) -> bool:
        """Whether a file of a repository holds a secret, so that it must not come into a box."""
        try:
            self.refuse_secrets(content.decode(errors="replace"), "the file")
        except SecretFoundError:
            return True
        return False

    def _repository_of(self, session: Session) -> Path | None:
        if session.cwd is None:
            return None
        cwd = Path(session.cwd)
        found = [one for one in self._repositories if cwd.is_relative_to(one)]
        return found[0] if found else None if self._home.is_relative_to(cwd) else cwd

    def _masks(self, repository: Path | None) -> "_Masks":
        if repository is not None and repository not in self._authors:
            self._authors[repository] = find_authors(repository)
        people = People(self._authors[repository] if repository else {})
        places = [(_path(repository), REPOSITORY)] if repository else []
        return _Masks(self._known, self._rules, people, [*places, (_path(self._home), HOME), (_OTHER_HOME, HOME)])


class _Masks:
    """What stands for what in one session."""

    def __init__(
        self, known: Sequence[str], rules: Sequence[Rule], people: People, places: Sequence[tuple[re.Pattern[str], str]]
    ) -> None:
        self._known, self._people, self._places = known, people, places
        self._masker = SecretMasker(rules)

    @property
    def secrets(self) -> Mapping[str, str]:
        return self._masker.masks

    def look(self, text: str) -> None:
        """Remember the secrets in a text, also in the texts that it quotes."""
        for value in self._known:
            if value in text:
                self._masker.add("known", value)
        self._masker.look(text)
        if "\\n" in text or '\\"' in text:
            self._masker.look(_unescape(text))

    def text(self, text: str) -> str:
        """A text without what is known by now, and without pieces of it."""
        text = self._masker.replace(text)
        for secret, mask in self.secrets.items():
            for line in secret.split("\n"):
                if not line.startswith("-----"):
                    text = mask_pieces(text, line.lstrip("/"), mask)
        text = self._people.clean(text, self._mask_mail)
        for place, name in self._places:
            text = place.sub(name, text)
        return text

    def _mask_mail(self, address: str) -> str:
        self._masker.add("mail", address)
        return self.secrets[address]

    def join_split(self, steps: Sequence[Step]) -> list[Step]:
        """The steps with masks for secrets that begin at the end of one output and go on in the next."""
        steps = list(steps)
        for at in range(1, len(steps)):
            first, second = steps[at - 1].output, steps[at].output
            if not first or not second or first[-1].isspace() or second[0].isspace():
                continue
            end, start = first[-_SEAM:], second[:_SEAM]
            self.look(end + start)
            for secret in self.secrets:
                begin = (end + start).find(secret, max(0, len(end) - len(secret) + 1))
                if 0 <= begin < len(end) < begin + len(secret):
                    left, right = len(end) - begin, begin + len(secret) - len(end)
                    mask = self.secrets[secret]
                    steps[at - 1] = steps[at - 1].model_copy(update={"output": first[:-left] + mask})
                    steps[at] = steps[at].model_copy(update={"output": mask + second[right:]})
                    break
        return steps


def _unescape(text: str) -> str:
    """A text as it was before it was quoted once in JSON.

    >>> _unescape('{\\\\"a\\\\": 1}')
    '{"a": 1}'
    """
    return _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[1]), text)


def _read_extra(pattern: str) -> Rule:
    try:
        return Rule("extra", (), re.compile(pattern))
    except re.error as error:
        raise UserError(
            f"redact_extra: {pattern!r} does not compile ({error}); expected a regular expression"
        ) from None


def _path(folder: Path) -> re.Pattern[str]:
    return re.compile(re.escape(str(folder)) + _AFTER)


def _texts(session: Session) -> Iterator[str]:
    for turn in session.turns:
        yield turn.text
        yield turn.answer
        for step in turn.steps:
            yield from (text for text in (step.command, step.output, step.before, step.after) if text)


def _redact_turn(turn: Turn, masks: _Masks) -> Turn:
    return turn.model_copy(
        update={
            "text": masks.text(turn.text),
            "answer": masks.text(turn.answer),
            "steps": tuple(_redact_step(step, masks) for step in turn.steps),
        }
    )


def _redact_step(step: Step, masks: _Masks) -> Step:
    fields = {name: getattr(step, name) for name in ("tool", "command", "path", "before", "after", "output")}
    return step.model_copy(update={name: masks.text(text) for name, text in fields.items() if text})
