"""Skills by their texts, for those who make a skill of others: a merge, or a skill without one of its rules."""

from collections.abc import Mapping
from typing import Protocol


class SkillTexts(Protocol):
    """Where the documents of a skill are found that edits may change, and a skill with others is put."""

    def documents(self, skill: str) -> dict[str, str]:
        """Those of the skill of this digest, by their names; the main one is the first."""
        ...

    def with_documents(self, skill: str, documents: Mapping[str, str]) -> str:
        """The digest of this skill with these documents in place of its own."""
        ...


class PlainTexts:
    """Skills that are nothing but their texts, which stand for themselves."""

    def documents(self, skill: str) -> dict[str, str]:
        """The skill is its only document."""
        return {"": skill}

    def with_documents(self, skill: str, documents: Mapping[str, str]) -> str:  # noqa: ARG002 - nothing else is kept
        """The document."""
        return documents[""]
