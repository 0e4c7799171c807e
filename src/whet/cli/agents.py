"""`whet agents`: the CLIs that whet can run, and their installation."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.output import say
from whet.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from whet.agents import CliAgent
    from whet.agents.install.packages import Package
    from whet.plugins import Plugin

INSTALLS_AT_ONCE = 2

app = typer.Typer(invoke_without_command=True)


@app.callback()
def agents(context: typer.Context) -> None:
    """List the agents that whet can run, and whether they are installed."""
    if context.invoked_subcommand is not None:
        return
    from whet.agents.install.packages import PACKAGES
    from whet.cli.tables import Column, TextTable, terminal
    from whet.plugins import AGENTS, JUDGES, PROPOSERS, find_plugins

    names = [Column("agent"), Column("version"), Column("dialect", 2), Column("installed")]
    table = TextTable([*names, Column("size", 1), Column("works here")])
    with ThreadPoolExecutor() as threads:  # a program that is asked for its version takes its time
        for rows in threads.map(_rows, PACKAGES.values()):
            for row in rows:
                table.add(*row)
        plugins = list(threads.map(_plugin_row, find_plugins(AGENTS).values()))
    for row, _ in plugins:
        table.add(*row)
    terminal().say(table, *(problem for _, problem in plugins if problem))
    for group in (JUDGES, PROPOSERS):
        for plugin in find_plugins(group).values():
            kind = group.removeprefix("whet.").removesuffix("s")
            terminal().say(f"{kind} '{plugin.name}': plug-in of {plugin.package}")


@app.command("install")
def install(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Names, as listed by `whet agents`.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All agents.")] = False,
    version: Annotated[
        str | None, typer.Option(help="Version to install instead of the pinned one. Only for a single agent.")
    ] = None,
) -> None:
    """Install agents. Every file is checked against the hashes that whet ships."""
    from whet.event_loop import run_coroutine

    packages = _select(names or [], every)
    if version is not None and len(packages) != 1:
        raise UserError(f"--version is '{version}' for {len(packages)} agents; expected a single agent with it")
    failed = run_coroutine(_install_all(packages, version))
    if failed:
        say(f"not installed: {', '.join(failed)}", err=True)
        raise typer.Exit(1)


@app.command("check")
def check(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Names, as listed by `whet agents`, or of whet.toml.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All agents that whet can install.")] = False,
    sandbox: Annotated[str, typer.Option(help="bubblewrap, or local (no isolation).")] = "bubblewrap",
) -> None:
    """Check that agents work here: each does a small task in the sandbox with a scripted model, offline."""
    from whet.agents.install.packages import PACKAGES
    from whet.event_loop import run_coroutine
    from whet.runs.checks.agents import agent_to_check
    from whet.runs.config import project_config

    if every == bool(names):
        raise UserError(f"expected names of agents or --all; {did_you_mean('', PACKAGES)}")
    config = project_config()
    agents = [agent_to_check(name, config) for name in dict.fromkeys(names or PACKAGES)]
    failed = run_coroutine(_check_all(agents, sandbox))
    if failed:
        say(f"not working here: {', '.join(failed)}", err=True)
        raise typer.Exit(1)


async def _check_all(agents: "list[CliAgent]", sandbox: str) -> list[str]:
    from whet.runs.checks.agents import check_agents
    from whet.sandbox import sandbox_named

    failed = []
    async for check in check_agents(agents, sandbox_named(sandbox)):
        missing = [proof for proof, held in check.proofs.items() if not held]
        verdict = "works" if check.passed else f"does not work: not proved: {', '.join(missing)}"
        why = f" ({check.reason})" if check.reason else ""
        say(f"{check.agent} {check.version}: {verdict} in {check.seconds:.1f} s{why}")
        if not check.passed:
            failed.append(check.agent)
    return failed


def _rows(package: "Package") -> list[tuple[str, ...]]:
    """The managed installs of an agent. Without the pinned one, also what PATH has, or that there is none."""
    from whet.agents.install.run import find_installs, on_path

    managed = find_installs(package)
    rows = [
        (found.version, "managed" if found.pinned else "managed, not pinned", _megabytes(found.folder))
        for found in managed
    ]
    if package.version not in {found.version for found in managed}:
        own = on_path(package)
        rows.append((own.version, f"on PATH: {own.folder / own.program}", "-") if own else (package.version, "no", "-"))
    return [
        (package.agent, version, package.dialect, where, size, _works(package.agent, version))
        for version, where, size in rows
    ]


def _plugin_row(plugin: "Plugin") -> tuple[tuple[str, ...], str]:
    """A plug-in and its package; and why it does not work, if it does not."""
    from whet.agents import CliAgent, agent_named

    where = f"plug-in of {plugin.package}"
    try:
        agent = agent_named(plugin.name, {})
        if not isinstance(agent, CliAgent):
            return (plugin.name, "-", "-", where, "-", "-"), ""
        version = agent.find_program().version
    except UserError as error:
        return (plugin.name, "-", "-", where, "-", "no"), str(error)
    return (plugin.name, version, agent.traits.dialect, where, "-", _works(agent.kind, version)), ""


def _works(agent: str, version: str) -> str:
    from whet.runs.checks.agents import last_check

    checked = last_check(agent, version)
    return "not checked" if checked is None else f"{'yes' if checked.passed else 'no'}, {checked.on}"


def _select(names: list[str], every: bool) -> "list[Package]":
    from whet.agents.install.packages import PACKAGES

    if every == bool(names):
        raise UserError(f"expected names of agents or --all; {did_you_mean('', PACKAGES)}")
    for name in names:
        if name not in PACKAGES:
            raise UserError(f"unknown agent '{name}'; {did_you_mean(name, PACKAGES)}")
    return list(PACKAGES.values()) if every else [PACKAGES[name] for name in dict.fromkeys(names)]


async def _install_all(packages: "list[Package]", version: str | None) -> list[str]:
    """Install them, and go on after a failure. Returns the names of those that failed."""
    turns = asyncio.Semaphore(INSTALLS_AT_ONCE)

    async def installs(package: "Package") -> bool:
        async with turns:
            try:
                await asyncio.to_thread(_install_one, package, version)
            except UserError as error:
                say(f"whet: {error}", err=True)
                return False
        return True

    done = await asyncio.gather(*map(installs, packages))
    return [package.agent for package, good in zip(packages, done, strict=True) if not good]


def _install_one(package: "Package", version: str | None) -> None:
    from whet.agents.install.run import find_install
    from whet.agents.install.run import install as make

    name = f"{package.agent} {version or package.version}"
    if found := find_install(package, version):
        say(f"{name}: already installed, {_megabytes(found.folder)}")
        return
    say(f"{name}: installing")
    started = time.monotonic()
    made = make(package, version)
    note = "" if made.pinned else " (not pinned: checked against the registry's hashes only)"
    say(f"{name}: installed in {time.monotonic() - started:.0f} s, {_megabytes(made.folder)}{note}")


def _megabytes(folder: Path) -> str:
    from whet.sandbox.disk.storage import disk_usage

    return f"{disk_usage(folder) / 1e6:.0f} MB"
