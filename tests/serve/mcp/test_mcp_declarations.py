"""The tools as a client sees them: short names, arguments of the wire models, schemas that every provider takes."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from whet.client.models import RolloutRequest
from whet.errors import UserError
from whet.serve.mcp.arguments import LIMITS, How, RunRollout, RunTask, WaitRollout, make_request
from whet.serve.mcp.calls import RUN
from whet.serve.mcp.server import declare
from whet.serve.mcp.tools import TOOLS
from whet.tasks import TaskLimits

DECLARED = {tool.name: declare(tool) for tool in TOOLS}


def test_the_tools_are_those_that_agents_need() -> None:
    names = "run_rollout start_rollout wait_rollout get_rollout cancel_rollout run_task list_tasks read_trace"
    assert set(DECLARED) >= set(names.split())
    assert set(RUN) == set(DECLARED)
    assert all(re.fullmatch(r"[a-z_]{4,16}", name) for name in DECLARED), "clients join names with _ and __"


@pytest.mark.parametrize("name", DECLARED)
def test_arguments_are_described_and_plain(name: str) -> None:
    schema = DECLARED[name].input_schema
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    for argument in schema["properties"].values():
        assert argument["description"].endswith(".")
        assert argument["type"] in {"string", "integer", "number", "array", "object"}, (
            "no unions: not every API has them"
        )


def test_what_a_call_starts_has_the_fields_of_a_request() -> None:
    own = set(RunRollout.model_fields) - set(LIMITS)
    assert own <= set(RolloutRequest.model_fields)
    assert set(LIMITS) <= set(RunRollout.model_fields)
    assert set(LIMITS.values()) <= set(TaskLimits.model_fields)


def test_arguments_become_a_request() -> None:
    how = RunRollout(instruction="Do it.", verify=["true"], setup=[], samples=3, max_seconds=5, max_cost=0.5)
    request = make_request(how)
    assert request.limits is not None
    assert request.limits.model_dump(exclude_unset=True) == {"agent_sec": 5, "cost": 0.5}
    assert (request.instruction, request.verify, request.samples) == ("Do it.", ("true",), 3)
    assert request.on_failure == "null", "a rollout of a group that fails stays in the answer"
    assert make_request(RunTask(task="t1")).task == "t1"


def test_a_single_command_is_taken_for_a_list_of_one() -> None:
    assert RunRollout.model_validate({"instruction": "x", "verify": "true"}).verify == ["true"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "both or neither of 'task' and 'instruction'"),
        ({"task": "a", "instruction": "b"}, "both or neither of 'task' and 'instruction'"),
        ({"task": "a", "verify": ["true"]}, "'task' and 'verify'"),
        ({"instruction": ""}, "instruction"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused_in_words(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_request(RunRollout.model_validate(given))


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (RunRollout, {"instruction": "x", "samples": 33}),
        (RunRollout, {"instruction": "x", "max_seconds": float("nan")}),
        (RunRollout, {"instruction": "x", "api_key": "secret"}),
        (WaitRollout, {"id": "x", "max_seconds": 1e9}),
        (WaitRollout, {"id": ""}),
    ],
)
def test_wrong_arguments_are_refused(model: type[How], given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(given)
