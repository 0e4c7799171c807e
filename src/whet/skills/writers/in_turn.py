"""Several writers as one: the next is asked when those before it have nothing more to propose."""

from dataclasses import replace

from whet.skills.brief import Brief, Draft, Writer
from whet.skills.edits import Refused


class InTurn:
    """Asks its writers in their order."""

    def __init__(self, writers: tuple[Writer, ...]) -> None:
        self._writers = writers

    async def write(self, brief: Brief) -> Draft:
        """The draft of the first writer that has edits, with what was refused to those before it."""
        refused: tuple[Refused, ...] = ()
        for writer in self._writers:
            draft = await writer.write(brief)
            refused += draft.refused
            if draft.edits:
                break
        return replace(draft, refused=refused)
