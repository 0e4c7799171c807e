"""What the tests of the server share: a real service on a temporary folder, with a scripted model and real boxes."""

import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from whet.client.models import RolloutRequest, RolloutView
from whet.runs.config import Config, ModelConfig
from whet.runs.store.store import Store
from whet.serve.access import LOCAL, Caller, Scope
from whet.serve.opening import open_service
from whet.serve.options import ServeOptions
from whet.serve.service import Service
from whet.serve.worker import CheckModel
from whet.testing import Reply, Scene, Script, When

ANN, BOB = (Caller(name, frozenset({Scope.RUN, Scope.READ})) for name in ("ann", "bob"))
ADMIN = Caller("admin")
WRITES = "command:sh -c 'echo right > answer.txt; echo done'"
"""An agent that calls no model and does what RIGHT asks for."""
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""What training rows need."""
RIGHT = "grep -qx right answer.txt"


def script_file(folder: Path, *scenes: Scene, tokens: bool = False, name: str = "model") -> Path:
    """A file that a scripted model plays."""
    script = Script(scenes=scenes or (Scene(replies=(Reply(text="4"),)),), tokens=tokens)
    lines = [f"tokens = {json.dumps(tokens)}"]
    for scene in script.scenes:
        when = {key: value.pattern for key, value in scene.when if value is not None}
        lines += ["[[scene]]", *(f"when.{key} = {json.dumps(pattern)}" for key, pattern in when.items())]
        for reply in scene.replies:
            lines.append("[[scene.reply]]")
            values = reply.model_dump(mode="json", exclude_defaults=True)
            lines += [f"{key} = {_toml(value)}" for key, value in values.items()]
    file = folder / f"{name}.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def _toml(value: Any) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def answers(word: str, *replies: Reply) -> Scene:
    """What the model answers where a question holds this word."""
    return Scene(when=When.model_validate({"user": word}), replies=replies)


@asynccontextmanager
async def open_test_service(
    folder: Path,
    *scenes: Scene,
    tokens: bool = False,
    models: Mapping[str, ModelConfig] | None = None,
    callers: Collection[Caller] | None = None,
    check_model: CheckModel | None = None,
    **options: Any,
) -> AsyncIterator[Service]:
    """A service in `folder`/served. Its model `m` gives the answer 4 to everything, unless there are scenes for it or
    `models` of another kind. Its agents are chat, loop and WRITES. More keywords are options of the server."""
    settings: dict[str, Any] = {"attempts": 1}
    if tokens:
        settings |= {"capture": "vllm", "set": SAMPLING}
    models = models or {"m": ModelConfig(script=script_file(folder, *scenes, tokens=tokens), **settings)}
    given = {"agents": ("chat", "loop", WRITES), "models": tuple(models), "out": folder / "served", **options}
    async with open_service(
        ServeOptions(**given), Config(models=dict(models)), {}, callers=callers, check_model=check_model
    ) as service:
        yield service


def question(text: str = "2 + 2?", **fields: Any) -> RolloutRequest:
    """A request that the model `m` answers right."""
    return RolloutRequest(**{"instruction": text, "answer": "4", "agent": "chat", **fields})


async def run_one(service: Service, request: RolloutRequest, caller: Caller = LOCAL) -> RolloutView:
    """Submit a request for one rollout, and wait until it is done."""
    group = await service.submit(request, caller)
    return await service.wait(group.rollouts[0].id, caller, 60)


def count_attempts(folder: Path) -> dict[str, int]:
    """By rollout: how many attempts are stored."""
    with Store.open_read(folder / "served" / "rollouts") as store:
        return {row.id: len(attempts) for row, attempts in store.attempts_by_rollout()}
