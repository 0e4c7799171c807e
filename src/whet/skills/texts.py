"""Skills by their texts, for those who make a skill of others: a merge, or a skill without one of its rules."""

from typing import Protocol


class Texts(Protocol):
    """Where the text of a skill is found, and a skill with another text is put."""

    def text(self, skill: str) -> str:
        """The main document of the skill of this digest."""
        ...

    def with_text(self, skill: str, text: str) -> str:
        """The digest of this skill with another text in its main document."""
        ...


class Verbatim:
    """Skills that are nothing but their texts, which stand for themselves."""

    def text(self, skill: str) -> str:
        """The skill."""
        return skill

    def with_text(self, skill: str, text: str) -> str:  # noqa: ARG002 - there is nothing else to keep of it
        """The text."""
        return text
