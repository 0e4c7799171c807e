"""What every agent takes and gives: sub-agents, memory, answers in structured form, images, instructions as they
stand, models of another dialect, and every token of them."""

import base64
import json
from pathlib import Path

import pytest

from support.contract_world import (
    CLI_NAMES,
    NAMES,
    SKILL,
    WRITE_RIGHT,
    named,
    rolled_out,
    scene,
    task,
    told,
    traits_of,
    with_trait,
)
from support.recordings import ERRAND, check_conversations, check_errand
from whet.agents import agent_named
from whet.agents.skill_delivery import Delivered
from whet.exchange import EXACT, Kind
from whet.rollout.result import SkillSeen
from whet.skill import read_skill
from whet.testing import Reply, call, say
from whet.trace.conversations.graph import build

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC"
)
ANSWER = {"sum": 5, "why": "2 and 3"}
SCHEMA = {
    "type": "object",
    "properties": {"sum": {"type": "integer"}, "why": {"type": "string"}},
    "required": ["sum", "why"],
    "additionalProperties": False,
}
ODD = """@made.txt, @./made.txt and @sub/other.txt; write to a@b.com, `@c`; it's "quoted", $HOME, \\@x, \\n, {{ task }},
<b>, a tab\t, ünïcödé, 漢字, 🦊, $(id), # no heading"""


@pytest.mark.parametrize("name", with_trait("subagents"))
async def test_a_sub_agent_is_told_apart_and_counted_apart(name: str) -> None:
    done = await rolled_out(
        named(name),
        task(instruction="Let somebody else do it."),
        scene(call("bash", command=WRITE_RIGHT), say("It is in the file."), user="Put the word right"),
        scene(call("agent", prompt=ERRAND), say("They did it.")),
        skill=SKILL,
    )
    assert done.result.score.value == 1, done.result
    assert done.text == "They did it."
    main, subs = done.main, done.calls_of(Kind.SUB)
    assert len(subs) == 2
    assert not any(ERRAND in text for one in main for text in told(one))
    assert all(any(ERRAND in text for text in told(one)) for one in subs)
    for one in [*main, *subs]:
        assert one.speaker is not None
        assert one.speaker.evidence
    assert len({one.speaker.thread for one in subs if one.speaker}) == 1
    exchanges = sorted(done.exchanges, key=lambda one: one.index)
    check_conversations(build(exchanges), exchanges)
    check_errand(build(exchanges), subagents=True)
    counts = dict(done.result.spending.speakers)
    assert counts.pop("main") == len(main)
    assert [(label.split()[0], number) for label, number in counts.items()] == [("sub", 2)]
    # It was offered its skill and did not take it.
    assert done.result.skill is not None
    assert (done.result.skill.shown, done.result.skill.read) == (True, False)


@pytest.mark.parametrize("name", with_trait("memory"))
async def test_a_memory_document_is_read_without_being_asked_for(name: str, tmp_path: Path) -> None:
    (tmp_path / "HABITS.md").write_text("# Habits\n\nAlways count the files before and after the work.\n")
    done = await rolled_out(
        named(name), task(verify=("true",)), scene(say("Done.")), skill=read_skill(tmp_path / "HABITS.md")
    )
    assert done.result.report is not None
    place = f"/home/agent/{traits_of(named(name)).memory}"
    assert done.result.report.skill == Delivered(way="memory", place=place)
    assert done.result.skill == SkillSeen(shown=True, read=True)


@pytest.mark.parametrize("name", with_trait("system"))
async def test_a_skill_can_go_into_the_system_prompt(name: str) -> None:
    agent = named(name).model_copy(update={"skill_at": "system"})
    done = await rolled_out(agent, task(verify=("true",)), scene(say("Done.")), skill=SKILL)
    assert done.result.report is not None
    assert done.result.report.skill == Delivered(way="system")
    assert any("# Careful work from the shell" in text for text in told(done.main[0], "system"))


@pytest.mark.parametrize("name", CLI_NAMES)
async def test_an_answer_comes_in_the_form_that_the_task_asks_for(name: str) -> None:
    done = await rolled_out(
        named(name),
        task(instruction="Add 2 and 3.", answer_schema=SCHEMA),
        scene(call("bash", command=WRITE_RIGHT), Reply(answer=ANSWER)),
    )
    assert done.result.score.value == 1, done.result
    assert done.result.report is not None
    assert done.result.report.answer == ANSWER
    asked_in_words = any("<answer>" in text for text in told(done.main[0]))
    assert asked_in_words != traits_of(named(name)).schema


@pytest.mark.parametrize("name", CLI_NAMES)
async def test_an_image_is_shown_to_the_model_and_other_files_are_listed(name: str, tmp_path: Path) -> None:
    picture, table = tmp_path / "pic.png", tmp_path / "table.csv"
    picture.write_bytes(PICTURE)
    table.write_text("one,two\n")
    done = await rolled_out(
        named(name),
        task(instruction="What is in the picture?", attachments=(picture, table), verify=("true",)),
        scene(call("bash", command="cat ATTACHMENTS.md attachments/table.csv"), say("I see it."), image=True),
        scene(call("bash", command="cat ATTACHMENTS.md attachments/table.csv"), say("I see nothing.")),
    )
    takes_images = traits_of(named(name)).images
    assert done.text == ("I see it." if takes_images else "I see nothing.")
    assert all((base64.b64encode(PICTURE) in one.request) == takes_images for one in done.main)
    last = done.main[-1].request
    assert b"attachments/table.csv" in last
    assert b"one,two" in last
    assert (b"`attachments/pic.png`" in last) != takes_images


@pytest.mark.parametrize("name", CLI_NAMES)
async def test_an_instruction_reaches_the_model_as_it_stands(name: str) -> None:
    first, second = f"-v --help {ODD}", f"/help {ODD}\n/clear"
    resumes = traits_of(named(name)).resumes
    files = {"made.txt": "CONTENT-OF-MADE", "sub/other.txt": "CONTENT-OF-OTHER"}
    done = await rolled_out(
        named(name),
        task(instruction=first, followups=(second,) if resumes else (), files=files, verify=("true",)),
        scene(say("One."), say("Two.")),
    )
    assert done.text == ("Two." if resumes else "One.")
    for text in (first, second) if resumes else (first,):
        assert any(text in one for one in told(done.main[-1])), told(done.main[-1])
    # No file was read because its name stands there.
    assert not any(b"CONTENT-OF" in one.request for one in done.exchanges)


@pytest.mark.parametrize("name", NAMES)
async def test_an_instruction_of_200_kb_arrives_whole(name: str) -> None:
    long = "".join(f"{number} Write right into answer.txt, and nothing else.\n" for number in range(4000)) + "The end."
    assert len(long) > 200_000
    done = await rolled_out(named(name), task(instruction=long), scene(call("bash", command=WRITE_RIGHT), say("Done.")))
    assert done.result.score.value == 1, done.result.score
    assert any(long in text for text in told(done.main[0]))


@pytest.mark.parametrize("name", NAMES)
async def test_every_token_of_the_main_thread_is_on_record(name: str) -> None:
    """A chat model, whatever the agent speaks."""
    done = await rolled_out(
        named(name),
        task(),
        scene(call("bash", command=WRITE_RIGHT), say("Done.")),
        tokens=True,
        dialect="chat",
        capture="vllm",
    )
    assert done.result.score.value == 1, done.result
    assert len(done.main) == 2
    for one in done.main:
        assert one.tokens == EXACT
        reply = json.loads(one.response)
        (choice,) = reply["choices"]
        sampled = reply["usage"]["completion_tokens"]
        assert len(choice["token_ids"]) == len(choice["logprobs"]["content"]) == sampled > 0
        assert b"token_ids" not in (one.delivered or b"")


@pytest.mark.parametrize("name", [name for name in NAMES if traits_of(agent_named(name, {})).dialect == "chat"])
async def test_an_agent_that_speaks_chat_works_with_a_model_that_speaks_messages(name: str) -> None:
    """Those that speak something else work with a chat model, as the test above shows."""
    script = scene(call("bash", command=WRITE_RIGHT), say("Done."))
    done = await rolled_out(named(name), task(), script, dialect="messages")
    assert done.result.score.value == 1, done.result
    assert done.text == "Done."
    assert {one.dialect for one in done.main} == {"chat"}
    assert {request.path for request in done.requests} == {"/v1/messages"}
