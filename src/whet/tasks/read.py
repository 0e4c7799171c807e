"""Reads a set of tasks from the paths or objects that the user names."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from whet.errors import UserError
from whet.tasks.harbor import read_harbor
from whet.tasks.rows import read_rows, with_digest
from whet.tasks.task import Task
from whet.validation_errors import user_error

_LOOKED_FOR = "a task folder (with task.toml), a .jsonl or .parquet file, or a folder of these"


def read_tasks(source: Path | str | Sequence[Task]) -> list[Task]:
    """Read the tasks of a Harbor folder, of a rows file, or of a folder that holds either.

    Tasks from Python get the digest that they would have in a file.

    >>> read_tasks(Path("examples/questions.jsonl"))[0].split  # doctest: +SKIP
    'train'
    """
    if not isinstance(source, Path | str):
        made = [with_digest(task) for task in source]
        if not made:
            raise UserError("`tasks` is missing; expected a path, or a list of tasks")
        _refuse_equal_ids(made)
        return made
    path = Path(source)
    try:
        tasks = [task for source in _sources(path) for task in _read(source)]
    except OSError as error:
        raise UserError(f"{error.filename or path}: {error.strerror}; expected {_LOOKED_FOR}") from error
    if not tasks:
        raise UserError(f"{path}: holds no tasks; expected {_LOOKED_FOR}")
    _refuse_equal_ids(tasks)
    return tasks


def _sources(path: Path) -> Iterator[Path]:
    if _is_task(path) or path.is_file():
        yield path
        return
    for child in sorted(path.iterdir()):
        if not child.name.startswith(".") and (_is_rows(child) or _is_task(child)):
            yield child


def _is_rows(path: Path) -> bool:
    return path.suffix.lower() in {".jsonl", ".parquet"} and path.is_file()


def _is_task(path: Path) -> bool:
    has_manifest = (path / "task.toml").is_file()
    if not has_manifest and (path / "instruction.md").is_file():
        raise UserError(f"{path}: has instruction.md but no task.toml; expected both in a task folder")
    return has_manifest


def _read(source: Path) -> Sequence[Task]:
    if source.is_dir():
        return [read_harbor(source)]
    if not _is_rows(source):
        raise UserError(f"{source}: is not a file of tasks; expected {_LOOKED_FOR}")
    return read_rows(source)


def _refuse_equal_ids(tasks: Sequence[Task]) -> None:
    first: dict[str, Task] = {}
    problems = [
        f"{task.origin}: id '{task.id}' is taken by {first[task.id].origin}; expected a different id for every task"
        for task in tasks
        if first.setdefault(task.id, task) is not task
    ]
    if problems:
        raise user_error(problems)
