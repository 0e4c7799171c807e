"""Judges durations.py: the reward is the share of the rules that hold on texts that the instruction does not show."""

import json
import resource
import subprocess
from pathlib import Path

DRIVER = """
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


def run(argv: list[str], text: str) -> str:
    """What the work under test prints. It may not write files, so it cannot write its own reward."""
    try:
        return subprocess.run(
            argv, input=text, capture_output=True, text=True, errors="replace", timeout=20,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        ).stdout  # fmt: skip
    except subprocess.TimeoutExpired:
        return ""


verdicts = []
for rule, cases in RULES.items():
    printed = run(["python3", "-I", "-B", "-c", DRIVER], json.dumps(list(cases)))
    verdicts.append(printed == json.dumps(list(cases.values())) + "\n")
    print("ok  " if verdicts[-1] else "FAIL", rule)

# A function that refuses everything, or that checks nothing, must not live off half of the rules.
if not (any(verdicts[:5]) and any(verdicts[5:])):
    verdicts = [False]
for left_behind in Path("/logs/verifier").glob("reward.*"):
    left_behind.unlink()
Path("/logs/verifier/reward.txt").write_text(f"{sum(verdicts) / len(verdicts):.4f}\n")
