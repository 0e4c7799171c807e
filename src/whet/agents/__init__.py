"""The programs that do tasks, one file per agent.

Read `agent.py` first: the protocol, what an agent is given and what it reports. `cli.py` is the base of all
command-line agents, `registry.py` finds agents by name, `install/` installs their programs.
"""

from whet.agents.agent import Agent, AgentReport, Assignment, ModelEndpoint, StopReason
from whet.agents.cli import CliAgent
from whet.agents.python import AgentFunction, PythonAgent
from whet.agents.registry import CLIS, AnyAgent, AnyCli, DeclaredAgent, agent_named, place_beside

__all__ = [
    "CLIS",
    "Agent",
    "AgentFunction",
    "AgentReport",
    "AnyAgent",
    "AnyCli",
    "Assignment",
    "CliAgent",
    "DeclaredAgent",
    "ModelEndpoint",
    "PythonAgent",
    "StopReason",
    "agent_named",
    "place_beside",
]
