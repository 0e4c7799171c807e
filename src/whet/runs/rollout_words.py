"""What is said of one rollout: how it ended, what it used, what its flags mean. Terminal and pages print the same."""

from collections.abc import Mapping
from types import MappingProxyType

from whet.agents import AgentReport
from whet.look.numbers import brief_seconds, money, plural
from whet.rollout.result import Flag, Result, Spending
from whet.scoring import NO_VERDICT
from whet.scoring.judges.reward import TWO_REWARDS

FLAGS: Mapping[str, str] = MappingProxyType(
    {
        Flag.NOT_CAPTURED: "the agent called its own model, so only its transcript is recorded",
        Flag.PLANTED_REWARD: "the agent wrote into the verifier's folder; what it wrote was not read",
        Flag.CANARY: "the agent saw a text that is planted in files hidden from agents",
        Flag.SELF_JUDGED: "the rollout's own model judged it",
        Flag.MODEL_FAILED: "the rollout itself made the model fail, so the work was judged anyway",
        Flag.AGENT_FAILED: "the agent failed although it can work, so the work was judged anyway",
        Flag.DRAINED: "a limit of the run ended it, and it alone had used more than half of that limit",
        Flag.EMPTY_REPLY: "the model gave an empty reply and was asked again",
        Flag.DIVERGED: "the fork continued although its agent did something else than was recorded",
        NO_VERDICT: "the work itself kept a judge from a verdict, which counts 0",
        TWO_REWARDS: "the two reward files disagree; the lower reward counts",
    }
)
"""What each flag means."""


def explain_flag(flag: str) -> str:
    """What a flag means; empty for one that this version does not know."""
    return FLAGS.get(flag, "")


def describe_speakers(spent: Spending) -> str:
    """Who spoke how often; empty when only the main thread did."""
    speakers = spent.speakers if spent.speakers.keys() != {"main"} else {}
    return ", ".join(f"{who} {times}" for who, times in speakers.items())


def describe_calls(spent: Spending) -> str:
    """How many model calls there were, and whose."""
    if not spent.captured:
        return "nothing was captured"
    speakers = describe_speakers(spent)
    return plural(spent.calls, "call", "calls") + (f" ({speakers})" if speakers else "")


def describe_tokens(spent: Spending) -> str:
    """The tokens that were read and sampled."""
    return f"{spent.input_tokens:,} + {spent.output_tokens:,} tokens"


def describe_phases(result: Result) -> list[str]:
    """How long each phase took."""
    return [f"{name} {brief_seconds(seconds)}" for name, seconds in result.seconds.items()]


def describe_stop(report: AgentReport, limit: str | None) -> str:
    """How the agent's work ended."""
    version = f" {report.version}" if report.version else ""
    code = "" if report.exit_code is None else f", exit code {report.exit_code}"
    return f"agent{version} {report.stop}{code}" + (f", stopped by limit {limit}" if limit else "")


def describe_skill(result: Result) -> str:
    """How the skill reached the agent, and whether its model saw it; empty without one."""
    if result.report is None or result.report.skill is None:
        return ""
    seen = result.skill
    words = f", shown: {yes_or_no(seen.shown)}, read: {yes_or_no(seen.read)}" if seen else ""
    return f"skill delivered as {result.report.skill.way}{words}"


def describe_replay(result: Result) -> str:
    """How a fork went through what it repeats."""
    replay, spent = result.replay, result.spending
    assert replay is not None
    parts = [f"replayed {plural(spent.from_record, 'call', 'calls')} for $0"]
    if replay.diverged is not None:
        parts.append(f"diverged at {replay.diverged}")
    if replay.live_from is not None:
        live = plural(spent.calls - spent.from_record, "call", "calls")
        parts.append(f"live from call {replay.live_from}: {live}, {money(spent.cost)}")
    if replay.unknown:
        parts.append(f"{plural(replay.unknown, 'helper call was', 'helper calls were')} not on record and went live")
    return "; ".join(parts)


def yes_or_no(truth: bool | None) -> str:
    """
    >>> yes_or_no(True), yes_or_no(False), yes_or_no(None)
    ('yes', 'no', 'unknown')
    """
    return "unknown" if truth is None else "yes" if truth else "no"
