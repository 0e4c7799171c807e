"""Reads a set of tasks from the paths or objects that the user names."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from whet.errors import UserError
from whet.tasks.harbor import read_harbor
from whet.tasks.rows import read_rows, with_digest
from whet.tasks.task import Task
from whet.tasks.task_set import SUFFIX, read_task_set
from whet.validation_errors import user_error

_LOOKED_FOR = "a task folder (with task.toml), a .jsonl, .parquet, .csv or .tasks.toml file, or a folder of these"


TaskSource = Path | str | Sequence[Path] | Sequence[str] | Sequence[Task]
"""One path or several, or tasks that were made in Python."""


def read_tasks(source: TaskSource) -> list[Task]:
    """Read the tasks of Harbor folders, of rows files, or of folders that hold either.

    Tasks from Python get the digest that they would have in a file.

    >>> read_tasks(Path("examples/questions.jsonl"))[0].split  # doctest: +SKIP
    'train'
    """
    tasks, problems = read_readable_tasks(source)
    if problems:
        raise user_error(problems)
    return tasks


def read_readable_tasks(source: TaskSource) -> tuple[list[Task], list[str]]:
    """The tasks that can be read, and a line for each problem with the others. UserError when there is no task at
    all."""
    parts: Sequence[Path | str | Task] = [source] if isinstance(source, Path | str) else source
    if not parts:
        raise UserError("`tasks` is missing; expected a path, or a list of tasks")
    found: dict[str, Task] = {}
    problems: list[str] = []
    for one in (one for part in parts for one in _read_part(part)):
        if isinstance(one, UserError):
            problems += str(one).splitlines()
        elif (same := found.setdefault(one.id, one)) is not one:
            problems.append(
                f"{one.origin}: id '{one.id}' is taken by {same.origin}; expected a different id for every task"
            )
    return list(found.values()), problems


def _read_part(part: Path | str | Task) -> Iterator[Task | UserError]:
    if isinstance(part, Task):
        yield with_digest(part)
        return
    path, empty = Path(part), True
    try:
        for source in _sources(path):
            for one in [source] if isinstance(source, UserError) else _read(source):
                yield one
                empty = False
    except OSError as error:
        raise UserError(f"{error.filename or path}: {error.strerror}; expected {_LOOKED_FOR}") from error
    if empty:
        raise UserError(f"{path}: holds no tasks; expected {_LOOKED_FOR}")


def _sources(path: Path) -> Iterator[Path | UserError]:
    if _is_task(path) or path.is_file():
        yield path
        return
    data = {chosen for child in path.glob(f"*{SUFFIX}") for chosen in _data(child)}
    for child in sorted(path.iterdir()):
        try:
            # A CSV file in a folder may be anything; a data set is read through its task set.
            is_data = child.suffix.lower() == ".csv" or child.resolve() in data
            if not child.name.startswith(".") and not is_data and (_is_rows(child) or _is_task(child)):
                yield child
        except UserError as error:
            yield error


def _data(task_set: Path) -> list[Path]:
    try:
        return [read_task_set(task_set).rows.resolve()]
    except UserError:
        return []  # it is told when the task set itself is read


def _is_rows(path: Path) -> bool:
    is_set = path.name.endswith(SUFFIX)
    return (is_set or path.suffix.lower() in {".jsonl", ".parquet", ".csv"}) and path.is_file()


def _is_task(path: Path) -> bool:
    has_manifest = (path / "task.toml").is_file()
    if not has_manifest and (path / "instruction.md").is_file():
        raise UserError(f"{path}: has instruction.md but no task.toml; expected both in a task folder")
    return has_manifest


def _read(source: Path) -> Iterator[Task | UserError]:
    try:
        if source.is_dir():
            yield read_harbor(source)
        elif _is_rows(source):
            yield from read_rows(source)
        else:
            yield UserError(f"{source}: is not a file of tasks; expected {_LOOKED_FOR}")
    except UserError as error:
        yield error
