"""What this machine has for whet, what it lacks, and the command that adds it."""

import asyncio
import importlib.util
import os
import platform
import resource
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from whet.agents import CLIS, CliAgent
from whet.agents.install.packages import PACKAGES, Package
from whet.agents.install.run import find_installs, node_program
from whet.box import Sandbox
from whet.errors import UserError
from whet.models import KNOWN, PROVIDERS, Provider, first_set, list_pulled, provider_settings

LEAST_DISK = 2_000_000_000
LEAST_FILES = 1024
ANSWER_SEC = 1.0
"""How long a server on this machine is waited for."""


class Area(StrEnum):
    """What a finding is about."""

    SANDBOX = "sandbox"
    AGENTS = "agents"
    MODELS = "models"
    MACHINE = "machine"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is there, or is missing."""

    area: Area
    name: str
    found: str
    """What is there; empty if it is missing."""
    fix: str = ""
    """The command that adds what is missing."""
    reason: str = ""
    """Why it does not work, if that is known."""


def can_run(findings: list[Finding]) -> bool:
    """Whether anything can run here: the sandbox works, and there is a model to call."""
    return all(any(one.found for one in findings if one.area is area) for area in (Area.SANDBOX, Area.MODELS))


async def examine(sandbox: Sandbox, folder: Path, env: Mapping[str, str] = os.environ) -> list[Finding]:
    """Look at the machine. Nothing is changed, and no model is called."""
    servers = [provider for provider in PROVIDERS.values() if not provider.needs_key]
    answers = await asyncio.gather(*(_find_server(provider, env) for provider in servers))
    return [
        await _find_sandbox(sandbox),
        *_find_machine(folder),
        *(_find_agent(package) for package in PACKAGES.values()),
        *(_find_key(provider, env) for provider in PROVIDERS.values() if provider.needs_key),
        *answers,
        _find_logins(env),
        *_find_local_models(),
    ]


async def _find_sandbox(sandbox: Sandbox) -> Finding:
    try:
        await sandbox.check()
    except UserError as error:
        return Finding(Area.SANDBOX, sandbox.name, "", _sandbox_fix(), str(error))
    return Finding(Area.SANDBOX, sandbox.name, "a box opens, and a command runs in it")


def _sandbox_fix() -> str:
    packages = {"bwrap": "bubblewrap", "prlimit": "util-linux", "setpriv": "util-linux", "choom": "util-linux"}
    missing = sorted({package for program, package in packages.items() if shutil.which(program) is None})
    if missing:
        return f"sudo apt-get install {' '.join(missing)}"
    for setting, wanted in (("apparmor_restrict_unprivileged_userns", "0"), ("unprivileged_userns_clone", "1")):
        file = Path("/proc/sys/kernel", setting)
        if file.is_file() and file.read_text().strip() != wanted:
            return f"sudo sysctl -w kernel.{setting}={wanted}"
    return "run whet outside of this container, or let it make user namespaces"


def _find_machine(folder: Path) -> Iterator[Finding]:
    yield Finding(Area.MACHINE, "python", f"{platform.python_version()}, {sys.executable}")
    yield Finding(Area.MACHINE, "git", shutil.which("git") or "", "sudo apt-get install git")
    node = node_program()
    yield Finding(Area.MACHINE, "node", f"{node[1]}, {node[0]}" if node else "", "sudo apt-get install nodejs npm")
    free = shutil.disk_usage(folder).free
    enough = f"{free / 1e9:.0f} GB are free" if free >= LEAST_DISK else ""
    yield Finding(Area.MACHINE, "disk", enough, f"free {(LEAST_DISK - free) / 1e9:.1f} GB more, or name another folder")
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = f"{files} may be open" if files >= LEAST_FILES or files < 0 else ""
    yield Finding(Area.MACHINE, "files", many, f"ulimit -n {LEAST_FILES}")


def _find_agent(package: Package) -> Finding:
    managed = [found.version for found in find_installs(package)]
    on_path = shutil.which(package.command)
    found = f"version {', '.join(managed)}" if managed else f"on PATH: {on_path}" if on_path else ""
    return Finding(Area.AGENTS, package.agent, found, f"whet agents install {package.agent}")


def _find_key(provider: Provider, env: Mapping[str, str]) -> Finding:
    key = first_set(provider.key_env, env)
    return Finding(Area.MODELS, provider.name, f"{key} is set" if key else "", f"export {provider.key_env[0]}=...")


def _find_logins(env: Mapping[str, str]) -> Finding:
    """The agents that are logged in, which need no key with `--login`."""

    def is_logged_in(agent: CliAgent) -> bool:
        try:
            return bool(agent.login(env))
        except UserError:
            return False

    found = ", ".join(agent.kind for agent in CLIS if is_logged_in(agent))
    return Finding(
        Area.MODELS, "login", f"{found}: for --login" if found else "", "start your agent and log in: claude"
    )


async def _find_server(provider: Provider, env: Mapping[str, str]) -> Finding:
    """A server of the user's own: whether its port answers."""
    url_env = provider.url_env[0]
    fix = f"start the server, or: export {url_env}=..." if provider.url else f"export {url_env}=..."
    try:
        settings = provider_settings(f"{provider.name}/MODEL", env)
    except UserError:
        settings = None
    if settings is None:
        return Finding(Area.MODELS, provider.name, "", fix)
    address = urlsplit(settings["url"])
    found = f"{address.netloc} answers" if await _answers(address.hostname or "", address.port or 443) else ""
    return Finding(Area.MODELS, provider.name, found, fix)


async def _answers(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(ANSWER_SEC):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def _find_local_models() -> Iterator[Finding]:
    if importlib.util.find_spec("xllamacpp") is None:
        yield Finding(Area.MODELS, "local", "", "pip install 'whet[local]'")
        return
    pulled = [model.name for model in list_pulled()]
    found = ", ".join(f"local/{name}" for name in pulled)
    yield Finding(Area.MODELS, "local", found, f"whet models pull {next(iter(KNOWN))}")
