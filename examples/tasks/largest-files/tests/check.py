"""Judges largest.sh on folders that the workspace does not show."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

REWARD = Path("/logs/verifier/reward.txt")
START = time.monotonic()
PLAIN = {"a.txt": 10, "b/c.txt": 300, "b/d/e.txt": 9, "f": 0}
ODD = {
    "two words.txt": 70,
    "a folder/-n": 71,
    " lead": 72,
    "tab\tin it": 73,
    "star * and ?": 74,
    "back\\slash": 75,
    'it\'s "so"': 76,
}
TIES = {"b": 5, "B": 5, "a/z": 5, "a.z": 5, "é": 5, "_": 6}
HIDDEN = {".profile": 40, ".cache/x": 50, "seen": 30}


def stop(reason: str) -> NoReturn:
    print("FAIL", reason)
    REWARD.write_text("0\n")
    sys.exit()


def run(*arguments: str) -> tuple[int, str, str]:
    """How the work under test ends and what it prints. It runs apart, and reaches neither this judge nor its files."""
    argv = ["whet-untrusted", "--time", "20", "--", "sh", "largest.sh", *arguments]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode == 124 or time.monotonic() - START > 90:
        stop("the work takes too long")
    return done.returncode, os.fsdecode(done.stdout), os.fsdecode(done.stderr)


def folder(files: dict[str, int]) -> Path:
    """A new folder with files of these sizes, a link to a file, and a link to a folder."""
    root, elsewhere = (Path(tempfile.mkdtemp(dir=os.environ["WHET_SCRATCH"])) for _ in range(2))
    (elsewhere / "big").write_bytes(bytes(5000))
    for path, size in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(bytes(size))
    (root / "link to file").symlink_to(elsewhere / "big")
    (root / "link to folder").symlink_to(elsewhere)
    return root


def lists(files: dict[str, int], count: int, suffix: str = "") -> bool:
    ranked = sorted(files.items(), key=lambda file: (-file[1], os.fsencode(file[0])))[:count]
    expected = "".join(f"{size}\t{path}\n" for path, size in ranked)
    return run(f"{folder(files)}{suffix}", str(count))[:2] == (0, expected)


def refuses(*arguments: str) -> bool:
    code, stdout, stderr = run(*arguments)
    return code == 2 and not stdout and bool(stderr.strip())


plain = str(folder(PLAIN))
CHECKS = {
    "the largest come first": lists(PLAIN, 2),
    "fewer files than asked for": lists(PLAIN, 100),
    "a slash behind the folder": lists(PLAIN, 3, "/"),
    "a folder without files": lists({}, 5),
    "odd names": lists(ODD, 7),
    "equal sizes in byte order of the path": lists(TIES, 4),
    "hidden files": lists(HIDDEN, 2),
    "many files": lists({f"{n % 7}/file {n}": n * 37 % 101 for n in range(300)}, 250),
    "wrong number of arguments": refuses() and refuses(plain) and refuses(plain, "1", "2"),
    "a folder that is not there": refuses(f"{plain}/none", "3") and refuses(f"{plain}/a.txt", "3"),
    "a number that is none": all(refuses(plain, number) for number in ("0", "-1", "x", "1.5", "", "3x")),
}
for name, passed in CHECKS.items():
    print("ok  " if passed else "FAIL", name)

REWARD.write_text(f"{int(all(CHECKS.values()))}\n")
