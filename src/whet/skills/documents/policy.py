"""Policy: what of a document may be changed, and how long it may become."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Policy(BaseModel):
    """What proposals may do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    opens: Literal["anything", "learned", "sections"] = "anything"
    """All of the text, only the learned block, or only the sections that are named. Marked parts stay closed."""
    sections: tuple[str, ...] = ()
    """Titles of the sections that are open."""
    max_chars: int = Field(default=12_000, gt=0)
    """How long a document may become by edits. One that is longer already may not grow."""

    def within(self, section: str | None) -> "Policy | None":
        """The same for one section alone; None when it is closed. The learned block is one section."""
        if section is None or self.opens == "learned":
            return self
        if self.opens == "sections" and section.casefold() not in map(str.casefold, self.sections):
            return None
        return self.model_copy(update={"opens": "sections", "sections": (section,)})
