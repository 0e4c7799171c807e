"""Judges the package invoice: the command line is as before, the functions take the settings, and nothing is shared."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

REWARD = Path("/logs/verifier/reward.txt")
START = time.monotonic()
DRIVER = Path(os.environ["WHET_SCRATCH"], "driver.py")
DRIVER_TEXT = """
import sys
sys.path.insert(0, "")
from invoice import text, totals
desk, cup = [("Desk", 1, 19900)], [("Cup", 3, 255), ("Saucer", 1, 10)]
try:
    print(eval(sys.argv[1]), end="")
except TypeError:
    print("TypeError", end="")
"""
# Prints whether the settings module is there, and all sources. It loads nothing of the work.
READER = """
import json, pathlib
package = pathlib.Path("invoice")
sources = [path.read_text(errors="replace") for path in package.rglob("*.py") if path.is_file()]
print(json.dumps([(package / "settings.py").exists(), sources]))
"""
RENDER_CUP = "text.render(cup, currency='CHF', tax_percent=8)"
RENDER_DESK = "text.render(desk, currency='SEK', tax_percent=25)"


def stop(reason: str) -> NoReturn:
    print("FAIL", reason)
    REWARD.write_text("0\n")
    sys.exit()


def run(*arguments: str) -> str:
    """What the work under test prints. It runs apart, where it can reach neither this judge nor its files."""
    argv = ["whet-untrusted", "--time", "20", "--", "python3", "-B", *arguments]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode == 124 or time.monotonic() - START > 90:
        stop("the work takes too long")
    return done.stdout


def value(expression: str) -> str:
    return run("-I", str(DRIVER), expression)


def command(*arguments: str) -> str:
    return run("-m", "invoice", *arguments)


def invoice(*rows: str) -> str:
    """The text of an invoice. Each row, given as `label: amount`, is 40 columns wide; the last three are the sums."""
    filled = [label.ljust(40 - len(amount)) + amount for label, amount in (row.split(": ") for row in rows)]
    return "\n".join([*filled[:-3], "-" * 40, *filled[-3:], ""])


CUP = invoice("3 x Cup: 7.65 CHF", "1 x Saucer: 0.10 CHF", "net: 7.75 CHF", "tax 8%: 0.62 CHF", "to pay: 8.37 CHF")
DESK = invoice("1 x Desk: 199.00 SEK", "net: 199.00 SEK", "tax 25%: 49.75 SEK", "to pay: 248.75 SEK")
PEN = invoice("7 x Pen: 8.75 EUR", "net: 8.75 EUR", "tax 19%: 1.66 EUR", "to pay: 10.41 EUR")
MAP = invoice("1 x Map: 4.00 USD", "net: 4.00 USD", "tax 0%: 0.00 USD", "to pay: 4.00 USD")
SHARED = re.compile(r"^[ \t]*(global\b|(from|import)\b.*\bsettings\b)", re.MULTILINE)

DRIVER.write_text(DRIVER_TEXT)
has_settings, sources = json.loads(run("-I", "-c", READER) or "[true, []]")
usage = command("--help")
CHECKS = {
    "the command line with its defaults": command("Pen;7;1.25") == PEN,
    "the command line with both options": command("--currency", "USD", "--tax-percent", "0", "Map;1;4") == MAP,
    "the help text": "default: EUR" in usage and "default: 19" in usage,
    "gross takes the tax rate": value("totals.gross(cup, 8), totals.gross(desk, 0), totals.gross(cup, tax_percent=50)")
    == "(837, 19900, 1163)",
    "render takes both settings": value(RENDER_CUP) == CUP and value(RENDER_DESK) == DESK,
    "one call does not change the next": value(f"{RENDER_CUP} + {RENDER_DESK} + {RENDER_CUP}") == CUP + DESK + CUP,
    "render takes them by keyword only": value("text.render(cup, 'CHF', 8)") == "TypeError",
    "render has no defaults": value("text.render(cup, currency='CHF')") == "TypeError"
    and value("text.render(cup, tax_percent=8)") == "TypeError",
    "no settings module and no global state": not has_settings and not any(SHARED.search(source) for source in sources),
}
for name, passed in CHECKS.items():
    print("ok  " if passed else "FAIL", name)

REWARD.write_text(f"{int(all(CHECKS.values()))}\n")
