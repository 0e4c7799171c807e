"""Judges worker.ini: it is exactly the expected file, or the differences are shown."""

import difflib
from pathlib import Path

expected = Path("/tests/expected.ini").read_bytes()
edited = Path("worker.ini")
# A link could lead to the expected file itself.
found = edited.read_bytes() if edited.is_file() and not edited.is_symlink() else b""

print("ok  " if found == expected else "FAIL", "worker.ini has the six changes and no other")
shown = [text.decode(errors="replace").splitlines(keepends=True) for text in (expected, found)]
print("".join(difflib.unified_diff(*shown, "expected", "found", n=0)), end="")

Path("/logs/verifier/reward.txt").write_text(f"{int(found == expected)}\n")
