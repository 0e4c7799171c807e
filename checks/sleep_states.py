"""For how many sessions the state of the repository is found: sessions of known states over a real git history."""

import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from support.sleep_world import START, Repository, make_session, make_turn
from whet.sleep.repository import Lost, find_state, read_state
from whet.sleep.session import Session, Step

FILES = [f"src/part{number}.py" for number in range(12)]
COMMITS, SESSIONS = 60, 40
LEAST = {"opencode": 0.9, "codex": 0.9, "copilot": 0.9, "claude-code": 0.7, "gemini": 0.7, "qwen": 0.7}


@dataclass(frozen=True, slots=True)
class Moment:
    """What was checked out at a time."""

    commit: str
    branch: str
    at: datetime
    files: dict[str, str]


class History:
    """A repository in which work goes on: two branches, amended and rebased commits, a merge."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.repository = Repository(folder)
        self.chance = random.Random(seed)
        self.files = {name: f"value = 0\nname = '{name}'\n" for name in FILES}
        self.now = START
        self.moments: list[Moment] = []
        self._note(self.repository.commit(self.files, "start", self.now))
        for number in range(COMMITS):
            self._work(number)

    @property
    def branch(self) -> str:
        return self.repository.git("rev-parse", "--abbrev-ref", "HEAD")

    def _note(self, commit: str) -> None:
        self.moments.append(Moment(commit, self.branch, self.now, dict(self.files)))

    def _work(self, number: int) -> None:
        self.now += timedelta(minutes=self.chance.randint(20, 600))
        if number % 10 == 4:
            self.repository.git("checkout", "-q", "-b", f"topic{number}", at=self.now)
        name = self.chance.choice(FILES)
        self.files[name] += f"line{number} = {self.chance.random()}\n"
        changed = {name: self.files[name]}
        if number % 10 == 7:  # amended: the commit before is on no branch any more
            self.repository.write(changed)
            self.repository.git("commit", "-q", "-a", "--amend", "-m", f"amended {number}", at=self.now)
            self._note(self.repository.git("rev-parse", "HEAD"))
        else:
            self._note(self.repository.commit(changed, f"change {number}", self.now))
        if number % 10 == 9:
            topic = self.branch
            self.now += timedelta(minutes=5)
            self.repository.git("checkout", "-q", "main", at=self.now)
            self.repository.git("merge", "-q", "--ff-only", topic, at=self.now)
            self._note(self.repository.git("rev-parse", "HEAD"))


def make_steps(moment: Moment, chance: random.Random, numbered: bool) -> tuple[Step, ...]:
    """Three files are read and one of them is replaced."""
    names = chance.sample(FILES, 3)
    steps = [Step(tool="Read", path=f"$REPO/{name}", output=_show(moment.files[name], numbered)) for name in names]
    before = moment.files[names[0]]
    edit = Step(tool="Edit", path=f"$REPO/{names[0]}", before=before, after=f"{before}fixed = True\n", whole_file=True)
    return (*steps, edit)


def _show(text: str, numbered: bool) -> str:
    lines = enumerate(text.split("\n"), start=1)
    return "\n".join(f"{number}\t{line}" for number, line in lines) if numbered else text


def make_sessions(cli: str, history: History, snapshots: Path, seed: int) -> Iterator[tuple[Session, Moment]]:
    """Sessions at random moments, each with what this program records."""
    chance = random.Random(f"{cli} {seed}")
    records: dict[str, Callable[[Moment], dict[str, object]]] = {
        "codex": lambda moment: {"commit": moment.commit, "branch": moment.branch},
        "copilot": lambda moment: {"commit": moment.commit, "branch": moment.branch},
        "opencode": lambda moment: {"tree": snapshot(history.repository, snapshots, moment)},
        "claude-code": lambda moment: {"branch": moment.branch},
        "qwen": lambda moment: {"branch": moment.branch},
        "gemini": lambda _: {},
    }
    for number in range(SESSIONS):
        moment = chance.choice(history.moments)
        steps = make_steps(moment, chance, numbered=cli == "claude-code")
        turn = make_turn(1, "Go on.").model_copy(update={"steps": steps})
        started = moment.at + timedelta(minutes=chance.randint(0, 15))
        yield make_session(f"s{number}", turn, cli=cli, started=started, **records[cli](moment)), moment


def snapshot(repository: Repository, data: Path, moment: Moment) -> str:
    """OpenCode's own store: a tree of the working directory that borrows the repository's objects."""
    store = data / "opencode" / "snapshot" / "root" / "hash"
    if not store.exists():
        repository.git("init", "-q", "--bare", str(store))
        (store / "objects" / "info" / "alternates").write_text(f"{repository.folder}/.git/objects\n")
    return repository.git("rev-parse", f"{moment.commit}^{{tree}}")


@dataclass(slots=True)
class Count:
    found: int = 0
    partial: int = 0
    """States that do not agree with every file that the session saw."""
    differ: int = 0
    """States that differ from the truth in a file that the session did not see."""


def count_states(cli: str, history: History, repository: Path, data: Path) -> Count:
    count = Count()
    for session, moment in make_sessions(cli, history, data, seed=14):
        state = find_state(session, repository, data)
        if isinstance(state, Lost):
            continue
        count.found += 1
        count.partial += state.agreed < state.checked
        count.differ += {path: file.content.decode() for path, file in read_state(state).items()} != moment.files
    return count


def _describe(count: Count) -> str:
    differ = f"{count.partial} differ in a file that was seen, {count.differ} in another"
    return f"{count.found} of {SESSIONS} found, {differ}"


def check_states() -> bool:
    """Print, for each program, the share of sessions whose files are found. A fresh clone has no reflog: its numbers
    are printed and not judged."""
    good = True
    print("state of the repository at the start of a session, clean tree")
    with tempfile.TemporaryDirectory() as folder:
        history, data, clone = History(Path(folder) / "shop", seed=14), Path(folder) / "data", Path(folder) / "clone"
        history.repository.git("clone", "-q", "--no-local", str(history.repository.folder), str(clone), at=history.now)
        for cli, least in LEAST.items():
            count = count_states(cli, history, history.repository.folder, data)
            good = good and count.found >= least * SESSIONS and not count.partial
            fresh = count_states(cli, history, clone, data)
            print(f"  {cli:<12} {_describe(count)} (at least {least:.0%}); in a fresh clone {_describe(fresh)}")
    return good
