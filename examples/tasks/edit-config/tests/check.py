"""Judges worker.ini: it is exactly the expected file, or the differences are shown."""

import difflib
import subprocess
from pathlib import Path

expected = Path("/tests/expected.ini").read_bytes()
# Read apart: what has this name can be a link to the expected file, a pipe, or endless.
found = subprocess.run(["whet-untrusted", "--time", "5", "cat", "worker.ini"], capture_output=True).stdout

print("ok  " if found == expected else "FAIL", "worker.ini has the six changes and no other")
shown = [text[:100_000].decode(errors="replace").splitlines(keepends=True) for text in (expected, found)]
print("".join(difflib.unified_diff(*shown, "expected", "found", n=0)), end="")

Path("/logs/verifier/reward.txt").write_text(f"{int(found == expected)}\n")
