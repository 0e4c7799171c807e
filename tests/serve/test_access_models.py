"""Models at addresses that clients name: what the service calls, and what becomes of their keys."""

import gc
import socket
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from support.serve_world import ADMIN, ANN, open_test_service, question, run_one
from support.waiting import until
from whet.client.models import Endpoint, ModelUpdate, Outcome
from whet.gateway import Model
from whet.runs.config import Config, ModelConfig
from whet.serve.opening import open_service
from whet.serve.options import ServeOptions
from whet.serve.problems import Code, Refused
from whet.serve.service import Service
from whet.testing import Reply, Scene, Script, ScriptedModel

KEY = "sk-of-a-client-0123456789"
NAME = "model.example"
FOUR = Script(scenes=(Scene(replies=(Reply(text="4"),)),))


def brings(url: str) -> Any:
    return question(endpoint=Endpoint(base_url=url, model="theirs", api_key=SecretStr(KEY)))


async def refusal(service: Service, url: str) -> Refused:
    with pytest.raises(Refused) as refused:
        await service.submit(brings(url), ANN)
    assert KEY not in str(refused.value)
    return refused.value


async def test_a_model_at_a_listed_address_is_called(tmp_path: Path) -> None:
    async with ScriptedModel(FOUR) as model:
        listed = model.url.removeprefix("http://")
        async with open_test_service(tmp_path, allow=(listed,)) as service:
            done = await run_one(service, brings(f"{model.url}/v1"), ANN)
            assert (done.outcome, done.reward, done.answer) == (Outcome.SCORED, 1.0, "4")
            assert (await refusal(service, "http://127.0.0.1:9")).code is Code.FORBIDDEN
            assert (await refusal(service, "https://api.openai.com.attacker.example")).code is Code.FORBIDDEN
            assert (await refusal(service, "http://user@127.0.0.1")).code is Code.INVALID
    for file in (tmp_path / "served").rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes()


async def test_a_key_does_not_outlive_its_rollouts(tmp_path: Path) -> None:
    async with ScriptedModel(FOUR) as model, open_test_service(tmp_path, allow=("127.0.0.1:*",)) as service:
        for _ in range(2):
            await run_one(service, brings(model.url), ANN)
        await until(lambda: find_keys() == [])


def find_keys() -> list[object]:
    """What in this process holds the key as a key."""
    gc.collect()
    models = [one for one in gc.get_objects() if isinstance(one, Model) and one.key == KEY]
    return models + [one for one in gc.get_objects() if isinstance(one, SecretStr) and one.get_secret_value() == KEY]


async def test_without_a_list_no_model_of_a_client_is_called(tmp_path: Path) -> None:
    async with ScriptedModel(FOUR) as model, open_test_service(tmp_path) as service:
        for url in (model.url, "http://93.184.215.14", "http://169.254.169.254/latest"):
            assert (await refusal(service, url)).code is Code.FORBIDDEN


async def test_the_endpoints_of_the_operator_need_no_entry(tmp_path: Path) -> None:
    async with ScriptedModel(FOUR) as model:
        options = ServeOptions(agents=("chat",), out=tmp_path / "served")
        async with open_service(options, Config(), {"VLLM_URL": model.url}) as service:
            assert (await run_one(service, brings(f"{model.url}/v1"), ANN)).reward == 1.0
            assert (await refusal(service, "http://127.0.0.1:9")).code is Code.FORBIDDEN


async def test_a_name_that_points_elsewhere_later_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = socket.getaddrinfo

    def getaddrinfo(host: str, *args: Any, **options: Any) -> Any:
        if host != NAME:
            return real(host, *args, **options)
        asked.append(host)
        # It is looked up when the request comes and when the rollout starts; the model calls must not look it up.
        return real("127.0.0.1" if len(asked) <= 2 else "127.0.0.2", *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    async with ScriptedModel(FOUR) as model:
        port = model.url.rpartition(":")[2]
        async with open_test_service(tmp_path, allow=(f"{NAME}:{port}", f"127.0.0.1:{port}")) as service:
            done = await run_one(service, brings(f"http://{NAME}:{port}/v1"), ANN)
            assert (done.outcome, done.reward) == (Outcome.SCORED, 1.0)
            assert asked == [NAME, NAME]
            assert (await refusal(service, f"http://{NAME}:{port}/v1")).code is Code.FORBIDDEN


async def test_updates_follow_the_list_and_keep_what_is_declared(tmp_path: Path) -> None:
    async with ScriptedModel(FOUR) as first, ScriptedModel(FOUR) as second:
        models = {"policy": ModelConfig(url=first.url, attempts=1)}
        listed = second.url.removeprefix("http://")
        async with open_test_service(tmp_path, models=models, allow=(listed,)) as service:
            for url in ("http://127.0.0.1:9", "http://10.0.0.1:8000", "http://user@127.0.0.1"):
                with pytest.raises(Refused):
                    await service.update_model("policy", ModelUpdate(url=url, weight_version="1"), ADMIN)
            assert (await service.models(ADMIN))[0].updates == 0
            for version, model in (("1", second), ("2", first)):
                view = await service.update_model("policy", ModelUpdate(url=model.url, weight_version=version), ADMIN)
                assert view.urls == (model.url,)
                done = await run_one(service, question(model="policy"), ANN)
                assert (done.outcome, done.weight_versions) == (Outcome.SCORED, (version,))


async def test_an_update_that_is_sent_twice_counts_once(tmp_path: Path) -> None:
    async with ScriptedModel(FOUR) as first, ScriptedModel(FOUR) as second:
        models = {"policy": ModelConfig(url=first.url)}
        async with open_test_service(tmp_path, models=models, allow=("127.0.0.1:*",)) as service:
            for update, updates in (
                (ModelUpdate(url=second.url, weight_version="1"), 1),
                (ModelUpdate(url=second.url, weight_version="1"), 1),
                (ModelUpdate(weight_version="2"), 2),
                (ModelUpdate(weight_version="2"), 2),
                (ModelUpdate(url=first.url, weight_version="2"), 3),
            ):
                assert (await service.update_model("policy", update, ADMIN)).updates == updates
