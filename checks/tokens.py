"""`make check-tokens`: rollouts against a real engine are exported, and re-scored from the exported ids alone.

vLLM serves SmolLM2 in fp32, agents of three dialects talk with it through the gateway, and transformers says what the
exported ids are worth. At the end the checks must refuse copies of a row in which one number was changed.
"""

import copy
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tokens_checks import (
    CHECKS,
    TOLERANCE,
    Check,
    Oracle,
    Row,
    Wire,
    ids,
    logprobs,
    masks,
    once,
    same_as_trace,
    sampled,
    spread,
    texts,
    trained,
)
from tokens_engine import MODEL, Engine, tokenize
from whet.exchange import Exchange
from whet.runs.episodes import episodes
from whet.runs.store.store import Store

Json = dict[str, Any]

SPREAD = 0.5
"""A model that is always sure of itself would pass any check of log-probabilities."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run: who works, and against which model."""

    name: str
    agent: str
    model: str
    constrained: bool = False
    """Whether a grammar bends what is sampled. Then the log-probabilities are not the model's own, and such calls are
    trained only when that is asked for."""


CASES = (
    Case("loop", "loop", "free"),
    Case("loop-forced", "short", "forced", constrained=True),
    Case("claude-code", "claude-code", "free"),
    Case("codex", "codex", "free"),
)
SAMPLING: Json = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "seed": 1}
MODELS: dict[str, Json] = {
    # Claude Code asks for the rest of a reply that ends at its limit, Codex gives up; so there is room for most.
    "free": SAMPLING | {"max_tokens": 160},
    # So small a model calls no tool unless it must; then each turn is one, until the agent gives up.
    "forced": SAMPLING | {"max_tokens": 120, "tool_choice": "required"},
}
TALKS = {
    "rivers": ("What is a river? One short sentence.", "And what is a lake?"),
    "files": ("Which files are here?", "Which of them is the largest?"),
}


def main(home: Path) -> int:
    engine, work = Engine(home), home / "last"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    with engine.serving(work / "engine.log") as url:
        write_world(work, url)
        captures = [capture(work, case, url) for case in CASES]
    shortest = min(captures[0].exported, key=lambda one: len(one.row["tokens"]))
    copies = [tampering.copy_of(shortest) for tampering in TAMPERINGS]
    rows = iter(re_scored(engine, [*chain.from_iterable(one.exported for one in captures), *copies]))
    found = {one: list(islice(rows, len(one.exported))) for one in captures}
    complaints = [
        *(f"{one.case.name}: {complaint}" for one, own in found.items() for complaint in complaints_of(one, own)),
        *vacuous([row for one, own in found.items() for row in own if not one.case.constrained], engine.default_top_k),
        *(complaint for pair in zip(TAMPERINGS, rows, strict=True) for complaint in unnoticed(*pair)),
    ]
    console = Console(width=160)
    console.print(report(found))
    console.print("\n".join(complaints) or f"noticed when changed: {', '.join(one.what for one in TAMPERINGS)}")
    return 1 if complaints else 0


def write_world(work: Path, url: str) -> None:
    """The configuration and the tasks: conversations of two instructions."""
    config = ['[agents.short]\nkind = "loop"\nmax_turns = 3']
    for name, fields in MODELS.items():
        setting = ", ".join(f"{field} = {json.dumps(value)}" for field, value in fields.items())
        config.append(f'[models.{name}]\nurl = "{url}"\nname = "{MODEL}"\ncapture = "vllm"\nset = {{ {setting} }}')
    (work / "whet.toml").write_text("\n\n".join(config) + "\n")
    tasks = [
        {"id": name, "instruction": first, "followups": [second], "verify": ["true"]}
        for name, (first, second) in TALKS.items()
    ]
    (work / "talks.jsonl").write_text("\n".join(map(json.dumps, tasks)))


@dataclass(frozen=True, slots=True)
class Exported:
    """A row, and the recorded calls of its rollout."""

    row: Json
    wires: Mapping[str, Wire]


@dataclass(frozen=True, slots=True, eq=False)
class Capture:
    """What a case left: its rows and traces, and what was counted."""

    case: Case
    exported: list[Exported]
    traces: list[Json]
    manifest: Json


def capture(work: Path, case: Case, url: str) -> Capture:
    """Run a case, export it, and ask the engine for the ids of every recorded request."""
    out = work / case.name
    whet(work, "run", "talks.jsonl", "--agent", case.agent, "--model", case.model, "--out", case.name)
    options = ("--truncated", "--sampling", "any" if case.constrained else "strict")
    for form in ("rows", "trl-trace"):
        whet(work, "export", case.name, "--format", form, "--out", f"{case.name}.{form}", *options)
    if case.constrained:
        whet(work, "export", case.name, "--format", "rows", "--out", f"{case.name}.strict")
        assert not _lines(work / f"{case.name}.strict"), "calls with a forced tool were trained"
    with Store.open_read(out) as store:
        wires = {
            episode.rollout: {str(call.index): wire(call, url) for call in store.exchanges(attempt)}
            for episode, attempt in episodes(store)
        }
    rows = _lines(work / f"{case.name}.rows")
    return Capture(
        case,
        [Exported(row, wires[row["rollout_id"]]) for row in rows],
        _lines(work / f"{case.name}.trl-trace"),
        json.loads((work / f"{case.name}.rows.manifest.json").read_text()),
    )


def whet(work: Path, *arguments: str) -> None:
    print("whet", *arguments, flush=True)
    subprocess.run([sys.executable, "-m", "whet", *arguments], cwd=work, check=True)


def _lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def wire(call: Exchange, url: str) -> Wire:
    """A recorded call. The engine must have answered it."""
    assert call.status == 200, call.response
    sent, reply = json.loads(call.sent or call.request), json.loads(call.response)
    (choice,) = reply["choices"]
    return Wire(sent, tokenize(url, sent), choice["token_ids"], choice["message"])


def re_scored(engine: Engine, exported: Sequence[Exported]) -> list[Row]:
    """Each row with what the oracle says of its ids."""
    asked = [
        {
            "tokens": one.row["tokens"],
            "positions": trained(one.row),
            "spans": [(span["start"], span["end"]) for span in sampled(one.row)],
            "chat": one.wires[sampled(one.row)[-1]["call_id"]].sent,
        }
        for one in exported
    ]
    told = engine.ask_oracle(asked)
    return [Row(one.row, Oracle(**answer), one.wires) for one, answer in zip(exported, told, strict=True)]


@dataclass(frozen=True, slots=True)
class Tampering:
    """One number of a row that is changed, and the checks that must notice."""

    what: str
    field: str
    change: Callable[[Any], Any]
    noticed_by: tuple[Check, ...]
    in_prompt: bool = False

    def copy_of(self, one: Exported) -> Exported:
        places = range(one.row["prompt_len"]) if self.in_prompt else trained(one.row)
        at = places[len(places) // 2]
        row = copy.deepcopy(one.row)
        row[self.field][at] = self.change(row[self.field][at])
        return Exported(row, one.wires)


TAMPERINGS = (
    Tampering("a sampled id", "tokens", lambda id_: id_ + 1, (ids, texts, logprobs)),
    Tampering("an id of the prompt", "tokens", lambda id_: id_ + 1, (ids, texts), in_prompt=True),
    Tampering("a log-probability", "logprobs", lambda value: value - 10 * TOLERANCE, (logprobs,)),
    Tampering("a bit of the mask", "loss_mask", lambda bit: 1 - bit, (masks,)),
)


def unnoticed(tampering: Tampering, row: Row) -> Iterator[str]:
    for check in tampering.noticed_by:
        if not check(row):
            yield f"{tampering.what} was changed, and the check of {check.__name__} did not notice"


def complaints_of(capture: Capture, rows: Sequence[Row]) -> Iterator[str]:
    """What is wrong with the rows of a case."""
    checks = [check for check in CHECKS if not (capture.case.constrained and check is logprobs)]
    for row in rows:
        yield from (f"{row.exported['row_id']}: {complaint}" for check in checks for complaint in check(row))
    yield from once(rows, capture.manifest["calls trained"])
    yield from same_as_trace(rows, capture.traces)
    if not any(len(row.sampled) > 1 for row in rows) and not capture.manifest["chain breaks"]:
        yield "no conversation has several turns"


def vacuous(rows: Sequence[Row], top_k: int) -> Iterator[str]:
    """What would make the check worthless."""
    if (found := spread(value for row in rows for value in row.trained_logprobs)) < SPREAD:
        yield f"log-probabilities hardly differ: their deviation is {found:.2g}"
    if max(rank for row in rows for rank in row.oracle.ranks) < top_k:
        yield f"all tokens are among the {top_k} likeliest: the engine used the model's defaults, not what was sent"


def report(found: Mapping[Capture, Sequence[Row]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    numbers = ("calls", "rows", "tokens", "trained", "max |Δ logprob|", "mean", "deviation of logprobs")
    for heading in ("case", *numbers, "breaks"):
        table.add_column(heading, justify="right" if heading in numbers else "left")
    for capture, rows in found.items():
        differences = [value for row in rows for value in row.differences]
        breaks = ", ".join(f"{cause}: {times}" for cause, times in capture.manifest["chain breaks"].items())
        table.add_row(
            capture.case.name,
            *(str(capture.manifest[key]) for key in ("calls answered", "rows", "tokens", "trained tokens")),
            *(
                ("constrained", "")
                if capture.case.constrained
                else (f"{max(differences):.1e}", f"{sum(differences) / len(differences):.1e}")
            ),
            f"{spread(value for row in rows for value in row.trained_logprobs):.2f}",
            breaks or "none",
        )
    return table


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
