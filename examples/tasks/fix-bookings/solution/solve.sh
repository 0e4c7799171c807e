#!/bin/bash
cat > bookings.py <<'PY'
"""When a meeting room is taken and when it is free.

A span is a pair (start, end) of minutes since midnight with start < end. It does not include its end.
"""


def merge(spans):
    """Join the spans of a list that overlap or touch.

    Returns a new list of spans, sorted by start. The list that was given is not changed.
    """
    merged = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def free(spans, opening, closing):
    """The gaps between opening and closing time that no span covers, as a list of spans sorted by start.

    The spans are in any order and may overlap. They may lie partly or wholly outside the opening hours.
    """
    gaps = []
    cursor = opening
    for start, end in merge(spans):
        if start >= closing:
            break
        if start > cursor:
            gaps.append((cursor, start))
        cursor = max(cursor, end)
    if cursor < closing:
        gaps.append((cursor, closing))
    return gaps
PY
