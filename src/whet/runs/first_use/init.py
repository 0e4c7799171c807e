"""`whet init`: what a repository needs for its first run. It writes new files only."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from whet.agents import agent_named
from whet.agents.cli import CliAgent
from whet.agents.install.packages import PACKAGES
from whet.agents.install.run import find_installs
from whet.errors import UserError
from whet.models import PROVIDERS, first_set
from whet.runs.config import FILE, Config, model_config
from whet.runs.options import Options
from whet.tasks.skeleton import MEMORY_FILES, new_repository_task, new_task

FIRST = "first"
ROWS = "rows.jsonl"
IGNORED = "runs/"
# Not in force: a limit on cost refuses models whose price is not known, and the user may try one.
_LIMITS = """
# [limits]
# cost = 20  # dollars that a run may cost
"""
_SKILLS = ("skills", ".claude/skills", ".agents/skills", ".codex/skills", ".gemini/skills")
_ROWS = """\
{"id": "answer-a-question", "instruction": "What is 17 times 23? Answer with the number only.", "answer": "391"}
{"id": "edit-a-file", "instruction": "In settings.json, rename the key debug to verbose.", \
"files": {"settings.json": "{\\"debug\\": true}\\n"}, "verify": ["grep -q '\\"verbose\\": *true' settings.json", \
"! grep -q debug settings.json"]}
"""


class InitOptions(Options):
    """The options of `whet init`."""

    folder: Path = Path()
    """The repository."""
    model: str | None = None
    """Model, as PROVIDER/MODEL (default: of the first provider whose key is set)."""
    agent: str | None = None
    """Agent (default: the one that the provider makes)."""
    tasks: Path = Path("tasks")
    """Folder for tasks, inside the repository."""


@dataclass(slots=True)
class Initialized:
    """What was found and written."""

    model: str
    agent: str
    written: list[Path] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)
    """Files that were there already."""
    notes: list[str] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    """Documents for agents, as `--skill` takes them."""
    installed: list[str] = field(default_factory=list)
    """Agents that are installed."""
    login: bool = False
    """Whether the agent is logged in and there is no key."""
    commands: list[tuple[str, ...]] = field(default_factory=list)
    """What to type next, as arguments of whet."""


def default_model(env: Mapping[str, str] = os.environ) -> str:
    """A model of the first provider whose key is set; without any, of the first provider.

    >>> default_model({"OPENAI_API_KEY": "sk-..."})
    'openai/gpt-5'
    """
    usual = [provider for provider in PROVIDERS.values() if provider.usual_model]
    chosen = next((provider for provider in usual if first_set(provider.key_env, env)), usual[0])
    return f"{chosen.name}/{chosen.usual_model}"


def default_agent(model: str) -> str:
    """The agent that a model's provider makes, or one that works with all.

    >>> default_agent("anthropic/claude-sonnet-4-5"), default_agent("ollama/qwen3-coder")
    ('claude-code', 'opencode')
    """
    provider = PROVIDERS.get(model.partition("/")[0])
    return provider.agent if provider else "opencode"


def initialize(options: InitOptions, env: Mapping[str, str] = os.environ) -> Initialized:
    """Write whet.toml, a first task, rows, and a line of .gitignore, each unless it is there."""
    folder = options.folder
    model = options.model or default_model(env)
    agent = options.agent or default_agent(model)
    declared = model_config(model, Config(), env)
    _check_agent(agent)
    done = Initialized(model, agent, documents=find_documents(folder), installed=_find_installed_agents())
    key = "" if declared.key_env is None else f"  # its key is in the environment variable {declared.key_env}"
    text = f'[defaults]\nagent = "{agent}"\nmodel = "{model}"{key}\n{_LIMITS}'
    _write_new(folder / FILE, text, done)
    _make_first_task(folder, options.tasks, done)
    _write_new(folder / options.tasks / ROWS, _ROWS, done)
    _ignore_runs(folder, done)
    if folder / FILE in done.written and declared.key_env and not env.get(declared.key_env):
        done.login = _is_logged_in(agent, env)
        use = (
            f"with --login, {agent} uses your own login" if done.login else f"model {model} cannot be called without it"
        )
        done.notes.append(f"{declared.key_env} is not set; {use}")
    done.commands = list(_next_commands(done, options.tasks))
    return done


def find_documents(folder: Path) -> list[str]:
    """The documents for agents in a repository: memory files, and folders of skills."""
    memory = [name for name in MEMORY_FILES if (folder / name).is_file()]
    skills = [path.parent for place in _SKILLS for path in sorted((folder / place).glob("*/SKILL.md"))]
    return [*memory, *(str(path.relative_to(folder)) for path in skills)]


def _check_agent(name: str) -> None:
    """UserError when there is no such agent. It need not be installed yet."""
    agent_named(name, {})


def _is_logged_in(name: str, env: Mapping[str, str]) -> bool:
    agent = agent_named(name, {})
    try:
        return isinstance(agent, CliAgent) and bool(agent.login(env))
    except UserError:
        return False


def _find_installed_agents() -> list[str]:
    return [package.agent for package in PACKAGES.values() if find_installs(package)]


def _write_new(file: Path, text: str, done: Initialized) -> None:
    if file.exists():
        done.kept.append(file)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    done.written.append(file)


def _make_first_task(folder: Path, tasks: Path, done: Initialized) -> None:
    place = folder / tasks / FIRST
    if place.exists():
        done.kept.append(place)
        return
    try:
        made = new_repository_task(place, folder)
    except UserError as error:
        made = new_task(place)
        done.notes.append(f"the first task has no files of the repository: {error}")
    done.written.append(made)


def _ignore_runs(folder: Path, done: Initialized) -> None:
    """Keep runs out of git."""
    inside = subprocess.run(["git", "-C", str(folder), "rev-parse"], capture_output=True, check=False)
    file = folder / ".gitignore"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    if inside.returncode or re.search(rf"^/?{IGNORED}?\s*$", text, re.MULTILINE):
        return
    start = "\n" if text and not text.endswith("\n") else ""
    with file.open("a", encoding="utf-8") as out:
        out.write(f"{start}{IGNORED}\n")
    done.written.append(file)


def _next_commands(done: Initialized, tasks: Path) -> Iterator[tuple[str, ...]]:
    needs_install = isinstance(agent_named(done.agent, {}), CliAgent) and done.agent not in done.installed
    yield ("agents", "install", done.agent) if needs_install else ("tasks", "check", str(tasks))
    skill = ("--skill", done.documents[0]) if done.documents else ()
    login = ("--login",) if done.login else ()
    yield ("run", str(tasks / FIRST), *skill, *login, "--out", "runs/first")
    yield ("show", "runs/first")
