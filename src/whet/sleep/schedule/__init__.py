"""Nights that start by themselves. rules.py: when one may start; lock.py: one at a time; schedule.py: who starts it."""

from whet.sleep.schedule.lock import HeldError, hold_lock
from whet.sleep.schedule.machine import local_time, look_at_machine
from whet.sleep.schedule.rules import Machine, Reason, may_start, must_end, wait_to_start

__all__ = [
    "HeldError",
    "Machine",
    "Reason",
    "hold_lock",
    "local_time",
    "look_at_machine",
    "may_start",
    "must_end",
    "wait_to_start",
]
