"""A night lets a model read sentences that the grammar does not: within its budget, once, and never with a secret."""

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from support.sleep_world import Repository, corrected
from whet.runs.config import Config, ModelConfig
from whet.runs.store.store import Store
from whet.sleep.night.consent import NoConsentError
from whet.sleep.night.flow import Night, Setting, plan_night, run_night
from whet.sleep.night.reading import MOST_PROMPTS
from whet.sleep.options import SleepOptions
from whet.sleep.redaction import SecretFoundError
from whet.sleep.report import Cost, NightRecord, Outcome
from whet.sleep.rules.model_corrections import AT_ONCE
from whet.sleep.rules.rule import Rule
from whet.sleep.store import NIGHTS, READING, SleepStore

SECRET = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
SAID = "The linter matters to me a lot."
LINT = [{"sentence": 1, "demand": "run", "words": "make lint"}, {"sentence": 2, "demand": "run", "words": "make lint"}]


class World:
    """A repository with sessions in which somebody asked for the linter, in words that the grammar does not read."""

    def __init__(self, folder: Path, *, said: str = SAID, reply: str = json.dumps(LINT), sessions: int = 2) -> None:
        self.home, self.script = folder / "home", folder / "model.toml"
        repository = Repository(self.home / "shop").folder
        self.script.write_text(f"[[scene]]\n[[scene.reply]]\ntext = {json.dumps(reply)}\n")
        self.store = SleepStore(folder / "store")
        for number in range(sessions):
            started = datetime.now(UTC) - timedelta(days=1, minutes=number)
            text = said if number < 2 else f"Point {number}: {said}"
            session = corrected(
                f"s{number}", ["edit cart.py"], text, ["make lint"], started=started, ended=started, cwd=str(repository)
            )
            self.store.put_session(session, repository=repository, path=self.home / "none", digest=session.id)

    def setting(self, **options: object) -> Setting:
        scripted = f"scripted:{self.script}"
        given = {"agent": "loop", "model": scripted, "proposer_model": scripted, **options}
        env = {"HOME": str(self.home), "PATH": os.environ["PATH"]}
        return Setting(SleepOptions.model_validate(given), Config(), self.home, env)

    def run(self, **options: object) -> NightRecord:
        return asyncio.run(run_night(self.setting(**options), self.store))

    def prompts(self, night: NightRecord) -> list[bytes]:
        folder = self.store.folder / NIGHTS / night.id / READING
        with Store.open_read(folder) as store:
            attempts = [attempt for row in store.rollouts() for attempt in store.attempts_of(row.id)]
            calls = [call for attempt in attempts for call in store.exchanges(attempt.id)]
        return [call.request for call in calls if call.status == 200]


def test_what_a_model_reads_becomes_a_rule_in_the_words_of_the_user(tmp_path: Path) -> None:
    world = World(tmp_path)
    night = world.run()
    (rule,) = world.store.list("rule", Rule)
    assert (rule.text, len(rule.sessions)) == (SAID, 2)
    assert night.outcome is Outcome.NO_JUDGE  # the rule was tried, and the repository has no tests
    assert len(world.prompts(night)) == 1
    assert (night.cost.rollouts, night.cost.tokens > 0, night.notes) == (0, True, ())


def test_without_such_a_model_nothing_is_asked(tmp_path: Path) -> None:
    world = World(tmp_path)
    night = world.run(proposer_model=None)
    assert (night.outcome, night.cost.tokens) == (Outcome.NO_RULE, 0)
    assert not (world.store.folder / NIGHTS / night.id / READING).exists()


def test_a_sentence_is_shown_to_a_model_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.run()
    world.script.write_text("broken")
    night = world.run()
    assert (night.outcome, night.cost.tokens) == (Outcome.NO_JUDGE, 0)
    plan = asyncio.run(plan_night(world.setting(), world.store))
    assert [rule.text for rule in plan.rules] == [SAID]


def test_a_plan_asks_no_model(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert asyncio.run(plan_night(world.setting(), world.store)).rules == ()
    assert not (world.store.folder / NIGHTS).exists()


def test_what_a_model_said_is_forgotten_with_the_session(tmp_path: Path) -> None:
    world = World(tmp_path)
    night = world.run()
    assert world.store.forget("s0").documents["meaning"] == 1
    assert not (world.store.folder / NIGHTS / night.id / READING).exists()


def test_a_proposal_that_the_steps_do_not_show_is_dropped(tmp_path: Path) -> None:
    world = World(tmp_path, reply=json.dumps([{"sentence": 1, "demand": "run", "words": "curl evil.example.com"}]))
    night = world.run(min_support=1)
    assert night.outcome is Outcome.NO_RULE
    assert night.not_used == {"not grounded": 1}


def test_a_model_that_gives_no_answer_is_on_record_and_the_night_continues(tmp_path: Path) -> None:
    world = World(tmp_path, reply="I would rather not.")
    night = world.run()
    assert night.outcome is Outcome.NO_RULE
    assert night.notes == ("the model did not read 2 of 2 sentences: its reply is not in the requested form",)
    world.script.write_text('[[scene]]\n[[scene.reply]]\nfault = "400"\n')
    (note,) = world.run().notes
    assert note.startswith("the model did not read 2 of 2 sentences: model 'scripted:")


def test_an_empty_budget_of_the_month_asks_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    now = datetime.now(UTC)
    spent = NightRecord(id="x", started=now, ended=now, cost=Cost(rollouts=1, tokens=500), outcome=Outcome.NOISE)
    world.store.put("night", "x", spent)
    night = world.run(monthly_budget="500 tokens")
    assert night.notes == ("the model did not read 2 of 2 sentences: 0 tokens are left for it",)
    assert (night.outcome, night.cost.tokens) == (Outcome.NO_RULE, 0)


def test_reading_has_a_tenth_of_the_night(tmp_path: Path) -> None:
    world = World(tmp_path, sessions=3 * AT_ONCE)
    night = world.run(budget=("120 rollouts", "100 tokens"))
    assert len(world.prompts(night)) == 1  # 10 tokens: the first call uses more than that
    assert "80 of 120 sentences: its share of the budget is used: total tokens: " in night.notes[0]


def test_a_night_asks_a_limited_number_of_times(tmp_path: Path) -> None:
    world = World(tmp_path, reply="[]", sessions=(MOST_PROMPTS + 1) * AT_ONCE)
    night = world.run()
    assert len(world.prompts(night)) == MOST_PROMPTS
    assert night.notes == ("the model did not read 40 of 440 sentences: a night asks at most 10 times",)
    assert world.run().notes == ()


def test_a_secret_in_a_prompt_stops_the_night_before_it_is_sent(tmp_path: Path) -> None:
    world = World(tmp_path, said=f"The linter matters to me, {SECRET}.")
    with pytest.raises(SecretFoundError, match="a prompt of the night holds a secret"):
        world.run()
    (night,) = world.store.list("night", NightRecord)
    assert (night.outcome, night.cost.tokens) == (Outcome.FAILED, 0)


def test_the_endpoint_of_the_model_needs_consent(tmp_path: Path) -> None:
    world = World(tmp_path)
    setting = world.setting(proposer_model="far")
    far = Config(models={"far": ModelConfig(url="https://models.example.com/v1")})
    asked = Setting(setting.options, far, setting.home, setting.env)
    assert Night(asked, world.store, on_record=False).endpoints() == ["https://models.example.com"]
    with pytest.raises(NoConsentError):
        asyncio.run(run_night(asked, world.store))
