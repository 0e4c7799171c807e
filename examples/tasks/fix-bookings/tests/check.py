"""Judges bookings.py: what its functions return is compared with a count of minutes, minute by minute."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

REWARD = Path("/logs/verifier/reward.txt")
START = time.monotonic()
DRIVER = Path(os.environ["WHET_SCRATCH"], "driver.py")
DRIVER_TEXT = """
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


def stop(reason: str) -> NoReturn:
    print("FAIL", reason)
    REWARD.write_text("0\n")
    sys.exit()


def run(*command: str, text: str = "") -> str:
    """What the work under test prints. It runs apart, where it can reach neither this judge nor its files."""
    argv = ["whet-untrusted", "--time", "20", "--", *command]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, errors="replace")
    if done.returncode == 124 or time.monotonic() - START > 90:
        stop("the work takes too long")
    return done.stdout


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

DRIVER.write_text(DRIVER_TEXT)
verdicts = []
for name, case in CASES.items():
    printed = run("python3", "-I", "-B", str(DRIVER), text=json.dumps(case))
    verdicts.append(printed == expected(*case))
    print("ok  " if verdicts[-1] else "FAIL", name)

REWARD.write_text(f"{int(all(verdicts))}\n")
