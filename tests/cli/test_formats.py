"""`--format`: a run as CSV, JSON and Markdown, and the list of runs."""

import csv
import io
import json

from support.whet_program import Project, said_to_user
from whet.cli.formats import to_csv, to_markdown
from whet.cli.tables import Column, TextTable
from whet.runs.store.store import Store
from whet.runs.stored_run import load

HOSTILE = "a|b`c`\n\x1b]0;title\x07<script>"


def run(project: Project) -> None:
    words = project.writes_42(2)
    words[words.index("loop")] = "loop,nop"
    assert project.whet(*words, "--out", "runs/r").returncode == 0


def test_a_run_as_json_has_how_each_rollout_ended_and_what_it_used(project: Project) -> None:
    run(project)
    document = json.loads(project.whet("show", "runs/r", "--format", "json").stdout)
    assert (document["run"], document["state"]) == ("runs/r", "ended")
    assert [(arm["agent"], arm["mean"]) for arm in document["arms"]] == [("loop", 1.0), ("nop", 0.0)]
    worked = next(one for one in document["rollouts"] if one["agent"] == "loop")
    assert (worked["stop"], worked["exit_code"], worked["calls"]) == ("finished", 0, 2)
    assert (worked["tools"], worked["speakers"]) == ({"bash": 1}, {"main": 2})
    assert worked["speaker_tokens"] == {"main": [worked["input_tokens"], worked["output_tokens"]]}
    assert worked["seconds"] > 0
    one = json.loads(project.whet("show", "runs/r", worked["rollout"], "--format", "json").stdout)
    assert one["result"]["judgements"]["verify"]["details"]["commands"][0]["exit_code"] == 0
    assert {key: one[key] for key in worked} == worked
    assert load(project.path / "runs/r").records() == document["rollouts"]


def test_a_run_as_csv_has_a_line_per_rollout_and_as_markdown_a_table_of_tasks_and_agents(project: Project) -> None:
    run(project)
    rows = list(csv.DictReader(io.StringIO(project.whet("show", "runs/r", "--format", "csv").stdout)))
    assert [(row["task"], row["agent"], row["score"]) for row in rows[:2]] == [
        ("t0", "loop", "1.0"),
        ("t0", "nop", "0.0"),
    ]
    assert rows[0]["tools"] == "bash 1"
    assert "| task | loop | nop |\n| --- | ---: | ---: |\n| t0 | 1.00 | 0.00 |\n" in (
        project.whet("show", "runs/r", "--format", "md").stdout
    )
    assert "\ntask  loop   nop\nt0    1.00  0.00\nt1    1.00  0.00\n" in project.whet("show", "runs/r").stdout
    assert said_to_user(project.whet("show", "runs/r", "t0", "--format", "csv")).startswith("whet: --format csv is for")


def test_no_text_of_a_cell_can_end_it_or_reach_the_terminal() -> None:
    (row,) = csv.DictReader(io.StringIO(to_csv([{"why": HOSTILE}])))
    assert row["why"] == "a|b`c` ␛]0;title␇<script>"
    table = TextTable([Column("why")])
    table.add(HOSTILE)
    assert to_markdown(table).splitlines()[2] == "| a\\|b\\`c\\` ␛]0;title␇\\<script> |"


def test_runs_are_listed_for_programs_too(project: Project) -> None:
    run(project)
    (found,) = json.loads(project.whet("runs", "--format", "json").stdout)
    assert (found["run"], found["kind"], found["planned"], found["scored"]) == ("runs/r", "run", 4, 4)
    assert project.whet("runs", "--format", "csv").stdout.splitlines()[1].startswith("runs/r,run,ended,loop nop,")
    assert project.whet("runs", "--format", "md").stdout.splitlines()[2].startswith("| runs/r | run | loop, nop |")


def test_a_run_that_goes_on_says_so(project: Project) -> None:
    run(project)
    folder = project.path / "runs/r"
    with Store.open_write(folder) as store:
        store.start_attempt(store.rollouts()[0].id, 1.0)
        shown = project.whet("show", "runs/r").stdout
        assert "still running" in shown
        assert "running" in shown.splitlines()[1].split()
        assert json.loads(project.whet("show", "runs/r", "--format", "json").stdout)["state"] == "running"
        assert project.whet("runs").stdout.rstrip().endswith(", still running")
    assert "running" not in project.whet("runs").stdout
