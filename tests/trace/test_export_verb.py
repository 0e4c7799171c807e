"""`whet export` on a real run: the loop agent in a sealed box, a model that tells its tokens."""

import json
from pathlib import Path

import pytest

import whet
from support.whet_program import Project, new_project, said_to_user
from whet.runs.store.store import Store
from whet.testing.tokens import Mark, decode
from whet.trace.conversations.replies import reply_of
from whet.trace.export import FORMATS
from whet.trace.export.speech import text_of

SETTINGS = """
[models.exact]
script = "script.toml"
capture = "vllm"
set = { temperature = 1.0, top_p = 1.0, top_k = -1, min_p = 0.0, repetition_penalty = 1.0 }

[models.plain]
script = "script.toml"

[models.greedy]
script = "script.toml"
capture = "vllm"
set = { temperature = 0, top_p = 1.0, top_k = -1, min_p = 0.0 }
"""
SCRIPT = """
tokens = true

[[scene]]
[[scene.reply]]
text = "I write it."
tools = [{ name = "bash", arguments = { command = "echo 42 > answer; cat answer" } }]
[[scene.reply]]
text = "It says 42."
"""
TASKS = [
    {"id": "good", "instruction": "Write 42.", "verify": ["grep -qx 42 answer"], "tags": ["easy"]},
    {"id": "bad", "instruction": "Write 43.", "verify": ["grep -qx 43 answer"]},
]


@pytest.fixture(name="project", scope="module")
def project_with_runs(tmp_path_factory: pytest.TempPathFactory) -> Project:
    with new_project(tmp_path_factory.mktemp("export")) as project:
        project.write("whet.toml", SETTINGS)
        project.write("script.toml", SCRIPT)
        project.rows("tasks.jsonl", *TASKS)
        for model in ("exact", "plain"):
            words = f"run tasks.jsonl --agent loop --model {model} --out {model}"
            assert project.whet(*words.split()).returncode == 0
        return project


def exported(project: Project, tmp_path: Path, *words: str) -> tuple[str, list[str]]:
    done = project.whet("export", *words, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    return done.stdout, (tmp_path / "out").read_text().splitlines()


def test_a_row_is_what_was_on_the_wire(project: Project, tmp_path: Path) -> None:
    said, lines = exported(project, tmp_path, "exact", "--format", "rows")
    assert "2 of 2 rollouts, 2 records" in said
    with Store.open_read(project.path / "exact") as store:
        attempts = {done.rollout.id: done.attempt.id for done in store.results()}
        for line in lines:
            row = json.loads(line)
            exchanges = store.exchanges(attempts[row["rollout_id"]])
            sampled = [span for span in row["spans"] if span["trained"]]
            assert len(sampled) == len(exchanges) == 2
            for span, exchange in zip(sampled, exchanges, strict=True):
                told = json.loads(exchange.response)
                assert row["tokens"][: span["start"]] == told["prompt_token_ids"]
                ids = row["tokens"][span["start"] : span["end"]]
                assert ids == told["choices"][0]["token_ids"]
                logprobs = [entry["logprob"] for entry in told["choices"][0]["logprobs"]["content"]]
                assert row["logprobs"][span["start"] : span["end"]] == logprobs
                reply = reply_of(exchange)
                assert reply is not None
                assert text_of(reply.parts) in decode(ids)
            assert sum(row["loss_mask"]) == sum(span["end"] - span["start"] for span in sampled)
            assert Mark.TOOL in row["tokens"][sampled[0]["end"] : sampled[1]["start"]]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_written_with_its_manifest(project: Project, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    done = project.whet("export", "exact", "--format", name, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].startswith("2 of 2 rollouts")
    assert json.loads(out.with_name("out.manifest.json").read_text())["format"] == name
    assert {path.name for path in tmp_path.iterdir()} == {"out", "out.manifest.json"}


def test_rollouts_are_chosen_by_score_and_tag(project: Project, tmp_path: Path) -> None:
    said, lines = exported(
        project, tmp_path, "exact", "--format", "chat", "--filter", "score>=1", "--filter", "tag=easy"
    )
    assert [json.loads(line)["task_id"] for line in lines] == ["good"]
    assert "1 of 2 rollouts, 1 records\n  left out: 1 by `filter`" in said


def test_rollouts_are_chosen_by_id_and_keep_the_advantage_of_their_group(project: Project, tmp_path: Path) -> None:
    whole = {row["rollout_id"]: row["advantage"] for row in whet.load(project.path / "exact").rows()}
    chosen, left = sorted(whole)
    said, lines = exported(project, tmp_path, "exact", "--format", "rows", "--rollout", chosen[:6])
    (row,) = map(json.loads, lines)
    assert (row["rollout_id"], row["advantage"]) == (chosen, whole[chosen])
    assert "left out: 1 by `rollout`" in said
    done = project.whet("export", "exact", "--format", "rows", "--rollout", f"{left},zz", "--dry-run")
    assert said_to_user(done).startswith("whet: --rollout 'zz': no rollout of exact that was run has such an id")


def test_a_dry_run_tells_what_the_export_holds_and_writes_nothing(project: Project, tmp_path: Path) -> None:
    said, _ = exported(project, tmp_path, "exact", "--format", "rows")
    before = sorted(project.path.rglob("*"))
    done = project.whet("export", "exact", "--format", "rows", "--dry-run")
    assert done.stdout.splitlines()[1:] == said.splitlines()[1:]
    assert sorted(project.path.rglob("*")) == before
    assert "--out is missing" in said_to_user(project.whet("export", "exact", "--format", "rows"))


def test_a_run_without_ids_says_so(project: Project, tmp_path: Path) -> None:
    done = project.whet("export", "plain", "--format", "verl", "--out", str(tmp_path / "out"))
    assert "--format 'verl' needs token ids, and none of 4 calls has them" in said_to_user(done)


def test_mistakes_are_one_line(project: Project, tmp_path: Path) -> None:
    done = project.whet("export", "exact", "--format", "varl", "--out", str(tmp_path / "out"))
    assert said_to_user(done).startswith("whet: --format 'varl': unknown format; did you mean 'verl'?")


def test_rows_in_memory_are_those_of_the_file(project: Project, tmp_path: Path) -> None:
    _, lines = exported(project, tmp_path, "exact", "--format", "verl")
    run = whet.load(project.path / "exact")
    rows = run.rows("verl")
    assert list(rows) == [json.loads(line) for line in lines]
    assert rows.manifest.exported == 2
    assert [row["reward"] for row in run.rows(filter=("score>=1",))] == [1.0]
    assert len(run.rows(max_tokens=first_reply_end(run)).apart) == 2


def first_reply_end(run: whet.StoredRun) -> int:
    """A longest row that cuts all rows after their first reply."""
    end = run.rows()[0]["spans"][1]["end"]
    assert isinstance(end, int)
    return end


def test_settings_that_keep_calls_out_of_training_are_told_before_the_run(tmp_path: Path) -> None:
    with new_project(tmp_path / "greedy") as project:
        project.write("whet.toml", SETTINGS)
        project.write("script.toml", SCRIPT)
        project.rows("tasks.jsonl", *TASKS)
        done = project.whet(*["run", "tasks.jsonl", "--agent", "loop", "--model", "greedy", "--out", "run"])
    first, warning, *_ = done.stdout.splitlines()
    assert first.startswith("2 rollouts")
    faults = "repetition_penalty is not set; temperature = 0.0 narrows what is sampled"
    assert warning == f"warning: model 'greedy': {faults}; training rows leave such calls out"
    done = project.whet("export", "run", "--format", "rows", "--out", str(tmp_path / "out"))
    assert "no call can be trained on: 4 × no repetition_penalty was sent" in said_to_user(done)
    assert not (tmp_path / "out").exists()


def test_the_summary_names_the_file_of_truncated_rows_and_the_advantage(project: Project, tmp_path: Path) -> None:
    longest = first_reply_end(whet.load(project.path / "exact"))
    said, _ = exported(project, tmp_path, "exact", "--format", "rows", "--max-tokens", str(longest))
    apart = tmp_path / "out.apart.jsonl"
    assert f"  2 truncated rows are in {apart}\n" in said
    assert len(apart.read_text().splitlines()) == 2
    assert said.endswith("advantage: (reward - mean of the group) / population standard deviation of the group\n")


def test_groups_of_equal_rewards_can_be_left_out(project: Project, tmp_path: Path) -> None:
    said, lines = exported(project, tmp_path, "exact", "--format", "rows", "--skip-equal")
    assert lines == []
    assert "left out: 2 by `skip_equal`" in said
