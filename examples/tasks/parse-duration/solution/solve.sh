#!/bin/bash
cat > durations.py <<'PY'
"""Durations as people write them."""

import re

_DURATION = re.compile(r" *(?:([0-9]+)d)? *(?:([0-9]+)h)? *(?:([0-9]+)m)? *(?:([0-9]+)s)? *", re.IGNORECASE | re.ASCII)
_SECONDS = (86400, 3600, 60, 1)


def parse_duration(text):
    """Whole seconds of a text such as `1h 30m`."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError(f"not a duration: {text!r}")
    return sum(int(count or 0) * seconds for count, seconds in zip(match.groups(), _SECONDS, strict=True))
PY
