"""What a model said that sentences mean, kept so that each sentence is shown to a model once."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from whet.ids import digest
from whet.sleep.rules.corrections import Demand, Wish
from whet.sleep.rules.model_corrections import Interpret, Meanings, Unread
from whet.sleep.store import SleepStore


class _Wish(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    demand: Demand
    words: str


class Meaning(BaseModel):
    """What one sentence asks for. It names its session, so that it is forgotten with it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    session: str
    wishes: tuple[_Wish, ...]


def recall_meanings(store: SleepStore, unread: Sequence[Unread]) -> Meanings:
    """The meanings that are known, by the index of their sentence."""
    found = {index: store.get("meaning", _name(one), Meaning) for index, one in enumerate(unread)}
    return {
        index: [Wish(wish.demand, wish.words) for wish in meaning.wishes]
        for index, meaning in found.items()
        if meaning is not None
    }


def make_recaller(store: SleepStore) -> Interpret:
    """Interprets sentences by what a model said before. None is asked."""

    async def recall(unread: Sequence[Unread]) -> Meanings:
        return recall_meanings(store, unread)

    return recall


def keep_meanings(store: SleepStore, unread: Sequence[Unread], meanings: Meanings) -> None:
    """Keep what sentences mean."""
    for index, wishes in meanings.items():
        one = unread[index]
        kept = tuple(_Wish(demand=wish.demand, words=wish.words) for wish in wishes)
        store.put("meaning", _name(one), Meaning(session=one.session, wishes=kept))


def _name(one: Unread) -> str:
    return digest(one.session.encode(), one.sentence.encode())[:16]
