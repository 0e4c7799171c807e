"""What the pages of one attempt share: finding it, the path of links above the page, and the tabs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from whet.runs.results import AttemptRecord, ResultReader, RolloutRecord
from whet.runs.store.store import Store
from whet.view import addresses
from whet.view.library import RunEntry
from whet.view.page import Crumb, NotFoundError, PageRequest, View
from whet.view.pages.common import command_line, run_crumbs


@dataclass(frozen=True, slots=True)
class OpenAttempt:
    """An attempt whose store is open."""

    run: str
    entry: RunEntry
    store: Store
    record: RolloutRecord
    attempt: AttemptRecord
    chosen: int | None
    """The number of the attempt, where the address names it."""

    @property
    def rollout(self) -> str:
        """The id of the rollout."""
        return self.record.row.id

    @property
    def words(self) -> str:
        """What names the attempt beside its rollout; empty for the last one."""
        return "" if self.chosen is None else f"attempt {self.chosen}"

    @property
    def is_running(self) -> bool:
        """Whether it has not ended, as far as the store knows."""
        return self.attempt.row.ended is None

    @property
    def command(self) -> str:
        """The command line that shows the rollout."""
        return command_line("show", self.entry.path, self.rollout)

    def fork_command(self, call: int) -> str:
        """The command line that continues from a call of the main thread."""
        return command_line("fork", self.entry.path, self.rollout, "--at", call, "--out", "RUN")

    def crumbs(self, *more: Crumb) -> tuple[Crumb, ...]:
        """The path of links above a page of it."""
        row = self.record.row
        return (
            *run_crumbs(self.entry),
            Crumb("rollouts", addresses.rollouts(self.run)),
            Crumb(f"{row.task} {row.id}", addresses.rollout(self.run, row.id)),
            *([Crumb(self.words, addresses.attempt(self.run, row.id, self.chosen))] if self.chosen else []),
            *more,
        )

    @property
    def tabs(self) -> list[tuple[str, str]]:
        """The pages of the attempt."""
        place = (self.run, self.rollout)
        about = addresses.attempt(*place, self.chosen) if self.chosen else addresses.rollout(*place)
        pages: dict[str, Callable[..., str]] = {
            "Trace": addresses.trace,
            "Diff": addresses.diff,
            "Judges": addresses.judges,
            "Calls": addresses.calls,
            "Logs": addresses.logs,
        }
        return [("Rollout", about), *((name, make(*place, attempt=self.chosen)) for name, make in pages.items())]


@contextmanager
def open_attempt(view: View, request: PageRequest) -> Iterator[OpenAttempt]:
    """The attempt that an address names, while its store is open: the last one unless the address has another."""
    run, chosen = request.path["run"], _read_attempt(request)
    with view.library.open(run) as store:
        try:
            record = ResultReader(store).rollout(request.path["id"])
        except KeyError:
            raise NotFoundError(f"The run '{run}' has no rollout '{request.path['id']}'.") from None
        yield OpenAttempt(run, view.library.entry(run), store, record, _choose(record, chosen), chosen)


def _read_attempt(request: PageRequest) -> int | None:
    text = request.path.get("attempt")
    if text is None:
        return read_number(request, "attempt")
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise NotFoundError(f"'{text[:40]}' is no number of an attempt.")
    return int(text)


def _choose(record: RolloutRecord, number: int | None) -> AttemptRecord:
    if number is None and record.last is not None:
        return record.last
    found = next((one for one in record.attempts if one.row.number == number), None)
    if found is None:
        what = f"attempt {number}" if number else "any attempt"
        raise NotFoundError(f"The rollout '{record.row.id}' does not have {what}: it has not been run yet.")
    return found


def read_number(request: PageRequest, name: str) -> int | None:
    """A whole number of the query; None when it is not there. NotFoundError when it is something else."""
    text = request.query.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 15:
        raise NotFoundError(f"`{name}` is '{text[:40]}' in this address; expected a whole number.")
    return int(text)


def read_choice(request: PageRequest, name: str, choices: tuple[str, ...]) -> str:
    """One of some words in the query; the first when there is none. NotFoundError when it is another."""
    text = request.query.get(name) or choices[0]
    if text not in choices:
        raise NotFoundError(f"`{name}` is '{text[:40]}' in this address; expected one of: {', '.join(choices)}.")
    return str(text)
