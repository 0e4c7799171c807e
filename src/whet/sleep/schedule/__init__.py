"""When a night may run by itself. lock.py: one at a time."""

from whet.sleep.schedule.lock import HeldError, hold_lock

__all__ = ["HeldError", "hold_lock"]
