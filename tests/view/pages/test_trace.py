"""The page of a trace shows every step as text, whole or in parts, and says what is not there."""

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from support.trace_pages_world import PNG, write_trace_world
from support.view_server import ServedView, serve_view
from support.view_worlds import write_long_trace
from whet.view import addresses

TRACE = addresses.trace("kinds", "r0")
STEPS = re.compile(r'<article class="step ([\w-]+)[^"]*" id="s(\d+)"')


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedView]:
    root = tmp_path_factory.mktemp("runs")
    write_trace_world(root)
    write_long_trace(root / "long", 200, 2000)
    with serve_view(root) as served:
        for address in (TRACE, addresses.trace("long", "r0")):
            served.get(f"{address}?wait=1")
        yield served


def kinds(html: str) -> list[str]:
    return [kind for kind, _ in STEPS.findall(html)]


def fragment(view: ServedView, address: str) -> str:
    """What htmx gets for an address."""
    reply = view.client.get(address, headers={"HX-Request": "true"})
    assert reply.status_code == 200
    return reply.text


def test_every_kind_of_step_is_shown(view: ServedView) -> None:
    html = view.get(f"{TRACE}?layers=all")
    assert set(kinds(html)) == {"system", "user", "reply", "result", "sub-agent", "helper", "break", "failed"}
    assert "the agent started over" in html or "the agent changed its history" in html
    assert "a call was not answered" in html
    assert html.count("✗ failed") >= 3, "a tool that failed, a call without an answer, a request that cannot be read"


def test_text_of_agents_is_text(view: ServedView) -> None:
    html = view.get(TRACE)
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "&lt;b&gt;tags&lt;/b&gt;" in html


@pytest.mark.parametrize(
    ("layers", "missing", "there"),
    [
        ("calls,results", "I think of", "ls -l"),
        ("thinking", "ls -l", "I think of"),
        ("none", "exit code 1", "Fix the"),
        ("all", "nothing of that kind", "You work."),
    ],
)
def test_layers_are_in_the_address(view: ServedView, layers: str, missing: str, there: str) -> None:
    html = re.sub(r"<nav class=.trace-outline.*?</nav>", "", view.get(f"{TRACE}?layers={layers}"), flags=re.DOTALL)
    assert missing not in html
    assert there in html


def test_a_layer_switch_leads_to_the_same_trace_without_it(view: ServedView) -> None:
    links = dict(re.findall(r'<a href="([^"]+)" class="layer[^"]*"[^>]*aria-label="(\w+): shown"', view.get(TRACE)))
    address = next(link for link, layer in links.items() if layer == "results")
    assert "result" not in kinds(view.get(unescape(address)))


def test_errors_alone(view: ServedView) -> None:
    assert set(kinds(view.get(f"{TRACE}?errors=1"))) <= {"result", "failed"}


def test_a_sub_agent_is_a_branch_and_can_be_read_alone(view: ServedView) -> None:
    html = view.get(TRACE)
    assert re.search(r'<details class="branch"[^>]*><summary>.*sub-agent explore.*2 steps', html)
    (address,) = set(re.findall(r'href="([^"]+)">open as its own page', html))
    alone = view.get(unescape(address))
    assert "None are there." in alone
    assert "Let</strong>" not in alone
    assert "Back to the whole trace" in alone
    assert "branch" not in alone.partition('class="trace-main"')[2]


def test_find_lists_the_steps_and_works_without_a_script(view: ServedView) -> None:
    html = view.get(f"{TRACE}?q=tests+please")
    assert re.search(r"<mark>tests, please</mark>", html)
    numbers = re.search(r'data-hits="([\d ]+)"', html)
    assert numbers
    found = fragment(view, addresses.find("kinds", "r0", q="tests please"))
    assert f'data-hits="{numbers[1]}"' in found
    assert "<html" not in found
    assert "No step holds" in view.get(f"{TRACE}?q=zzzzz")


def test_markdown_is_a_choice_in_the_address(view: ServedView) -> None:
    assert "**Let** us see." in view.get(TRACE)
    html = view.get(f"{TRACE}?text=markdown")
    assert "<strong>Let</strong> us see." in html
    assert "<script>alert" not in html


def test_a_long_text_is_cut_and_its_own_page_has_all(view: ServedView) -> None:
    html = view.get(TRACE)
    assert "first 4,000 of 9,008 characters" in html
    (address,) = set(re.findall(r'first 4,000 of 9,008 characters: <a href="([^"]+)"', html))
    whole = view.get(unescape(address))
    assert "y" * 9000 + " the end" in whole


def test_an_image_is_shown_only_by_itself_and_without_rights(view: ServedView) -> None:
    (address,) = re.findall(r'<a href="([^"]+)">image</a>', view.get(TRACE))
    reply = view.client.get(unescape(address))
    assert (reply.status_code, reply.content) == (200, PNG)
    assert reply.headers["content-type"] == "image/png"
    assert "sandbox" in reply.headers["content-security-policy"]


def test_a_step_leads_to_its_bytes(view: ServedView) -> None:
    links = re.findall(r'<a href="([^"]+)" data-raw', view.get(f"{TRACE}?layers=all"))
    for link in links:
        view.get(unescape(link))
    assert any("/calls/7?" in link for link in links), "also a request that cannot be read"


def test_an_address_of_a_step_opens_its_chunk(view: ServedView) -> None:
    html = view.get(addresses.trace("long", "r0", 400))
    assert 'id="s400"' in html
    assert 'id="s3"' not in html
    anchor = re.search(r'href="[^"]*at=(\d+\.\d+)[^"]*#s400"', html)
    assert anchor
    assert 'data-at="400"' in view.get(addresses.trace("long", "r0", anchor=anchor[1]))


def test_chunks_together_are_the_whole_trace(view: ServedView) -> None:
    html = view.get(addresses.trace("long", "r0", layers="all"))
    numbers = [int(number) for _, number in STEPS.findall(html)]
    for address in re.findall(r'hx-get="([^"]*/trace/steps[^"]*)"', html):
        part = fragment(view, unescape(address))
        assert len(part.encode()) <= 100_000
        numbers += [int(number) for _, number in STEPS.findall(part)]
    last = re.search(r'data-last="(\d+)"', html)
    assert last
    assert numbers == list(range(1, int(last[1]) + 1))


def test_without_a_script_steps_are_pages(view: ServedView) -> None:
    html = view.get(addresses.trace("long", "r0"))
    link = re.search(r'<section class="chunk waiting[^>]*><a href="([^"]+)">steps', html)
    assert link
    page = view.get(unescape(link[1]))
    assert "<h1>Steps" in page
    assert "next →" in page


def test_an_attempt_without_calls_says_so(view: ServedView) -> None:
    assert "No model call was recorded" in view.get(addresses.trace("kinds", "none"))


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (f"{TRACE}?layers=colours", "expected some of: thinking"),
        (f"{TRACE}?thread=nobody", "no thread"),
        (f"{TRACE}?at=9999", "There is no step"),
        (f"{TRACE}?at=..%2f", "There is no step"),
        (f"{TRACE}/steps/1/blocks/99", "has no text"),
        (f"{TRACE}/steps/x/blocks/1", "no number of a step"),
        (f"{TRACE}/steps/1/images/0", "not kept"),
        (f"{TRACE}?attempt=9", "does not have attempt 9"),
        (addresses.trace("kinds", "nobody"), "no rollout"),
    ],
)
def test_a_wrong_address_is_a_sentence(view: ServedView, address: str, words: str) -> None:
    assert words in view.get(address, 404)


def test_the_page_does_not_grow_with_texts(tmp_path: Path) -> None:
    sizes = []
    for size in (2000, 30_000):
        write_long_trace(tmp_path / str(size), 60, size)
    with serve_view(tmp_path) as view:
        for size in (2000, 30_000):
            address = addresses.trace(str(size), "r0", wait=1)
            sizes.append(len(view.get(address).encode()))
    assert sizes[1] < sizes[0] + 20_000, json.dumps(sizes)
