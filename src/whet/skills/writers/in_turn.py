"""Several writers as one: the next is asked when those before it have nothing more to propose."""

from dataclasses import replace

from whet.skills.brief import Brief, Draft, Writer


class InTurn:
    """Asks its writers in their order."""

    def __init__(self, writers: tuple[Writer, ...]) -> None:
        self._writers = writers

    async def write(self, brief: Brief) -> Draft:
        """The draft of the first writer that has edits, with what was refused to those before it."""
        drafts: list[Draft] = []
        for writer in self._writers:
            drafts.append(await writer.write(brief))
            if drafts[-1].edits:
                break
        return replace(drafts[-1], refused=tuple(one for draft in drafts for one in draft.refused))
