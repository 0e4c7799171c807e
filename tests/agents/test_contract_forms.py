"""What every agent takes and gives: sub-agents, memory, answers in structured form, images, instructions as they
stand, models of another dialect, and every token of them."""

import asyncio
import base64
import json

import pytest

from support import contract_world as w
from support.recordings import ERRAND, check_conversations, check_errand
from whet.agents.launch import Traits
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


@pytest.mark.parametrize("name", w.with_trait("subagents"))
async def test_a_sub_agent_is_told_apart_and_counted_apart(name: str) -> None:
    done = await w.rolled_out(
        w.named(name),
        w.task(instruction="Let somebody else do it."),
        w.scene(call("bash", command=w.WRITE_RIGHT), say("It is in the file."), user="Put the word right"),
        w.scene(call("agent", prompt=ERRAND), say("They did it.")),
        skill=w.SKILL,
    )
    assert done.result.score.value == 1, done.result
    assert done.text == "They did it."
    main, subs = done.main, done.calls_of(Kind.SUB)
    assert len(subs) == 2
    assert not any(ERRAND in text for one in main for text in w.told(one))
    assert all(any(ERRAND in text for text in w.told(one)) for one in subs)
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


@pytest.mark.parametrize("name", w.with_trait("system"))
async def test_a_skill_can_go_into_the_system_prompt(name: str) -> None:
    agent = w.named(name).model_copy(update={"skill_at": "system"})
    done = await w.rolled_out(agent, w.task(verify=("true",)), w.scene(say("Done.")), skill=w.SKILL)
    assert done.result.report is not None
    assert done.result.report.skill == Delivered(way="system")
    assert any("# Careful work from the shell" in text for text in w.told(done.main[0], "system"))


@pytest.fixture(scope="module", params=w.CLI_NAMES)
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Traits, w.Done]:
    """What a CLI can do, and a rollout with attachments, an answer in structured form, and a memory document if it
    reads one. It serves the next three tests."""
    folder, traits = tmp_path_factory.mktemp("asked"), w.traits_of(w.named(request.param))
    (folder / "pic.png").write_bytes(PICTURE)
    (folder / "table.csv").write_text("one,two\n")
    (folder / "HABITS.md").write_text("# Habits\n\nAlways count the files before and after the work.\n")
    job = w.task(
        instruction="What is in the picture? Add 2 and 3.",
        attachments=(folder / "pic.png", folder / "table.csv"),
        answer_schema=SCHEMA,
        verify=("true",),
    )
    look = w.scene(call("bash", command="cat ATTACHMENTS.md attachments/table.csv"), Reply(answer=ANSWER))
    skill = read_skill(folder / "HABITS.md") if traits.memory else None
    done = asyncio.run(w.rolled_out(w.named(request.param), job, look, skill=skill))
    assert done.result.report is not None, done.result
    return traits, done


def test_a_memory_document_is_read_without_being_asked_for(asked: tuple[Traits, w.Done]) -> None:
    traits, done = asked
    assert done.result.report is not None
    place = Delivered(way="memory", place=f"/home/agent/{traits.memory}") if traits.memory else None
    assert done.result.report.skill == place
    assert done.result.skill == (SkillSeen(shown=True, read=True) if traits.memory else None)


def test_an_answer_comes_in_the_form_that_the_task_asks_for(asked: tuple[Traits, w.Done]) -> None:
    traits, done = asked
    assert done.result.report is not None
    assert done.result.report.answer == ANSWER
    assert any("<answer>" in text for text in w.told(done.main[0])) != traits.schema


def test_an_image_is_shown_to_the_model_and_other_files_are_listed(asked: tuple[Traits, w.Done]) -> None:
    traits, done = asked
    assert len(done.main) > 1
    assert all((base64.b64encode(PICTURE) in one.request) == traits.images for one in done.main)
    last = done.main[-1].request
    assert b"attachments/table.csv" in last
    assert b"one,two" in last
    assert (b"`attachments/pic.png`" in last) != traits.images


@pytest.mark.parametrize("name", w.CLI_NAMES)
async def test_an_instruction_reaches_the_model_as_it_stands(name: str) -> None:
    first, second = f"-v --help {ODD}", f"/help {ODD}\n/clear"
    resumes = w.traits_of(w.named(name)).resumes
    files = {"made.txt": "CONTENT-OF-MADE", "sub/other.txt": "CONTENT-OF-OTHER"}
    done = await w.rolled_out(
        w.named(name),
        w.task(instruction=first, followups=(second,) if resumes else (), files=files, verify=("true",)),
        w.scene(say("One."), say("Two.")),
    )
    assert done.text == ("Two." if resumes else "One.")
    for text in (first, second) if resumes else (first,):
        assert any(text in one for one in w.told(done.main[-1])), w.told(done.main[-1])
    # No file was read because its name stands there.
    assert not any(b"CONTENT-OF" in one.request for one in done.exchanges)


@pytest.mark.parametrize("name", w.NAMES)
async def test_a_long_instruction_and_every_token_are_on_record(name: str) -> None:
    """The model speaks chat, whatever the agent speaks."""
    long = "".join(f"{number} Write right into answer.txt, and nothing else.\n" for number in range(4000)) + "The end."
    assert len(long) > 200_000
    work = w.scene(call("bash", command=w.WRITE_RIGHT), say("Done."))
    done = await w.rolled_out(
        w.named(name), w.task(instruction=long), work, tokens=True, dialect="chat", capture="vllm"
    )
    assert any(long in text for text in w.told(done.main[0]))
    assert done.result.score.value == 1, done.result
    assert len(done.main) == 2
    for one in done.main:
        assert one.tokens == EXACT
        reply = json.loads(one.response)
        (choice,) = reply["choices"]
        sampled = reply["usage"]["completion_tokens"]
        assert len(choice["token_ids"]) == len(choice["logprobs"]["content"]) == sampled > 0
        assert b"token_ids" not in (one.delivered or b"")
