"""One script plays to every coding agent, though each has its own tools, its own way to end, and errands of its own."""

import json
import subprocess
from typing import Any

import pytest
from hypothesis import given

from support.agent_requests import AGENTS, body, dialect, path, read
from support.scripted_world import REPLIES, assemble_stream, playing
from whet.gateway.dialects import neutral as n
from whet.testing import Fault, Reply, Scene, Script, ToolCall, When, call, say
from whet.testing.adapt import adapt_reply
from whet.testing.play import reply_to
from whet.testing.wire import write_whole

LS = {"command": "ls"}
SHELLS = {
    "opencode": ("bash", LS),
    "claude-code": ("Bash", LS),
    "codex": ("exec_command", {"cmd": "ls"}),
    "copilot": ("bash", LS | {"description": "ls"}),
    "gemini": ("run_shell_command", LS),
    "qwen": ("run_shell_command", LS),
    "pi": ("bash", LS),
    "mini-swe-agent": ("bash", LS),
}
PLACE = "/home/agent/.agents/skills/marker/SKILL.md"
SKILLS = {
    "opencode": ("skill", {"name": "marker"}),
    "claude-code": ("Skill", {"skill": "marker"}),
    "codex": ("exec_command", {"cmd": f"cat {PLACE}"}),
    "copilot": ("skill", {"skill": "marker"}),
    "gemini": ("activate_skill", {"name": "marker"}),
    "qwen": ("skill", {"skill": "marker"}),
    "pi": ("read", {"path": PLACE}),
}
TOLD = {"prompt": "Count them."}
BRIEFED = TOLD | {"description": "Count them."}
SUB_AGENTS = {
    "opencode": ("task", BRIEFED | {"subagent_type": "general"}),
    "claude-code": ("Agent", BRIEFED | {"subagent_type": "general-purpose"}),
    "codex": ("spawn_agent", {"message": "Count them."}),
    "copilot": ("task", BRIEFED | {"name": "Count them.", "agent_type": "general-purpose", "mode": "sync"}),
    "gemini": ("invoke_agent", TOLD | {"agent_name": "generalist"}),
    "qwen": ("agent", BRIEFED | {"subagent_type": "general-purpose"}),
}
ANSWER = Reply(text="Counted.", answer={"answer": 42, "why": "as asked"})
NUMBERED = Script(scenes=(Scene(replies=tuple(say(str(number)) for number in range(9))),))

each_agent = pytest.mark.parametrize("agent", AGENTS)


def _calls(reply: Reply) -> list[tuple[str, Any]]:
    return [(tool.name, tool.arguments) for tool in reply.tools]


def _played(request: str, reply: Reply) -> list[tuple[str, Any]]:
    return _calls(adapt_reply(reply, read(request)))


@each_agent
async def test_a_command_runs_in_the_shell_of_every_agent(agent: str) -> None:
    spoken = dialect(agent)
    async with playing(call("bash", command="ls"), say("Done.")) as client:
        answer = await client.post(path(agent), body(agent))
    streamed = answer.headers["content-type"] == "text/event-stream"
    reply = assemble_stream(spoken, answer.body) if streamed else spoken.read_reply(answer.body)
    calls = [(part.name, json.loads(part.arguments)) for part in reply.parts if isinstance(part, n.ToolCall)]
    assert calls == [SHELLS[agent]]


@pytest.mark.parametrize("agent", SKILLS)
def test_a_skill_is_loaded_by_tool_or_read(agent: str) -> None:
    assert _played(agent, call("skill", name="marker")) == [SKILLS[agent]]


@pytest.mark.parametrize("agent", SUB_AGENTS)
def test_a_prompt_is_handed_to_a_sub_agent(agent: str) -> None:
    assert _played(agent, call("agent", prompt="Count them.")) == [SUB_AGENTS[agent]]


@each_agent
def test_a_script_may_use_the_words_of_any_agent(agent: str) -> None:
    for name, arguments in SHELLS.values():
        shell, played = _played(agent, Reply(tools=(ToolCall(name=name, arguments=arguments),)))[0]
        assert (shell, played | SHELLS[agent][1]) == (shell, played)
        assert shell == SHELLS[agent][0]


@pytest.mark.parametrize("agent", SUB_AGENTS)
def test_a_kind_of_sub_agent_is_not_taken_over_from_another_agent(agent: str) -> None:
    of_another = call("task" if agent == "claude-code" else "Agent", prompt="Count them.", subagent_type="x")
    assert "x" not in _played(agent, of_another)[0][1].values()


def test_a_script_in_the_words_of_the_agent_is_completed() -> None:
    asked = call("agent", prompt="Count them.", subagent_type="Explore")
    assert _played("qwen", asked) == [("agent", BRIEFED | {"subagent_type": "Explore"})]
    whole = call("bash", command="ls", timeout=5, made_up=True)
    assert adapt_reply(whole, read("opencode")) == whole


@pytest.mark.parametrize(
    "reply",
    [
        call("skill", name="unheard-of"),
        call("agent", prompt="Count them."),
        call("launch", target="moon"),
        call("bash"),
        call("bash", command=5),
    ],
    ids=["unknown skill", "no sub-agents", "unknown tool", "no command", "no text"],
)
def test_a_call_without_a_tool_stays_as_it_is(reply: Reply) -> None:
    assert adapt_reply(reply, read("pi")) == reply


def test_arguments_that_are_broken_on_purpose_reach_the_tool_as_they_stand() -> None:
    broken = Reply(tools=(ToolCall(name="bash", arguments='{"command": '),))
    assert _played("codex", broken) == [("exec_command", '{"command": ')]
    assert adapt_reply(broken, read("copilot")) == broken


@pytest.mark.parametrize("agent", [agent for agent in AGENTS if agent != "mini-swe-agent"])
def test_a_resumed_conversation_goes_on_with_the_next_reply(agent: str) -> None:
    # The history holds a reply with two calls, one with one, a text, the next instruction, and one more call.
    assert reply_to(read(f"{agent}.resumed").conversation, NUMBERED) == say("4")


@pytest.mark.parametrize("agent", AGENTS)
def test_what_an_agent_puts_before_a_conversation_is_no_reply(agent: str) -> None:
    assert reply_to(read(agent).conversation, NUMBERED) == say("0")


def test_codex_waits_for_the_sub_agent_that_it_started() -> None:
    spawned = read("codex.spawned")
    [(tool, arguments)] = _calls(adapt_reply(say("Too early."), spawned))
    assert tool == "wait_agent"
    [started] = arguments["targets"]
    assert started in json.dumps(body("codex.spawned")["input"])


def test_waiting_for_a_sub_agent_takes_no_reply_of_the_script() -> None:
    # The history holds the call that starts it, the wait, and one more call.
    assert reply_to(read("codex.waited").conversation, NUMBERED) == say("2")


def test_a_tool_in_a_namespace_is_called_in_it() -> None:
    request = read("codex")
    answer = json.loads(write_whole(request, adapt_reply(call("agent", prompt="Count them."), request)))
    [called] = answer["output"]
    assert (called["name"], called["namespace"]) == ("spawn_agent", "multi_agent_v1")


def test_a_namespace_may_have_become_part_of_the_name() -> None:
    spawn = {"name": "multi_agent_v1__spawn_agent", "parameters": {"properties": {"message": {}}}}
    wait = {"name": "multi_agent_v1__wait_agent"}
    spawning = {"function": {"name": spawn["name"], "arguments": "{}"}}
    asked = [{"role": "user", "content": "Count."}]
    begun = [*asked, {"role": "assistant", "tool_calls": [spawning]}, {"role": "tool", "content": '{"agent_id":"a1"}'}]
    tools = [{"type": "function", "function": function} for function in (spawn, wait)]
    first, second = (read("pi", messages=history, tools=tools) for history in (asked, begun))
    assert _calls(adapt_reply(call("agent", prompt="Count."), first)) == [(spawn["name"], {"message": "Count."})]
    assert _calls(adapt_reply(say("Done."), second))[0][0] == wait["name"]


@pytest.mark.parametrize("text", ["Done.", "", 'It\'s "done": $HOME `x` \\n\n\n# é %s', "--help", "EOF\nEOF"])
def test_mini_swe_agent_ends_by_a_command_that_prints_the_final_text(text: str) -> None:
    [(tool, arguments)] = _played("mini-swe-agent", say(text))
    assert tool == "bash"
    printed = subprocess.run(["bash", "-c", arguments["command"]], capture_output=True, check=True, text=True).stdout
    assert printed == f"COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n{text}"


def test_a_sub_agent_of_gemini_ends_by_its_tool() -> None:
    assert _played("gemini.subagent", say("Three.")) == [("complete_task", {"result": {"response": "Three."}})]


@pytest.mark.parametrize(
    ("request_", "tool"), [("claude-code.structured", "StructuredOutput"), ("qwen.structured", "structured_output")]
)
def test_a_structured_answer_is_a_call_of_its_tool(request_: str, tool: str) -> None:
    reply = adapt_reply(ANSWER, read(request_))
    assert (reply.text, _calls(reply)) == ("Counted.", [(tool, ANSWER.answer)])


def test_a_structured_answer_is_json_where_the_request_has_a_schema() -> None:
    assert adapt_reply(ANSWER, read("codex.structured")).text == '{"answer":42,"why":"as asked"}'


def test_a_structured_answer_is_in_tags_where_nothing_is_asked_for() -> None:
    tagged = '<answer>{"answer":42,"why":"as asked"}</answer>'
    assert adapt_reply(ANSWER, read("opencode")).text == f"Counted.\n{tagged}"
    assert adapt_reply(Reply(answer=ANSWER.answer), read("opencode")).text == tagged
    assert tagged in _played("mini-swe-agent", ANSWER)[0][1]["command"]


@pytest.mark.parametrize("reply", [call("bash", command="ls"), say("Done."), ANSWER], ids=["call", "text", "answer"])
def test_an_errand_with_a_schema_gets_what_the_schema_asks_for(reply: Reply) -> None:
    assert adapt_reply(reply, read("claude-code.title")) == say('{"title":"scripted"}')
    routed = {"complexity_reasoning": "scripted", "complexity_score": 1}
    assert json.loads(adapt_reply(reply, read("gemini.router")).text or "") == routed


def test_a_schema_is_met_by_a_reply_that_fits_it() -> None:
    for reply in (say('{"title": "Counting"}'), Reply(answer={"title": "Counting"})):
        assert json.loads(adapt_reply(reply, read("claude-code.title")).text or "") == {"title": "Counting"}


def test_an_errand_gets_a_short_text() -> None:
    assert adapt_reply(call("bash", command="ls"), read("opencode.title")) == say("Scripted")
    assert adapt_reply(say("Done."), read("opencode.title")) == say("Done.")


def test_a_fault_strikes_errands_too() -> None:
    down = Reply(fault=Fault.SERVER_ERROR)
    assert adapt_reply(down, read("gemini.router")).fault is Fault.SERVER_ERROR


@given(reply=REPLIES)
def test_without_tools_the_reply_stays_as_it_is(reply: Reply) -> None:
    assert adapt_reply(reply, read("pi", tools=[])) == reply


@pytest.mark.parametrize("agent", ["opencode", "claude-code", "codex", "gemini"])
def test_a_scene_may_be_for_conversations_with_a_picture(agent: str) -> None:
    pictured, plain = (Scene(when=When(image=image), replies=(say(str(image)),)) for image in (True, False))
    script = Script(scenes=(pictured, plain))
    assert reply_to(read(f"{agent}.image").conversation, script) == say("True")
    assert reply_to(read(agent).conversation, script) == say("False")
