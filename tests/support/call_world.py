"""Random rollouts as calls with tokens: agents that talk to an engine, and do to their histories what agents do."""

import random
from array import array
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from whet.trace.training.calls import CallKind, TokenCall


def made(
    id_: int, prompt: list[int], sampled: list[int], logprobs: list[float] | None = None, **more: Any
) -> TokenCall:
    """A call that would be trained."""
    logprobs = [-0.1 * (n + 1) for n in range(len(sampled))] if logprobs is None else logprobs
    facts: dict[str, Any] = {"thread": "main", "kind": CallKind.ROOT, "started": float(id_)} | more
    return TokenCall(
        id_, prompt=array("I", prompt), sampled=array("I", sampled), logprobs=array("d", logprobs), **facts
    )


@dataclass
class World:
    """Agents that talk to an engine, and do to their histories what agents do."""

    rng: random.Random
    histories: dict[str, list[int]] = field(default_factory=lambda: {"main": [1, 2]})
    calls: list[TokenCall] = field(default_factory=list)

    def tokens(self, most: int = 3) -> list[int]:
        return [self.rng.randrange(4) for _ in range(self.rng.randint(1, most))]

    def ask(self, thread: str, **more: Any) -> list[int]:
        """One call; the history with its reply."""
        prompt, sampled = self.histories[thread], self.tokens()
        kind = CallKind.ROOT if thread == "main" else CallKind.SUBAGENT
        logprobs = [-self.rng.random() for _ in sampled]
        facts = {"thread": thread, "kind": kind} | more
        self.calls.append(made(len(self.calls), prompt, sampled, logprobs, **facts))
        return [*prompt, *sampled]

    def step(self) -> None:
        thread = self.rng.choice(list(self.histories))
        history = self.histories[thread]
        match self.rng.choice(["turn", "turn", "turn", "retry", "compact", "edit", "spawn", "helper", "context"]):
            case "turn":
                self.histories[thread] = [*self.ask(thread), *self.tokens()]
            case "retry":
                # The agent may go on from either; the model may say the same again.
                first, second = self.ask(thread), self.ask(thread)
                self.histories[thread] = [*self.rng.choice([first, second]), *self.tokens()]
            case "compact":
                self.ask(thread, kind=CallKind.COMPACT, refused="kind")
                self.histories[thread] = self.tokens(6)
            case "edit":
                place = self.rng.randrange(len(history))
                self.histories[thread] = [*history[:place], self.rng.randrange(4), *history[place + 1 :]]
            case "spawn":
                name = f"sub-{len(self.calls)}-{len(self.histories)}"
                self.histories[name] = history if self.rng.random() < 0.3 else self.tokens(6)
            case "helper":
                self.ask(thread, kind=CallKind.UTILITY, refused="kind")
            case "context":
                self.histories[thread] = [*self.ask(thread, refused="log-probabilities"), *self.tokens()]


def calls_in_a_world(seed: int, steps: int) -> list[TokenCall]:
    world = World(random.Random(seed))
    for _ in range(steps):
        world.step()
    return world.calls


worlds = st.builds(calls_in_a_world, st.integers(0, 1 << 32), st.integers(0, 25))
