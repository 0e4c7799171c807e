"""`make check-mine`: `whet tasks mine` on real Python packages.

Their histories are made of released versions, one commit each, with the version's entry of the changelog as its
message. Every mined task must score 1 with its solution and 0 with nothing, and Harbor's own model must load it.
"""

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import whet
from whet.cli.mine import print_mined
from whet.sleep.mining.options import MineKind

PACKAGES = {
    "parse": "1.18.0 1.19.0 1.19.1 1.20.0 1.20.1 1.20.2",
    "cachetools": "5.0.0 5.1.0 5.2.0 5.3.0 5.4.0 5.5.0",
    "more-itertools": "10.0.0 10.1.0 10.2.0 10.3.0 10.4.0 10.5.0",
    "tabulate": "0.8.7 0.8.8 0.8.9 0.8.10 0.9.0",
}
"""Versions, oldest first. Their source archives hold tests."""
LIMIT = {MineKind.COMMIT: 20, MineKind.FAULT: 3}
"""Tasks of each kind from one package."""
FEWEST = 10
"""Proved tasks of all packages together."""
_CHANGELOGS = ("CHANGELOG*", "docs/versions.rst", "README*")
_VERSION_LINE = re.compile(r"^\W*v?(\d+\.\d+(?:\.\d+)*)\b[:\s]*(.*)$")
_RULE = re.compile(r"^[=~^*-]{3,}$|^\W*\((?:[A-Z]\w+ \d+, \d{4}|\d{4}-\d\d-\d\d)\)\W*$|^\[[\w.]+\]: ")
"""Lines of a changelog that say nothing: rules, dates, targets of links."""


def main(scratch: Path, readers: Path) -> int:
    tasks, began = scratch / "tasks", time.monotonic()
    for folder in (tasks, scratch / "runs"):
        shutil.rmtree(folder, ignore_errors=True)
    reports = [mine(package, versions.split(), scratch) for package, versions in PACKAGES.items()]
    proved = [task for report in reports for task in report]
    solution, nothing = score(proved, "oracle", scratch), score(proved, "nop", scratch)
    loader = [str(readers / "bin" / "python"), str(Path(__file__).with_name("harbor_tasks.py")), *map(str, proved)]
    loaded = int(subprocess.run(loader, check=True, capture_output=True, text=True).stdout)
    print(f"\n{len(proved)} proved tasks of {len(PACKAGES)} packages in {(time.monotonic() - began) / 60:.1f} minutes")
    print(
        f"score 1 with the solution: {solution[1.0]}; score 0 with nothing: {nothing[0.0]}; loaded by Harbor: {loaded}"
    )
    good = len(proved) >= FEWEST and solution[1.0] == nothing[0.0] == loaded == len(proved)
    return 0 if good else 1


def mine(package: str, versions: list[str], scratch: Path) -> list[Path]:
    """The proved tasks of a package, both kinds."""
    repository = scratch / "repositories" / package
    build_history(repository, package, versions, scratch / "archives")
    proved = []
    for kind, limit in LIMIT.items():
        to = scratch / "tasks" / f"{package}-{kind}"
        print(f"\n{package}, {len(versions)} versions, {kind}", flush=True)
        options = whet.MineOptions(to=to, kind=(kind,), limit=limit)
        report = whet.mine_tasks(repository, options=options, watch=print_mined)
        print(", ".join(f"{outcome} {count}" for outcome, count in report.count_outcomes(kind).most_common()))
        proved += [to / one.name for one in report.proved]
    return proved


def build_history(repository: Path, package: str, versions: list[str], archives: Path) -> None:
    """A repository with one commit for each version."""
    shutil.rmtree(repository, ignore_errors=True)
    repository.mkdir(parents=True)
    git(repository, "init", "-q")
    for day, version in enumerate(versions, start=1):
        for entry in repository.iterdir():
            if entry.name != ".git":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        unpack(fetch(package, version, archives), repository)
        git(repository, "add", "-A", "--force")
        date = f"2026-01-{day:02}T12:00:00Z"
        git(repository, "commit", "-q", "-m", find_entry(repository, version), date=date)


def fetch(package: str, version: str, archives: Path) -> Path:
    """The source archive of a version, downloaded once."""
    place = archives / f"{package}-{version}"
    if not place.exists():
        part = place.with_suffix(".part")
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*argv, "--dest", str(part), f"{package}=={version}"], check=True)
        part.rename(place)
    (archive,) = place.iterdir()
    return archive


def unpack(archive: Path, folder: Path) -> None:
    """The files of an archive without the folder that holds them all, and without what its build added."""
    with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as files:
        for member in files:
            member.name = member.name.partition("/")[2]
            if member.name and not re.search(r"PKG-INFO|\.egg-info(?:/|$)", member.name):
                files.extract(member, folder, filter="data")


def find_entry(folder: Path, version: str) -> str:
    """What the changelog says about a version."""
    logs = [file for pattern in _CHANGELOGS for file in sorted(folder.glob(pattern))]
    for log in logs:
        if entry := "\n".join(read_entry(log.read_text(errors="replace"), version)).strip():
            return entry
    return f"Release {version}"


def read_entry(log: str, version: str) -> Iterator[str]:
    inside = False
    for line in log.splitlines():
        if found := _VERSION_LINE.match(line):
            inside, line = found[1] == version, found[2]
        if inside and not _RULE.match(line.strip()):
            yield line


def git(repository: Path, *arguments: str, date: str = "") -> None:
    names = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "release"), ("EMAIL", "release@example.com"), ("DATE", date))
    }
    env = {"PATH": os.environ["PATH"], "HOME": os.devnull, **(names if date else {})}
    subprocess.run(["git", *arguments], cwd=repository, env=env, check=True)


def score(tasks: list[Path], agent: str, scratch: Path) -> Counter[float | None]:
    """How many tasks got which score."""
    run = whet.run(tasks, agent=agent, out=scratch / "runs" / agent, concurrency=2)
    return Counter(one.result.score.value if one.result else None for one in run.rollouts)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
