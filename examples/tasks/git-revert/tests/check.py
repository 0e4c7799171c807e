"""Judges the repository: one commit on top of the old history, with the one right content."""

import subprocess
from pathlib import Path

TIP = "8b73864d424f242ac18c9951bd15b12b23007217"
CULPRIT = "14a6dbb9fdbbd75d7106f76ff9e181ae4e18b07a"
REVERTED_TREE = "7af05c914e4b23d8fdfcc482dcdcb843606576dd"
ROBOT = "Release Robot <robot@example.com>"
APART = ["whet-untrusted", "--time", "20", "--env", "GIT_CONFIG_GLOBAL=/dev/null", "--env", "GIT_OPTIONAL_LOCKS=0"]
# What the repository's configuration can have answer in git's place.
WITHOUT = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]


def git(*arguments: str) -> str:
    """What git prints about the repository. Its configuration can start programs, so git runs apart from this judge."""
    argv = [*APART, "git", "--no-replace-objects", *WITHOUT, "-C", "repo", *arguments]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    return done.stdout if done.returncode == 0 else "failed"


header, _, message = git("cat-file", "commit", "refs/heads/main").partition("\n\n")
facts = [line.partition(" ")[::2] for line in header.splitlines()]
people = [value.rpartition(">")[0] + ">" for key, value in facts if key in {"author", "committer"}]
CHECKS = {
    "one commit on top of the old history": [value for key, value in facts if key == "parent"] == [TIP],
    "the files are right": ("tree", REVERTED_TREE) in facts,
    "the message is that of git revert": message.startswith('Revert "')
    and f"This reverts commit {CULPRIT}." in message,
    "author and committer": people == [ROBOT, ROBOT],
    "main is checked out": git("symbolic-ref", "HEAD") == "refs/heads/main\n",
    "nothing to commit": git("status", "--porcelain", "--untracked-files=no") == "",
}
for name, passed in CHECKS.items():
    print("ok  " if passed else "FAIL", name)

Path("/logs/verifier/reward.txt").write_text(f"{int(all(CHECKS.values()))}\n")
