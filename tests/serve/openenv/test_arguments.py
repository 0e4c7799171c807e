"""The arguments of run_rollout: names, types, defaults, and the request that they become."""

from typing import Any

import pytest
from pydantic import ValidationError

from whet.client.models import OnFailure, RolloutRequest
from whet.serve.openenv.arguments import (
    ArgumentError,
    InvalidArgumentsError,
    RunRolloutArguments,
    RunTaskArguments,
    input_schema,
    make_request,
)

MODEL: dict[str, Any] = {"base_url": "http://10.0.0.7:8000", "api_key": "sk-caller-key", "model": "m"}
FOURTEEN = {
    "endpoint": ("string", ""),
    "base_url": ("string", ""),
    "api_key": ("string", ""),
    "model": ("string", ""),
    "instruction": ("string", ""),
    "setup": ("array", None),
    "verify": ("array", None),
    "task_id": ("string", ""),
    "mode": ("string", "transparent_proxy"),
    "disable_thinking": ("boolean", None),
    "max_tokens_cap": ("integer", 4096),
    "top_logprobs": ("integer", 5),
    "agent_timeout_s": ("number", 600.0),
    "template": ("string", ""),
}


def request_of(*, offered: tuple[str, ...] = (), **arguments: Any) -> RolloutRequest:
    return make_request(RunRolloutArguments.model_validate(arguments), offered, {}, None)


def test_the_fourteen_arguments_have_openenvs_names_types_and_defaults() -> None:
    schema = input_schema(RunRolloutArguments)
    assert (schema["type"], schema["additionalProperties"], "required" in schema) == ("object", False, False)
    assert list(schema["properties"])[:14] == list(FOURTEEN)
    for name, (kind, default) in FOURTEEN.items():
        argument = schema["properties"][name]
        assert argument["default"] == default, name
        if default is None:
            assert [one["type"] for one in argument["anyOf"]] == [kind, "null"], name
        else:
            assert argument["type"] == kind, name


def test_no_schema_refers_elsewhere() -> None:
    assert "$ref" not in str(input_schema(RunRolloutArguments)) + str(input_schema(RunTaskArguments))


def test_a_call_becomes_a_request() -> None:
    made = request_of(
        **MODEL,
        instruction="Write 4.",
        setup=["touch a"],
        verify=["true", "false"],
        task_id="four",
        agent_timeout_s=90,
        agent="loop",
        samples=2,
        limits={"turns": 7},
    )
    assert (made.instruction, made.setup, made.verify, made.task_id) == (
        "Write 4.",
        ("touch a",),
        ("true", "false"),
        "four",
    )
    assert (made.workdir, made.agent, made.samples, made.on_failure) == (
        "/home/user/workdir",
        "loop",
        2,
        OnFailure.NULL,
    )
    assert made.limits is not None
    assert (made.limits.agent_sec, made.limits.command_sec, made.limits.turns) == (90, 120, 7)
    assert made.limits.verify_sec == 240
    assert made.endpoint is not None
    assert (made.endpoint.base_url, made.endpoint.max_tokens, made.endpoint.capture) == (
        "http://10.0.0.7:8000/v1",
        4096,
        "vllm",
    )
    assert made.endpoint.set == {"top_logprobs": 5}


def test_thinking_is_disabled_through_the_chat_template() -> None:
    made = request_of(**MODEL, instruction="x", disable_thinking=True, max_tokens_cap=0)
    assert made.endpoint is not None
    assert made.endpoint.set["chat_template_kwargs"] == {"enable_thinking": False}
    assert made.endpoint.max_tokens is None


def test_a_black_box_asks_for_no_tokens() -> None:
    made = request_of(**MODEL, instruction="x", mode="black_box")
    assert made.endpoint is not None
    assert (made.endpoint.capture, made.endpoint.set) == ("none", {})


def test_the_endpoint_is_checked_before_the_instruction() -> None:
    with pytest.raises(ArgumentError, match=r"^must provide either ``endpoint``"):
        request_of()
    with pytest.raises(ArgumentError, match=r"^instruction is required$"):
        request_of(**MODEL)


def test_a_model_of_the_server_needs_only_its_name() -> None:
    assert request_of(offered=("policy",), model="policy", instruction="x").model == "policy"
    assert request_of(offered=("policy",), task="sum").model is None
    with pytest.raises(ArgumentError, match=r"^must provide either .* one of \('policy',\)$"):
        request_of(offered=("policy",), instruction="x")


def test_a_model_of_the_server_is_called_with_the_settings_of_the_server() -> None:
    for setting in ({"sampling_params": {"temperature": 1}}, {"disable_thinking": False}, {"capture": "none"}):
        with pytest.raises(ArgumentError, match=f"^'{next(iter(setting))}' is for a model of yours"):
            request_of(offered=("policy",), model="policy", instruction="x", **setting)


def test_the_seed_of_the_session_counts_unless_the_call_has_one() -> None:
    assert request_of(**MODEL, instruction="x", seed=7).seed == 7
    assert request_of(**MODEL, instruction="x").seed is None
    assert make_request(RunRolloutArguments(**MODEL, instruction="x"), (), {}, 3).seed == 3
    assert make_request(RunRolloutArguments(**MODEL, instruction="x", seed=7), (), {}, 3).seed == 7


def test_unknown_arguments_and_wrong_types_are_refused_in_pydantics_words() -> None:
    with pytest.raises(ValidationError) as error:
        RunRolloutArguments.model_validate({"verify": "true", "colour": 1})
    assert str(error.value).startswith("2 validation errors for call[run_rollout]")


def test_an_error_does_not_repeat_the_key() -> None:
    with pytest.raises(ValidationError) as error:
        RunRolloutArguments.model_validate({"api_key": ["sk-caller-key"]})
    assert "sk-caller-key" not in str(error.value)
    with pytest.raises(InvalidArgumentsError) as refused:
        request_of(**{**MODEL, "base_url": "ftp://x"}, instruction="x")
    assert str(refused.value).startswith("1 validation error for call[run_rollout]")
    assert "sk-caller-key" not in str(refused.value)


def test_whole_numbers_are_taken_where_numbers_are_expected() -> None:
    given = RunRolloutArguments.model_validate({"agent_timeout_s": 600, "max_tokens_cap": 4096.0})
    assert (given.agent_timeout_s, given.max_tokens_cap) == (600.0, 4096)


def test_bad_limits_are_named() -> None:
    with pytest.raises(InvalidArgumentsError, match="turnss"):
        request_of(**MODEL, instruction="x", limits={"turnss": 1})


def test_a_served_task_cannot_be_described_too() -> None:
    with pytest.raises(ArgumentError, match="'task' and 'verify'"):
        request_of(offered=("policy",), task="sum", verify=["true"])
