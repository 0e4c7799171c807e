"""Reads option values: the name of a proposer, a policy, preferences."""

import os
import re
from pathlib import Path

from whet.agents import agent_named
from whet.errors import UserError, did_you_mean
from whet.plugins import PROPOSERS, find_plugins, make_object
from whet.runs.config import LOGIN, LOGINS, Config
from whet.runs.options import RunOptions
from whet.skill import Skill
from whet.skills.documents.document import Document, Policy
from whet.skills.gate.guard import Guard
from whet.skills.proposers.base import Proposer
from whet.skills.proposers.chain import ProposerChain
from whet.skills.proposers.criteria.proposer import CriteriaProposer
from whet.skills.proposers.rules_file import read_rules
from whet.skills.sharpen.proposer_runtime import ProposerSpec

_JOIN = re.compile(r"\+(?=criteria|rules:)")
"""Joins the names of proposers; a path may contain a plus as well."""

GUARD_MARGIN = 0.10
"""How much worse a guard may be if the user does not say."""
_POLICIES = {
    "anything": Policy(),
    "only-learned-block": Policy(opens="learned"),
    "description": Policy(opens="description"),
}


def read_proposer(name: str, model: str | None = None, agent: str | None = None) -> Proposer | ProposerSpec:
    """The proposer of this name. It uses the model and agent under test unless others are named.

    >>> read_proposer("agent", agent="opencode")
    ProposerSpec(kind='agent', model=None, agent='opencode')
    """
    if agent is not None and name != "agent":
        raise UserError(f"`proposer_agent` is '{agent}'; expected it with the proposer 'agent', not '{name}'")
    if model is None and len(names := _JOIN.split(name)) > 1:
        return ProposerChain(tuple(map(_read_builtin, names)))
    if name in {"llm", "agent"}:
        return ProposerSpec("llm" if name == "llm" else "agent", model, agent)
    if model is not None:
        raise UserError(f"`proposer_model` is '{model}'; expected it with the proposer 'llm' or 'agent', not '{name}'")
    return _read_builtin(name)


def default_proposer_model(proposer: str, run: RunOptions, config: Config) -> str | None:
    """The model of an LLM proposer if the user names none: with `login`, the model under test has no key, so the
    agent's own login answers. None stands for the model under test."""
    if proposer != "llm" or not run.login or not run.models:
        return None
    kind = agent_named(run.agents[0], config.agents).kind
    return f"{LOGIN}{kind}/{run.models[0].rpartition('/')[2]}" if kind in LOGINS else None


def _read_builtin(name: str) -> Proposer:
    """A proposer that needs neither a model nor an agent."""
    kind, _, rest = name.partition(":")
    if kind == "rules" and rest:
        return read_rules(Path(rest))
    if name == "criteria":
        return CriteriaProposer()
    plugins = find_plugins(PROPOSERS)
    if name in plugins:
        proposer: Proposer = make_object(plugins[name].load(), {})
        return proposer
    also = "".join(f", {plugin}" for plugin in plugins)
    raise UserError(
        f"`proposer` is '{name}'; expected criteria, llm, agent{also}, or rules:FILE with one rule per line; "
        "criteria+rules:FILE uses the second when the first has nothing more to propose"
    )


def read_policy(name: str) -> Policy:
    """What a proposer may change.

    >>> read_policy("sections=Answers,Style").sections
    ('Answers', 'Style')
    """
    kind, equals, rest = name.partition("=")
    titles = tuple(title.strip() for title in rest.split(",") if title.strip())
    if kind == "sections" and titles:
        return Policy(opens="sections", sections=titles)
    if equals or kind not in _POLICIES:
        raise UserError(f"`policy` is '{name}'; expected {', '.join(_POLICIES)}, or sections=TITLE,TITLE")
    return _POLICIES[kind]


def refuse_unknown_sections(policy: Policy, skill: Skill) -> None:
    """UserError when the policy opens a section that the skill does not have."""
    titles = [section.title for section in Document(skill.text).sections if section.title]
    known = {title.casefold() for title in titles}
    unknown = next((title for title in policy.sections if title.casefold() not in known), None)
    if unknown is not None:
        raise UserError(
            f"`policy` names section '{unknown}', which is not in {skill.name}; {did_you_mean(unknown, titles)}"
        )


def read_guard(judge: str | None, margin: float | None, **others: object) -> Guard | None:
    """The guard of an exam; None without one. `others` are options that cannot be used together with a guard."""
    if judge is None:
        if margin is not None:
            raise UserError(f"`guard_margin` is {margin:g}; expected it with `guard`")
        return None
    for name, value in others.items():
        if value:
            raise UserError(f"`{name}` is {value}; expected it without `guard`, which it would not test")
    return Guard(judge, GUARD_MARGIN if margin is None else margin)


def read_preferences(given: str) -> str:
    """House rules: the text of a file, or the given text itself."""
    path = Path(given)
    is_name = len(given.split()) == 1 and path.suffix in {".md", ".txt"}
    try:
        # Unlike Path.is_file, this takes a text that is too long for a name.
        return path.read_text(encoding="utf-8") if is_name or (given and os.path.isfile(path)) else given  # noqa: PTH113
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"`preferences` is '{given}', which cannot be read: {error}") from error
