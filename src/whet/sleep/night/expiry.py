"""When the rules of a repository were needed last: a rule that no session needs any more is proposed for removal."""

import re
from collections.abc import Iterable
from datetime import datetime

from whet.sleep.rules.rule import Rule
from whet.sleep.session import Session
from whet.tasks.checks import PatternCheck

_FORBIDS = "command_not_ran"


def last_needed(rules: Iterable[Rule], sessions: Iterable[Session]) -> dict[str, datetime]:
    """The last session that needed each rule: one that did what the rule asks for, or that a correction is from.

    A rule that forbids a command leaves no trace when it is kept. Every session in which commands ran may need it.
    """
    kept = [(one, one.ended) for one in sessions if one.ended is not None]
    found: dict[str, datetime] = {}
    for rule in rules:
        times = [ended for session, ended in kept if _needs(session, rule)]
        if rule.last is not None or times:
            found[rule.id] = max(times + ([rule.last] if rule.last else []))
    return found


def _needs(session: Session, rule: Rule) -> bool:
    commands = [step.command for turn in session.turns for step in turn.steps if step.command]
    return any(
        bool(commands) if check.op == _FORBIDS else any(re.search(check.arg, command) for command in commands)
        for check in rule.checks
        if isinstance(check, PatternCheck)
    )
