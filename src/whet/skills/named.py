"""Writers by the names that users give them."""

from pathlib import Path

from whet.errors import UserError
from whet.skills.brief import Writer
from whet.skills.desk import Hired
from whet.skills.listed import read_rules
from whet.skills.writers.criteria import CriteriaWriter


def writer_named(name: str, model: str | None = None, agent: str | None = None) -> Writer | Hired:
    """The writer of this name, with the model and the agent that it is to use, where not those under test.

    >>> writer_named("agent", agent="opencode")
    Hired(kind='agent', model=None, agent='opencode')
    """
    if agent is not None and name != "agent":
        raise UserError(f"--optimizer-agent is '{agent}'; expected it with --proposer agent, not '{name}'")
    if name in {"llm", "agent"}:
        return Hired("llm" if name == "llm" else "agent", model, agent)
    if model is not None:
        raise UserError(f"--optimizer-model is '{model}'; expected it with --proposer llm or agent, not '{name}'")
    kind, _, rest = name.partition(":")
    if kind == "rules" and rest:
        return read_rules(Path(rest))
    if name != "criteria":
        raise UserError(
            f"--proposer is '{name}'; expected criteria, llm, agent, or rules:FILE with a rule on each line"
        )
    return CriteriaWriter()
