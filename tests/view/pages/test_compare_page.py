"""Comparing: the page says what `whet compare` says, leads to every rollout, and explains what cannot be compared."""

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.scored_runs import Scores, write_scores
from support.view_server import serve_view
from support.view_worlds import write_many_rollouts
from support.whet_program import EXAMPLES, Project, new_project
from whet.look.numbers import points, points_range, true_minus
from whet.runs.stats.compare import compare_arms
from whet.runs.stats.compared import format_p, in_words
from whet.runs.stats.summary import cells
from whet.runs.store.store import Store
from whet.view.comparisons import Comparisons
from whet.view.library import Library

TASKS = [f"task-{number:02}" for number in range(12)]
LOW: Scores = dict.fromkeys(TASKS, (0.0, 0.0))
HIGH: Scores = {task: (1.0, 1.0) if number else (1.0, 0.0) for number, task in enumerate(TASKS)}
MIXED: Scores = {task: (float(number % 2), 0.0) for number, task in enumerate(TASKS)}
AGENT = ("agent", "model")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with new_project(tmp_path) as project:
        yield project


def shown(page: str) -> str:
    """What a page says, without its tags."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", page)).split())


def words_of(project: Project, *arguments: str) -> list[str]:
    done = project.whet("compare", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    return [true_minus(one["words"]) for one in json.loads(done.stdout)["comparisons"]]


def details_of(project: Project, *arguments: str) -> list[str]:
    """The lines below the verdict that the terminal prints."""
    done = project.whet("compare", *arguments)
    return [line.strip() for line in done.stdout.splitlines()]


def test_the_page_says_what_the_command_says(project: Project) -> None:
    write_scores(project.path / "before", {AGENT: {**LOW, "gone": (1.0, 1.0), "lost": (None, None)}})
    write_scores(project.path / "after", {AGENT: {**HIGH, "lost": (1.0, 1.0)}})
    with serve_view(project.path) as view:
        text = shown(view.get("/compare?a=before&b=after"))
    (words,) = words_of(project, "before", "after")
    assert "after is better than before on these 12 tasks" in words
    assert words in text
    assert "whet compare" in text
    terminal = " ".join(details_of(project, "before", "after"))
    for told in ("not compared: 1 task, only in before", "missing in before: 2 of 26 scores (model 2)"):
        assert told in text
        assert told in terminal
    low, high = re.findall(r"lies between (\S+) and (\S+) points", terminal)[0]
    assert f"{low} … {high}" in text
    mean, ranged = re.findall(r"difference (\S+) (\[[^\]]+\]) points", terminal)[0]
    assert f"{mean} {ranged}" in text


def test_a_run_is_read_as_the_command_reads_it(tmp_path: Path) -> None:
    write_many_rollouts(tmp_path / "run", 5, 2, 2, missing=0.3, calls=2)
    found = Comparisons(Library([tmp_path])).read("run")
    with Store.open_read(tmp_path / "run") as store:
        assert found.arms == cells(store), "calls that were sent are counted too"
        assert found.digests == {task.id: task.digest for task in store.tasks()}
    assert sum(cell.sent for tasks in found.arms.values() for cell in tasks.values()) == 40


def test_an_undecided_pair_says_what_it_would_take_and_has_no_colour(project: Project) -> None:
    write_scores(project.path / "before", {AGENT: MIXED})
    write_scores(project.path / "after", {AGENT: {**MIXED, "task-00": (1.0, 0.0)}})
    with serve_view(project.path) as view:
        page = view.get("/compare?a=before&b=after")
    (words,) = words_of(project, "before", "after")
    assert "To see one of this size takes about" in words
    assert words in shown(page)
    assert '<section class="verdict undecided"' in page
    assert not re.search(r'class="[^"]*\b(better|worse)\b', page)


def test_uneven_losses_withhold_the_verdict(project: Project) -> None:
    write_scores(project.path / "before", {AGENT: HIGH})
    write_scores(project.path / "after", {AGENT: dict.fromkeys(TASKS, (None, 0.0))})
    with serve_view(project.path) as view:
        page = view.get("/compare?a=before&b=after")
    assert words_of(project, "before", "after")[0] in shown(page)
    assert '<section class="verdict missing"' in page
    assert "withheld: scores were lost: 0 of 24 in before, 12 of 24 in after" in shown(page)


@pytest.fixture
def pair(project: Project) -> Project:
    """B wins 2 tasks, loses 1 and ties 9."""
    write_scores(project.path / "a", {AGENT: {**MIXED, "task-00": (0.0, 0.0), "task-02": (0.0, 0.0)}})
    write_scores(
        project.path / "b", {AGENT: {**MIXED, "task-00": (1.0, 1.0), "task-02": (1.0, 0.0), "task-05": (0.0, 0.0)}}
    )
    return project


def tasks_on(page: str) -> list[str]:
    return re.findall(r'<td class="task"><bdi[^>]*>([^<]+)</bdi>', page)


def test_tasks_are_filtered_and_sorted(pair: Project) -> None:
    with serve_view(pair.path) as view:

        def tasks(**query: str) -> list[str]:
            return tasks_on(view.client.get("/compare", params={"a": "a", "b": "b", **query}).text)

        assert tasks()[:3] == ["task-00", "task-02", "task-05"], "the largest difference is first"
        assert tasks(only="wins") == ["task-00", "task-02"]
        assert tasks(only="losses") == ["task-05"]
        assert len(tasks(only="ties")) == 9
        assert tasks(only="flipped") == ["task-00"], "half of the samples are not most of them"
        assert tasks(sort="losses")[0] == "task-05"
        assert tasks(sort="gains")[0] == "task-00"
        assert tasks(sort="noise")[0] == "task-01", "both arms differ from sample to sample"
        assert tasks(task="-1") == ["task-10", "task-11"]
        view.get("/compare?a=a&b=b&sort=colour", 404)
        view.get("/compare?a=a&b=b&page=2", 404)


def test_every_dot_leads_to_its_rollout_and_a_task_to_two_traces(pair: Project) -> None:
    with serve_view(pair.path) as view:
        page = view.get("/compare?a=a&b=b")
        dots = re.findall(r'<a class="dot (\w+)" href="([^"]+)" title="([^"]+)"', page)
        assert len(dots) == 48
        assert dots[0] == ("failed", "/runs/a/rollouts/00000000", "sample 0: failed, 0.00")
        for _, address, _ in dots[:4]:
            view.get(address)
        traces = re.findall(r'href="(/compare/traces[^"]+)"', page)
        assert len(traces) == 12
        # B wins the first task: its best rollout against the worst one of A.
        assert html.unescape(traces[0]).startswith("/compare/traces?a=a%2F00000000&b=b%2F00000000")


def test_a_hundred_tasks_on_a_page(project: Project) -> None:
    write_many_rollouts(project.path / "many", 150, 2, 2, missing=0)
    with serve_view(project.path) as view:
        first, second = (view.get(f"/compare?a=many&page={number}") for number in (1, 2))
    assert (len(tasks_on(first)), len(tasks_on(second))) == (100, 50)
    assert not set(tasks_on(first)) & set(tasks_on(second))
    assert "page=2" in first


def test_several_arms_are_a_matrix_whose_cells_keep_the_corrected_p(project: Project) -> None:
    arms = {("codex", "m"): LOW, ("pi", "m"): HIGH, ("loop", "m"): MIXED}
    write_scores(project.path / "arms", arms)
    found = compare_arms(project.path / "arms")
    with serve_view(project.path) as view:
        page = view.get("/compare?a=arms")
        pairs = [html.unescape(one) for one in re.findall(r'href="([^"]+)" class="row-link"', page)]
        assert len(pairs) == 3
        for one, address in zip(found, pairs, strict=True):
            assert one.difference is not None
            assert format_p(one.corrected_p) in page
            opened = shown(view.get(address))
            assert true_minus(in_words(one)) in opened, "the pair says what the matrix said"
            assert f"{points(one.difference.mean)} {points_range(one.difference.low, one.difference.high)}" in opened
            assert "one of 3 comparisons" in opened
    assert words_of(project, "arms") == [true_minus(in_words(one)) for one in found]


def test_swapping_turns_the_verdict_and_keeps_the_test(pair: Project) -> None:
    write_scores(pair.path / "arms", {("codex", "m"): LOW, ("pi", "m"): HIGH})
    with serve_view(pair.path) as view:
        page = view.get("/compare?a=arms")
        (swap,) = re.findall(r'href="([^"]+)">swap<', page)
        turned = shown(view.get(html.unescape(swap)))
    assert "pi is better than codex" in shown(page)
    assert "codex is worse than pi" in turned
    assert re.findall(r"sign-flip test [^,]+", shown(page)) == re.findall(r"sign-flip test [^,]+", turned)


def test_arms_of_two_runs_are_chosen_by_name(project: Project) -> None:
    write_scores(project.path / "old", {("codex", "m"): LOW, ("pi", "m"): MIXED})
    write_scores(project.path / "new", {("codex", "m"): HIGH, ("loop", "m"): HIGH})
    with serve_view(project.path) as view:
        alone = shown(view.get("/compare?a=old@pi / m / no skill&b=new@loop / m / no skill"))
        assert "new loop / m / no skill is better than old pi / m / no skill" in alone
        same = shown(view.get("/compare?a=old@codex / m / no skill&b=new"))
        assert "new codex / m / no skill is better than old codex / m / no skill" in same
        assert "has no arm 'x'" in shown(view.get("/compare?a=old@x&b=new"))
        assert "several arms; choose one of" in shown(view.get("/compare?a=old@pi / m / no skill&b=new"))
        assert "the same arm is chosen twice" in shown(
            view.get("/compare?a=old@pi / m / no skill&b=old@pi / m / no skill")
        )


def test_what_cannot_be_compared_is_explained(project: Project) -> None:
    write_scores(project.path / "one", {AGENT: {"x": (1.0,), "y": (0.0,)}})
    write_scores(project.path / "other", {AGENT: {"z": (1.0,)}})
    write_scores(project.path / "changed", {AGENT: {"x": (1.0,), "y": (1.0,)}}, changed=["x"])
    (project.path / "broken").mkdir()
    (project.path / "broken" / "run.db").write_bytes(b"no database" * 100)
    with serve_view(project.path) as view:
        assert "Choose two runs, or one run that has several arms" in shown(view.get("/compare"))
        assert "one: has only one arm; name a second run" in shown(view.get("/compare?a=one"))
        none = shown(view.get("/compare?a=one&b=other"))
        assert "cannot be compared: no task has scores in both" in none
        assert "not compared: 2 tasks, only in one" in none
        changed = shown(view.get("/compare?a=one&b=changed"))
        assert "not compared: changed in between ( 00000000 → ffffffff )" in changed.replace("(0", "( 0").replace(
            "f)", "f )"
        )
        assert "Nothing to compare: " in shown(view.get("/compare?a=one&b=broken"))
        assert "no run" in view.get("/compare?a=one&b=nowhere", 404)


def test_a_transfer_run_is_a_matrix_of_lifts(project: Project) -> None:
    sharpen = EXAMPLES / "sharpen"
    project.write("good/SKILL.md", "---\nname: good\ndescription: x\n---\n- Answer in one word, in small letters.\n")
    model = f"scripted:{sharpen / 'model.toml'}"
    done = project.whet(
        *("transfer", "good", str(sharpen / "questions.jsonl"), "--agent", "chat", "--model", model),
        *("--limit", "8", "--out", "lifts", "--sandbox", "local"),
    )
    assert done.returncode == 0, done.stderr
    lift = re.findall(r"\[[+-]\S+, \S+\]", done.stdout)[0]
    with serve_view(project.path) as view:
        page = view.get("/compare?a=lifts")
        assert "Where does the skill help?" in page
        assert true_minus(lift) in shown(page)
        assert "'helps' and 'harms' are about these tasks" in shown(page)
        (cell,) = re.findall(r'class="chip [^"]+">.*?<a href="([^"]+)">(\w+)</a>', page)
        assert cell[1] == "helps"
        opened = shown(view.get(html.unescape(cell[0])))
        assert "is better than no skill on these 8 tasks" in opened
        assert "see all" not in opened, "one lift is one comparison"


def test_a_running_comparison_is_made_again_when_a_run_grows(project: Project) -> None:
    write_scores(project.path / "a", {AGENT: LOW})
    write_scores(project.path / "b", {AGENT: HIGH})
    with serve_view(project.path) as view:
        assert "on these 12 tasks" in shown(view.get("/compare?a=a&b=b"))
        for name, scores in (("a", LOW), ("b", HIGH)):
            (project.path / name / "run.db").unlink()
            write_scores(project.path / name, {AGENT: {**scores, "more": scores["task-00"]}})
        assert "on these 13 tasks" in shown(view.get("/compare?a=a&b=b"))
