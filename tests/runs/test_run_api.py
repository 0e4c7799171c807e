"""A run through the API: what it tells, what it stores, and what it never writes."""

import json
from pathlib import Path

import pytest

from support.run_world import perform, questions, scripted, values, write_rows
from whet.errors import UserError
from whet.rollout.result import decode_result
from whet.runs.config import Config, ModelConfig
from whet.runs.options import RunOptions
from whet.runs.run import Started, run
from whet.runs.scheduler import Ended
from whet.runs.store.store import Store
from whet.testing import Reply, Scene, Script, ScriptedModel, say
from whet.text.redact import secrets_in

RIGHT = {"": Reply(text="4")}


async def test_every_event_is_told_and_everything_is_stored(tmp_path: Path) -> None:
    started, *rest = await perform(questions(tmp_path, "a", "b"), scripted(tmp_path, RIGHT))
    assert isinstance(started, Started)
    assert (started.folder, started.sandbox, started.planned, started.pending) == (
        tmp_path / "run",
        "bubblewrap",
        2,
        2,
    )
    with Store.open_read(tmp_path / "run") as store:
        assert [task.id for task in store.tasks()] == ["a", "b"]
        assert store.get("sandbox") == "bubblewrap"
        assert store.get("agents") == {"chat": {"kind": "chat", "skill_at": "system", "reminders": 3}}
        assert store.pending() == []
        assert [type(event) for event in rest].count(Ended) == 2
        for event in (event for event in rest if isinstance(event, Ended)):
            (attempt,) = store.attempts_of(event.row.id)
            assert decode_result(store.result_body(attempt) or b"").score == event.result.score
            (exchange,) = store.exchanges(attempt.id)
            assert b"2 + 2?" in exchange.request


async def test_an_agent_in_the_box_is_logged(tmp_path: Path) -> None:
    tasks = write_rows(tmp_path, {"id": "a", "instruction": "Write.", "verify": ["test -f made"]})
    await perform(tasks, scripted(tmp_path, RIGHT), agents=("command:sh -c 'touch made; echo out; echo err >&2'",))
    assert values(tmp_path / "run") == {"a": 1.0}
    with Store.open_read(tmp_path / "run") as store:
        (result,) = store.results()
        logs = {"agent stdout": b"out\n", "agent stderr": b"err\n", "file made": b""}
        assert store.logs(result.attempt.id) == logs
        body = store.result_body(result.attempt)
        assert body is not None
        assert not {"stdout", "stderr", "transcript"} & json.loads(body)["report"].keys()  # they are logs


async def test_keys_and_secrets_of_the_environment_are_never_written(tmp_path: Path) -> None:
    key, token = "sk-provider-0123456789", "ghp-0123456789abcdef"
    script = Script(scenes=(Scene(replies=(say(f"Your key is {key} and your token {token}."),)),))
    tasks = write_rows(
        tmp_path, {"id": "a", "instruction": "?", "verify": ['echo "$T"'], "env": {"T": "${GITHUB_TOKEN}"}}
    )
    async with ScriptedModel(script, key=key) as model:
        config = Config(models={"m": ModelConfig(url=model.url, key_env="KEY")})
        request = RunOptions(tasks=tasks, out=tmp_path / "run", agents=("chat",), models=("m",))
        seen: list[object] = []
        await run(request, config, seen.append, env={"KEY": key, "GITHUB_TOKEN": token})
    with Store.open_read(tmp_path / "run") as store:
        (done,) = store.results()
        (exchange,) = store.exchanges(done.attempt.id)
        stored = [
            store.result_body(done.attempt) or b"",
            exchange.request,
            exchange.response,
            repr(exchange).encode(),
            repr(seen).encode(),
        ]
    assert b"[redacted]" in exchange.response
    assert b"[redacted]" in stored[0]
    for text in stored:
        assert key.encode() not in text
        assert token.encode() not in text
    database = (tmp_path / "run" / "run.db").read_bytes()
    assert key.encode() not in database
    assert token.encode() not in database


def test_secrets_are_known_by_their_names() -> None:
    value = "0123456789abcdef"
    names = ["OPENAI_API_KEY", "GITHUB_TOKEN", "db_password", "AWS_SECRET_ACCESS_KEY", "GOOGLE_CREDENTIALS"]
    assert secrets_in(dict.fromkeys(names, value)) == [value] * len(names)
    assert secrets_in({"KEYBOARD": value, "MONKEY": value, "TOKENIZERS_PARALLELISM": value, "API_KEY": "short"}) == []


@pytest.mark.parametrize(
    ("request_part", "message"),
    [
        ({"agents": ("lop",)}, "unknown agent 'lop'"),
        ({"models": ("none",)}, "unknown model 'none'"),
        ({"sandbox": "docker"}, "unknown sandbox 'docker'"),
        ({"skills": (Path("nowhere"),)}, "nowhere: not a skill folder"),
        ({"skills": (None, None)}, "is given twice"),
    ],
)
async def test_nothing_is_made_when_the_request_is_wrong(
    tmp_path: Path, request_part: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        await perform(questions(tmp_path, "a"), scripted(tmp_path, RIGHT), **request_part)
    assert not (tmp_path / "run").exists()
