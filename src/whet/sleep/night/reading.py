"""Lets a model read the sentences that the grammar does not. It proposes what they mean; the recorded steps decide.

The calls go through a gateway with the limits of the night, and are on record in a store of their own. A sentence is
shown to a model once, so a night that was killed does not pay for it again.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.exchange import Exchange
from whet.rollout.judging import client_spending
from whet.rollout.model_client import ModelClient, number_calls
from whet.rollout.resources import RunResources
from whet.rollout.result import Result
from whet.runs.config import Config
from whet.runs.options import RunOptions
from whet.runs.plan import task_rows
from whet.runs.resources import open_resources
from whet.runs.scheduler import open_store, store_result
from whet.runs.store.schema import RolloutRow
from whet.runs.store.store import DATABASE, Store
from whet.runs.store.writer import StoreWriter
from whet.scoring import Cause, JudgeError, Score
from whet.sleep.night.spending import Allowance
from whet.sleep.rules.meanings import keep_meanings, recall_meanings
from whet.sleep.rules.model_corrections import AT_ONCE, Meanings, Unread, read_reply, write_prompt
from whet.sleep.store import SleepStore
from whet.tasks import Task

MOST_PROMPTS = 10
"""Prompts of one night."""
READER = "reader"
"""Names the calls in the record."""


@dataclass(frozen=True, slots=True)
class SentenceReader:
    """Asks a model for the meaning of sentences, the newest first, as far as the budget reaches."""

    store: SleepStore
    folder: Path
    """Where its calls are on record."""
    run: RunOptions
    """Names the model. Its limits are the caller's."""
    config: Config
    env: Mapping[str, str]
    find_allowance: Callable[[], Allowance]
    """What it may still use."""
    check_prompt: Callable[[str], None]
    """Raises an error on a prompt that must not be sent."""
    note: Callable[[str], None]
    """Called with the reason why sentences were not read."""

    async def interpret(self, unread: Sequence[Unread]) -> Meanings:
        """The meanings of sentences: those that are known, and those that the model gives now."""
        known = recall_meanings(self.store, unread)
        new = [one for index, one in enumerate(unread) if index not in known][::-1]
        problem = await self._read(new) if new else None
        found = recall_meanings(self.store, unread)
        if problem is not None:
            self.note(f"the model did not read {len(unread) - len(found)} of {len(unread)} sentences: {problem}")
        return found

    async def _read(self, unread: Sequence[Unread]) -> str | None:
        """Ask for the meaning of sentences. The reason if not all of them were read."""
        allowance = self.find_allowance()
        if allowance.empty is not None:
            return f"{allowance.empty} are left for it"
        run = self.run.model_copy(update={"limits": allowance.within(self.run.limits)})
        async with open_resources(run, [], self.config, self.env) as resources:
            with open_store(self.folder, [], resume=(self.folder / DATABASE).is_file(), about={}) as store:
                asked = len(store.rollouts())
            async with StoreWriter(self.folder) as writer:
                for number, start in enumerate(range(0, len(unread), AT_ONCE), start=asked + 1):
                    if number > MOST_PROMPTS:
                        return f"a night asks at most {MOST_PROMPTS} times"
                    if (limit := resources.gateway.exhausted()) is not None:
                        return f"its share of the budget is used: {limit}"
                    some = unread[start : start + AT_ONCE]
                    if (problem := await self._read_some(some, _Calls(resources, writer, number))) is not None:
                        return problem
        return None

    async def _read_some(self, unread: Sequence[Unread], calls: "_Calls") -> str | None:
        prompt = write_prompt(unread)
        self.check_prompt(prompt)
        try:
            meanings = read_reply(await calls.ask(prompt), len(unread))
        except JudgeError as error:
            return str(error)
        if meanings is None:
            return "its reply is not in the requested form"
        keep_meanings(self.store, unread, meanings)
        return None


@dataclass(frozen=True, slots=True)
class _Calls:
    """Sends one prompt to the model, and puts it on record."""

    resources: RunResources
    writer: StoreWriter
    number: int

    async def ask(self, prompt: str) -> str:
        """The reply. JudgeError when the model does not answer."""
        ((name, model),) = self.resources.models.items()
        attempt = await self._start(name)

        async def record(exchange: Exchange) -> None:
            await self.writer.do(lambda store: store.add_exchange(attempt, exchange))

        clock, problem, reply = time.monotonic(), None, ""
        async with ModelClient(self.resources.gateway, {name: model}, name, number_calls(record), READER) as client:
            try:
                reply = self.resources.redactor.text(await client.ask(None, [{"role": "user", "content": prompt}]))
            except JudgeError as error:
                problem = error
        score = Score.missing(Cause.MODEL, str(problem)) if problem else Score.of(1.0)
        seconds = {"agent": round(time.monotonic() - clock, 4)}
        result, ended = Result(score=score, spending=client_spending(client), seconds=seconds), time.time()
        await self.writer.do(lambda store: store_result(store, attempt, result, ended))
        if problem is not None:
            raise problem
        return reply

    async def _start(self, model: str) -> int:
        task = Task(id=f"{READER}-{self.number:04}", instruction="Read sentences.")
        row = RolloutRow(task.id, self.number, task.id, READER, model, skill=None, sample=0)

        def start(store: Store) -> int:
            store.add_tasks(task_rows([task]))
            store.add_rollouts([row])
            return store.start_attempt(row.id, time.time())

        return await self.writer.do(start)
