"""Export a run from the browser: choose a format and filters, see what it would hold, download it.

`whet export` does it in a process of its own, because it reads every call of the run.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic.fields import FieldInfo

from whet.errors import UserError
from whet.runs.options import ExportOptions
from whet.trace.export import FORMATS
from whet.trace.export.filters import read_filter
from whet.trace.export.sinks import JsonLinesSink
from whet.view import addresses
from whet.view.downloads import ExportResponse
from whet.view.page import Crumb, NotFoundError, Page, PageRequest, PageRoute, View
from whet.view.pages.common import Outcome, command_line, run_crumbs

PREVIEW_SEC = 60.0
"""How long a page may wait for what an export would hold. A download may take longer."""
DEFAULT_FORMAT = "chat"
NUMBERS = ("subagents", "max_tokens", "per_task")
CHOICES = ("skip_equal", "distinct")
SETTINGS = (*NUMBERS, "sampling", *CHOICES)
"""Options of `whet export` that the form has beside the format and the filters."""
CARRIED = ("agent", "model", "skill", "task", "flag")
"""Filters of the table of rollouts that exports have under the same name."""
SCORES: Mapping[str, tuple[str, ...]] = {
    Outcome.PASSED: ("score>=1",),
    Outcome.PARTIAL: ("score>0", "score<1"),
    Outcome.FAILED: ("score=0",),
}
"""What an export calls the outcomes of the table of rollouts."""
DROPPED = {"cause": "cause", "label": "label", "q": "text", "outcome": "this outcome"}
"""Filters of the table that no export has, in words."""


def export_page(view: View, request: PageRequest) -> Page:
    """The form, and what the chosen export would hold."""
    entry = view.library.entry(request.path["run"])
    if not entry.has_rollouts:
        parts = ", ".join(name.rpartition("/")[2] for name in entry.parts)
        raise NotFoundError(f"'{entry.name}' has no rollouts of its own. Export one of its parts: {parts}.")
    with view.library.open(entry.name):  # whether it can be read, and may be
        options = read_options(entry.path, request)
    asked = bool(request.query.get("preview"))
    data = {
        "run": entry.name,
        "formats": FORMATS.values(),
        "options": options,
        "help": {name: _help(ExportOptions.model_fields[name]) for name in SETTINGS},
        "filters": "\n".join(options.filter),
        "for_training": bool(options.model_fields_set.intersection(SETTINGS) - {"per_task"}),
        "dropped": [words for name, words in DROPPED.items() if request.query.get(name, "") not in ("", *SCORES)],
        "pages": command_line("view", entry.path, "--export", "FOLDER"),
        "lines": preview(options) if asked else (),
        "download": addresses.export_file(entry.name, **_query(options)) if asked else "",
    }
    crumbs = run_crumbs(entry, Crumb("Export"))
    return Page("export.html", f"Export {entry.name}", data, crumbs, describe_command(options))


def download(view: View, request: PageRequest) -> ExportResponse:
    """The export as a file; a folder, or several files, as an archive."""
    entry = view.library.entry(request.path["run"])
    with view.library.open(entry.name):
        options = read_options(entry.path, request)
    return ExportResponse(_arguments(options), f"{entry.path.name}-{options.format}", lines=_has_lines(options))


def read_options(run: Path, request: PageRequest) -> ExportOptions:
    """The options that a form or an address holds. Filters of the table of rollouts are carried over."""
    query = request.query
    name = query.get("format") or DEFAULT_FORMAT
    if name not in FORMATS:
        raise UserError(f"`format` '{name}': unknown format; expected one of {', '.join(FORMATS)}")
    given = {key: query.get(key) for key in (*NUMBERS, "sampling") if query.get(key)}
    given |= {key: True for key in CHOICES if query.get(key)}
    rollouts = tuple(str(one) for one in query.getlist("rollout") if one)
    return ExportOptions(run=run, format=name, filter=tuple(_filters(request)), rollout=rollouts, dry_run=True, **given)


def _filters(request: PageRequest) -> Sequence[str]:
    query = request.query
    lines = [line.strip() for line in str(query.get("filter", "")).splitlines()]
    carried = [f"{name}={value}" for name in CARRIED for value in query.getlist(name)[:1] if value]
    scores = SCORES.get(query.get("outcome") or "", ())
    filters = [line for line in dict.fromkeys((*lines, *carried, *scores)) if line]
    for line in filters:
        read_filter(line)
    return filters


def preview(options: ExportOptions) -> list[str]:
    """What the export would hold, and what it would leave out and why."""
    argv = [sys.executable, "-P", "-m", "whet", *_arguments(options), "--dry-run"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PREVIEW_SEC, check=False)
    except subprocess.TimeoutExpired:
        return [f"It takes longer than {PREVIEW_SEC:g} seconds to say. The download says it in its manifest."]
    if done.returncode != 0:
        raise UserError(done.stderr.strip().removeprefix("whet: ") or "the export ended without a result")
    return done.stdout.splitlines()[1:]


def describe_command(options: ExportOptions) -> str:
    """The same on the command line."""
    return command_line(*_arguments(options), "--out", "FILE.jsonl" if _has_lines(options) else "FOLDER")


def _has_lines(options: ExportOptions) -> bool:
    return FORMATS[options.format].sink is JsonLinesSink


def _arguments(options: ExportOptions) -> list[str]:
    words: list[str] = ["export", str(options.run), "--format", options.format]
    words += [word for one in options.filter for word in ("--filter", one)]
    words += ["--rollout", ",".join(options.rollout)] if options.rollout else []
    for name, value in options.given().items():
        flag = f"--{name.replace('_', '-')}"
        if name in SETTINGS:
            words += [flag] if value is True else [flag, str(value)]
    return words


def _query(options: ExportOptions) -> dict[str, object]:
    chosen = {name: value for name, value in options.given().items() if name in SETTINGS}
    chosen |= {name: 1 for name, value in chosen.items() if value is True}
    return {"format": options.format, **chosen, "filter": "\n".join(options.filter), "rollout": options.rollout}


def _help(field: FieldInfo) -> str:
    return (field.description or "").rstrip(".")


ROUTES = (PageRoute("/runs/{run}/export", export_page), PageRoute("/runs/{run}/export/file", download))
