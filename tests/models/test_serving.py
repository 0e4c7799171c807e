"""Serving a local model: one engine for all that use it, which says why it cannot start and never outlives whet."""

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from support.models_world import smollm2_fixture as smollm2_fixture
from support.waiting import wait_until
from support.whet_program import Project, said_to_user
from whet.errors import UserError
from whet.models import Engine, PulledModel, pull, serve_model
from whet.runs.config import Config, ModelConfig, judge_model_configs, model_config, never_called, open_models
from whet.tasks.judges import RubricSpec


def test_a_local_model_is_named_wherever_a_model_is() -> None:
    expected = ModelConfig(local="smollm2")
    assert model_config("local/smollm2", Config()) == expected
    judge = RubricSpec(kind="rubric", rubric="Is it good?", model="local/smollm2")
    assert judge_model_configs([judge], None, Config()) == {"local/smollm2": expected}


async def test_models_that_have_the_same_weights_share_an_engine(smollm2: PulledModel) -> None:
    cold = ModelConfig(local="smollm2", set={"temperature": 0})
    models = {"cold": cold, "hot": ModelConfig(local="smollm2", set={"temperature": 1})}
    async with open_models(models, {}) as opened:
        assert opened["cold"].url == opened["hot"].url
        assert {(model.upstream_name, model.capture, model.concurrency) for model in opened.values()} == {
            ("smollm2", "vllm", 1)
        }
        assert opened["hot"].price_input == 0
    async with open_models({"cold": never_called(cold, {})}, {}) as replayed:
        again = replayed["cold"]
        assert (again.upstream_name, again.capture) == ("smollm2", "vllm")
        assert again.url == "http://127.0.0.1:9", "nothing was started"


async def test_an_engine_that_does_not_start_says_why(
    smollm2: PulledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHET_MODELS", str(tmp_path / "models"))
    with smollm2.file.open("rb") as whole:
        (tmp_path / "half.gguf").write_bytes(whole.read(1_000_000))
    half = pull(str(tmp_path / "half.gguf"))
    with pytest.raises(UserError, match=r"model 'local/half' does not start: .*read") as refused:
        async with serve_model(Engine(half)):
            pass
    assert "\n" not in str(refused.value)


def engines(project: Project) -> list[int]:
    return [pid for pid in project.processes() if b"whet.models.engine" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_the_engine_ends_with_whet_even_when_that_is_killed(project: Project, smollm2: PulledModel) -> None:
    with project.start("models", "serve", "smollm2", "--port", "0") as whet:
        assert whet.stdout is not None
        first = whet.stdout.readline()
        assert "/v1 serves smollm2; Ctrl-C ends it" in first
        (engine,) = engines(project)
        os.kill(whet.pid, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{engine}").exists())
    wait_until(lambda: not list(project.tmp.glob("whet-engine-*/llama.sock")))


def test_whoever_serves_a_model_is_told_when_its_engine_has_ended(project: Project, smollm2: PulledModel) -> None:
    with project.start("models", "serve", "smollm2", "--port", "0") as whet:
        assert whet.stdout is not None
        whet.stdout.readline()
        (engine,) = engines(project)
        os.kill(engine, signal.SIGKILL)
        _, err = whet.communicate(timeout=60)
    assert whet.returncode == 2
    assert err == "whet: model 'local/smollm2' has ended, with exit code -9\n"


def test_ctrl_c_ends_serving_without_a_word(project: Project, smollm2: PulledModel) -> None:
    with project.start("models", "serve", "smollm2", "--port", "0") as whet:
        assert whet.stdout is not None
        whet.stdout.readline()
        whet.send_signal(signal.SIGINT)
        _, err = whet.communicate(timeout=60)
    assert (whet.returncode, err) == (130, "")


def test_a_run_without_its_model_is_one_line(project: Project) -> None:
    project.rows("tasks.jsonl", {"id": "t", "instruction": "Say yes.", "answer": "yes"})
    lacking = Project(project.path, project.tmp, {"WHET_MODELS": str(project.path / "none")})
    for model, said in (
        ("local/smollm2", "whet: model 'smollm2' was not pulled; run: whet models pull smollm2"),
        ("local/smol", "whet: unknown local model 'smol'; did you mean 'smollm2'?"),
    ):
        words = ("run", "tasks.jsonl", "--agent", "chat", "--model", model, "--out", "out")
        assert said_to_user(lacking.whet(*words)).startswith(said)
        assert said_to_user(lacking.whet("gateway", "--model", model, "--out", "out", "--port", "0")).startswith(said)
        assert not (project.path / "out").exists()


def test_without_the_engine_one_line_says_what_to_install(
    project: Project, smollm2: PulledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    for words in (("models", "check", "smollm2"), ("models", "serve", "smollm2", "--port", "0")):
        said = said_to_user(project.whet(*words))
        assert said == "whet: local models need one more package: pip install 'whet[local]'"


def test_a_port_that_is_taken_is_named(project: Project, smollm2: PulledModel) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = said_to_user(project.whet("models", "serve", "smollm2", "--port", str(port)))
    assert said == f"whet: model 'local/smollm2' does not start: port {port}: Address already in use"
