"""The full text of a run finds every word that an agent or a model wrote, and nothing else."""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from support.trace_world import SYSTEM, asked, exchange, said
from support.view_worlds import EPOCH, add_calls, write_many_rollouts
from support.waiting import wait_until
from whet.exchange import Exchange
from whet.gateway.dialects.neutral import Text
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.view.derive.cache import run_key
from whet.view.derive.jobs import Done, FillSearch, Refused
from whet.view.derive.search import SearchWriter, find_missing, find_text
from whet.view.derive.traces import RunHits, Traces
from whet.view.derive.worker import Worker

WAIT_SEC = 60.0
PLANTED = {f"r{place}": f"planted{place:03}word" for place in range(12)}


def talk(*texts: str) -> list[Exchange]:
    """A conversation in which the user and the model say these texts in turn."""
    messages, calls = [SYSTEM], []
    for place in range(0, len(texts) - 1, 2):
        messages.append(asked(texts[place]))
        reply = said(Text(texts[place + 1]))
        calls.append(exchange(place // 2, messages, reply))
        messages.append(reply)
    return calls


def write_talks(folder: Path, talks: Mapping[str, Sequence[str]]) -> list[tuple[str, int, int]]:
    """A run in which each rollout is a conversation; its attempts."""
    with Store.create(folder) as store, store.atomic():
        store.add_tasks([TaskRow("t", "0" * 16, "tests", "{}")])
        store.add_rollouts([RolloutRow(name, place, "t", "loop", "m", None, place) for place, name in enumerate(talks)])
        for name, texts in talks.items():
            attempt = store.start_attempt(name, EPOCH)
            for call in talk(*texts):
                store.add_exchange(attempt, call)
        return store.last_attempts()


@pytest.fixture
def planted(tmp_path: Path) -> tuple[Path, list[tuple[str, int, int]]]:
    """Twelve rollouts that differ in one word."""
    talks = {
        name: ("Please begin.", f"I say {word} here.", "Go on", "Done, all of it.") for name, word in PLANTED.items()
    }
    return tmp_path / "run", write_talks(tmp_path / "run", talks)


def search(traces: Traces, world: tuple[Path, list[tuple[str, int, int]]], text: str, limit: int = 200) -> RunHits:
    found = traces.search(*world, text, WAIT_SEC, limit)
    assert not found.problem
    return found


def test_every_planted_word_is_found_where_it_is_and_nothing_else(
    shared: Traces, planted: tuple[Path, list[tuple[str, int, int]]]
) -> None:
    for name, word in PLANTED.items():
        found = search(shared, planted, word)
        ((hit,), complete) = found.hits, found.complete
        assert (hit.rollout, hit.step, hit.before, hit.hit, hit.after, complete) == (
            name,
            3,
            "I say ",
            word,
            " here.",
            True,
        )
    assert {hit.rollout for hit in search(shared, planted, "planted").hits} == set(PLANTED)
    assert search(shared, planted, "plantedword") == RunHits((), True)
    assert search(shared, planted, "anted").hits == (), "words are found by their beginnings"


def test_all_words_must_be_there_and_phrases_as_they_stand(
    shared: Traces, planted: tuple[Path, list[tuple[str, int, int]]]
) -> None:
    assert len(search(shared, planted, "here say planted003").hits) == 1
    assert len(search(shared, planted, '"all of it"').hits) == len(PLANTED)
    assert search(shared, planted, '"of all it"').hits == ()
    assert search(shared, planted, "planted003 Done").hits == (), "not in one message"
    assert search(shared, planted, "'\"--()*").hits == ()


def test_only_the_given_attempts_are_searched(shared: Traces, planted: tuple[Path, list[tuple[str, int, int]]]) -> None:
    folder, attempts = planted
    search(shared, planted, "begin")
    found = shared.search(folder, attempts[:2], "begin", WAIT_SEC, 200)
    assert [hit.rollout for hit in found.hits] == ["r11", "r10"], "the newest first"


def test_more_hits_than_the_limit_are_not_all_of_them(
    shared: Traces, planted: tuple[Path, list[tuple[str, int, int]]]
) -> None:
    found = search(shared, planted, "begin", limit=5)
    assert (len(found.hits), found.complete) == (5, False)


def test_a_rollout_that_says_it_often_leaves_room_for_others(shared: Traces, tmp_path: Path) -> None:
    talks = {"often": [f"echo {place}" for place in range(20)], "once": ("echo", "no")}
    found = search(shared, (tmp_path, write_talks(tmp_path, talks)), "echo")
    assert [(hit.rollout, hit.steps) for hit in found.hits] == [("once", 1), *[("often", 20)] * 3]


def test_nobody_has_to_wait_and_the_rest_is_filled_in_the_background(shared: Traces, tmp_path: Path) -> None:
    write_many_rollouts(tmp_path / "run", 5, 2, 2, calls=3)
    with Store.open_read(tmp_path / "run") as store:
        attempts = store.last_attempts()
    assert not shared.search(tmp_path / "run", attempts, "parser", 0.0, 200).complete
    wait_until(lambda: shared.search(tmp_path / "run", attempts, "parser", 0.0, 200).complete)
    assert len(shared.search(tmp_path / "run", attempts, "parser", 0.0, 200).hits) == 20


def test_an_attempt_that_grows_is_searched_again(shared: Traces, tmp_path: Path) -> None:
    ((name, attempt, count),) = write_talks(tmp_path, {"r": ("one", "two")})
    assert search(shared, (tmp_path, [(name, attempt, count)]), "four").hits == ()
    add_calls(tmp_path, attempt, talk("one", "two", "three", "four")[1:])
    grown = (tmp_path, [(name, attempt, count + 1)])
    assert [hit.step for hit in search(shared, grown, "four").hits] == [5]
    assert [hit.step for hit in search(shared, grown, "two").hits] == [3], "what was known is not there twice"


def test_a_message_that_all_rollouts_share_is_kept_once(
    tmp_path: Path, planted: tuple[Path, list[tuple[str, int, int]]]
) -> None:
    folder, attempts = planted
    file = tmp_path / "x.search"
    assert fill(folder, file, attempts) == Done()
    with closing(sqlite3.connect(file)) as db:
        ((messages,),) = db.execute("SELECT count(*) FROM message")
        ((places,),) = db.execute("SELECT count(*) FROM place")
    assert places == 5 * len(PLANTED)
    assert messages == 4 + len(PLANTED)


def fill(folder: Path, file: Path, attempts: Sequence[tuple[str, int, int]], seconds: float = 60.0) -> Done | Refused:
    wanted = tuple((attempt, exchanges) for _, attempt, exchanges in attempts)
    return Worker().do(FillSearch(str(folder), (str(file),), wanted, seconds))


def test_filling_stops_in_time_with_the_newest_done(
    tmp_path: Path, planted: tuple[Path, list[tuple[str, int, int]]]
) -> None:
    folder, attempts = planted
    file = tmp_path / "x.search"
    assert fill(folder, file, attempts, seconds=0.0) == Done(left=len(PLANTED) - 1)
    assert find_text(file, [attempts[0][1]], PLANTED["r11"], 9)[0]
    missing = find_missing(file, [(attempt, exchanges) for _, attempt, exchanges in attempts])
    assert [attempt for attempt, _ in missing] == [attempt for _, attempt, _ in attempts[1:]]


@pytest.mark.parametrize("damage", [b"no database at all", b""])
def test_a_damaged_file_is_made_anew(
    shared: Traces, cache_folder: Path, damage: bytes, planted: tuple[Path, list[tuple[str, int, int]]]
) -> None:
    search(shared, planted, "begin")
    file = cache_folder / f"{run_key(planted[0])}.search"
    file.write_bytes(damage * 1000)
    assert len(search(shared, planted, "begin").hits) == len(PLANTED)


def test_a_run_that_was_deleted_is_a_sentence(shared: Traces, planted: tuple[Path, list[tuple[str, int, int]]]) -> None:
    folder, attempts = planted
    (folder / "run.db").unlink()
    found = shared.search(folder, attempts, "begin", WAIT_SEC, 200)
    assert (found.hits, found.complete) == ((), False)
    assert str(folder) in found.problem


def test_a_file_that_is_full_says_so(
    tmp_path: Path, planted: tuple[Path, list[tuple[str, int, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, attempts = planted
    monkeypatch.setattr("whet.view.derive.search.MOST_BYTES", 1)
    reply = fill(folder, tmp_path / "x.search", attempts)
    assert isinstance(reply, Refused)
    assert "takes no more" in reply.reason


def test_an_attempt_that_cannot_be_read_does_not_stop_the_others(
    tmp_path: Path, planted: tuple[Path, list[tuple[str, int, int]]]
) -> None:
    folder, attempts = planted
    with closing(sqlite3.connect(folder / "run.db")) as db:
        db.execute("UPDATE exchange SET response = x'ff00' WHERE attempt = ?", (attempts[3][1],))
        db.commit()
    file = tmp_path / "x.search"
    assert fill(folder, file, attempts) == Done()
    hits, _ = find_text(file, [attempt for _, attempt, _ in attempts], "begin", 99)
    assert len(hits) >= len(PLANTED) - 1


def test_words_of_any_script_are_found(tmp_path: Path) -> None:
    file = tmp_path / "x.search"
    write_talks(tmp_path / "run", {"r": ("Größe naïve 検索 поиск", "snake_case CamelCase x1y2")})
    with Store.open_read(tmp_path / "run") as store:
        fill(tmp_path / "run", file, store.last_attempts())
    for word in ("größe", "NAÏVE", "検索", "Поиск", "snake", "case", "camel", "x1y2"):
        assert len(find_text(file, [1], word, 9)[0]) == 1, word
    with closing(SearchWriter(file)) as writer:
        assert not writer.is_full
