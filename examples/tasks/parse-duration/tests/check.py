"""Judges durations.py: the reward is the share of the rules that hold on texts that the instruction does not show."""

import json
import os
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
from durations import parse_duration
def outcome(text):
    try:
        return parse_duration(text)
    except ValueError:
        return "ValueError"
print(json.dumps([outcome(text) for text in json.load(sys.stdin)]))
"""
WRONG = "ValueError"
RULES = {
    "one part": {"7s": 7, "12m": 720, "5h": 18000, "3d": 259200, "0s": 0},
    "several parts": {"1d2h3m4s": 93784, "2h5s": 7205, "1d1s": 86401},
    "upper case": {"3H": 10800, "1D2h3M4S": 93784},
    "spaces around and between parts": {"  8m ": 480, "1h  2m 3s": 3723, " 1d2h ": 93600},
    "large numbers and leading zeros": {"100000s": 100000, "0048h": 172800, "61m61s": 3721},
    "nothing at all": {"": WRONG, "   ": WRONG},
    "no unit, or no number": {"15": WRONG, "h": WRONG, "1h 15": WRONG, "m5": WRONG},
    "a space inside a part": {"5 m": WRONG, "1 0s": WRONG},
    "signs and decimal points": {"-5m": WRONG, "+5m": WRONG, "1.5h": WRONG, "1,5h": WRONG},
    "unknown units and stray text": {"3w": WRONG, "5ms": WRONG, "1h and 5m": WRONG, "1h,5m": WRONG},
    "repeated units": {"1h2h": WRONG, "5s 5s": WRONG, "1m2M": WRONG},
    "wrong order": {"5m1h": WRONG, "1s 1d": WRONG, "1h2d3s": WRONG},
    "other white space and other digits": {"5m\n": WRONG, "1h\t5m": WRONG, "\u0665m": WRONG},
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


DRIVER.write_text(DRIVER_TEXT)
verdicts = []
for rule, cases in RULES.items():
    printed = run("python3", "-I", "-B", str(DRIVER), text=json.dumps(list(cases)))
    verdicts.append(printed == json.dumps(list(cases.values())) + "\n")
    print("ok  " if verdicts[-1] else "FAIL", rule)

# A function that refuses everything, or that checks nothing, must not live off half of the rules.
if not (any(verdicts[:5]) and any(verdicts[5:])):
    verdicts = [False]
REWARD.write_text(f"{sum(verdicts) / len(verdicts):.4f}\n")
