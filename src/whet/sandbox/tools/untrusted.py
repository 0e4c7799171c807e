"""`whet-untrusted`: runs the agent's work for the judge, isolated from the judge.

The program in the judge's box only sends the call to the host. The work runs in separate namespaces over the agent's
files: it sees neither /tests nor /logs nor a process of the judge, and none of its processes outlives the call.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from whet.box import UNTRUSTED, Finished, ToolAnswer

OUTPUT = 16 << 20
"""Maximum bytes that the work may print to each stream in one call."""
SECONDS = 60.0
REFUSED = 125
"""Exit code of a call that was not run, or whose output exceeded the limit. `env` and `timeout` use it likewise."""
TIMED_OUT = 124
USAGE = f"usage: {UNTRUSTED} [--env NAME=VALUE]... [--time SECONDS] [--] COMMAND [ARGUMENT]..."


class CallRefused(Exception):  # noqa: N818 - an answer to the caller, no failure
    """The call cannot be run. The message is for the caller."""


@dataclass(frozen=True, slots=True)
class UntrustedCall:
    """A command of the work, as requested by the judge."""

    cwd: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    seconds: float = SECONDS


def parse_call(words: Sequence[str]) -> UntrustedCall:
    """Parse the words of the command line, the caller's working directory first. CallRefused if they are invalid."""
    cwd, *rest = words
    env: dict[str, str] = {}
    seconds = SECONDS
    while rest and rest[0].startswith("-"):
        option, given, value = rest.pop(0).partition("=")
        if option == "--" and not given:
            break
        if option not in {"--env", "--time"}:
            raise CallRefused(f"unknown option {option!a}; {USAGE}")
        if not given:
            if not rest:
                raise CallRefused(f"{option} needs a value; {USAGE}")
            value = rest.pop(0)
        if option == "--env":
            name, _, text = value.partition("=")
            if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None or "=" not in value:
                raise CallRefused(f"--env {value!a}; expected NAME=VALUE")
            env[name] = text
        else:
            seconds = _seconds(value)
    if not rest or not rest[0]:
        raise CallRefused(f"names no command; {USAGE}")
    return UntrustedCall(cwd, tuple(rest), env, seconds)


def _seconds(value: str) -> float:
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", value) is None or float(value) == 0:
        raise CallRefused(f"--time {value!a}; expected a number of seconds above 0")
    return float(value)


def refusal(reason: str) -> ToolAnswer:
    return ToolAnswer(exit_code=REFUSED, stderr=f"{UNTRUSTED}: {reason}\n".encode(errors="backslashreplace"))


def answer_of(done: Finished) -> ToolAnswer:
    """The exact output and exit code of the work; a refusal if the output is too large."""
    if done.stdout.dropped or done.stderr.dropped:
        return refusal(f"the command printed more than {OUTPUT} bytes")
    code = TIMED_OUT if done.timed_out else done.exit_code
    return ToolAnswer(done.stdout.data, code, done.stderr.data)
