"""What watches a rollout while it runs."""

from typing import Literal, Protocol

from whet.exchange import Exchange

Phase = Literal["setup", "agent", "judge"]


class RolloutObserver(Protocol):
    """Learns of the progress of one rollout. It is called on the event loop, so it must return quickly. If it raises,
    the attempt ends with a missing score of cause `internal`."""

    def on_phase(self, phase: Phase) -> None:
        """A phase begins. A retried rollout begins with `setup` again."""
        ...

    def on_exchange(self, exchange: Exchange) -> None:
        """A model call of the agent has ended and is recorded."""
        ...
