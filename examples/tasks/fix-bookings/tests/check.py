"""Judges bookings.py: what its functions return is compared with a count of minutes, minute by minute."""

import json
import random
import resource
import subprocess
from pathlib import Path

DRIVER = """
import json, sys
sys.path.insert(0, "")
import bookings
spans, opening, closing = json.load(sys.stdin)
spans = [tuple(span) for span in spans]
print(json.dumps([bookings.merge(list(spans)), bookings.free(list(spans), opening, closing)]))
bookings.merge(given := list(spans))
bookings.free(given, opening, closing)
print(json.dumps(given))
"""
DAY = (480, 1080)
CASES = {
    "bookings in any order": ([(700, 760), (500, 520), (610, 640)], *DAY),
    "touching and nested bookings": ([(500, 900), (510, 520), (900, 910), (600, 910)], *DAY),
    "a booking that ends before opening": ([(60, 120), (600, 660)], *DAY),
    "a booking across opening": ([(400, 500)], *DAY),
    "a booking across closing": ([(600, 660), (1050, 1200)], *DAY),
    "bookings after closing": ([(600, 660), (1100, 1130), (1200, 1260)], *DAY),
    "a booking of the whole day": ([(0, 1440), (500, 600)], *DAY),
}


def run(argv: list[str], text: str) -> str:
    """What the work under test prints. It may not write files, so it cannot write its own reward."""
    try:
        return subprocess.run(
            argv, input=text, capture_output=True, text=True, errors="replace", timeout=20,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        ).stdout  # fmt: skip
    except subprocess.TimeoutExpired:
        return ""


def stretches(minutes: set[int]) -> list[list[int]]:
    """The spans that cover exactly these minutes."""
    starts = sorted(m for m in minutes if m - 1 not in minutes)
    ends = sorted(m + 1 for m in minutes if m + 1 not in minutes)
    return [list(span) for span in zip(starts, ends, strict=True)]


def expected(spans: list[tuple[int, int]], opening: int, closing: int) -> str:
    taken = {minute for start, end in spans for minute in range(start, end)}
    results = [stretches(taken), stretches(set(range(opening, closing)) - taken)]
    return f"{json.dumps(results)}\n{json.dumps(spans)}\n"


chance = random.Random(7)  # noqa: S311
for number in range(1, 13):
    starts = [chance.randrange(60) for _ in range(chance.randrange(1, 8))]
    CASES[f"random bookings {number}"] = ([(start, start + chance.randrange(1, 20)) for start in starts], 20, 50)

verdicts = []
for name, case in CASES.items():
    printed = run(["python3", "-I", "-B", "-c", DRIVER], json.dumps(case))
    verdicts.append(printed == expected(*case))
    print("ok  " if verdicts[-1] else "FAIL", name)

for left_behind in Path("/logs/verifier").glob("reward.*"):
    left_behind.unlink()
Path("/logs/verifier/reward.txt").write_text(f"{int(all(verdicts))}\n")
