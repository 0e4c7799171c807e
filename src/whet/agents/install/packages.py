"""The pinned packages of the agents' CLIs, one each. Their locks are in `locks/`."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True, slots=True)
class Package:
    """The pinned package of a CLI."""

    agent: str
    """Name of the agent, and of its folder in `locks/`."""
    source: Literal["npm", "pypi", "own"]
    """The registry; `own` for a program that the user installs."""
    name: str
    """The package's name in the registry."""
    version: str
    programs: tuple[str, ...]
    """Paths of the program below the install folder, one per platform. The first that starts is used."""
    command: str
    """The program's name on PATH."""
    dialect: str
    """The dialect that it uses by default."""
    node: str | None = None
    """The oldest Node version that runs it; None if it does not need Node."""
    cache_env: str | None = None
    """The variable that names the folder where it unpacks itself at its first start; see `CACHE`."""
    undeclared: tuple[str, ...] = ()
    """Packages that it needs but does not declare. The lock has them; without a lock whet requests them by name."""

    @classmethod
    def own(cls, agent: str, command: str, dialect: str) -> "Package":
        """A program that the user installs."""
        return cls(agent, source="own", name=agent, version="path", programs=(), command=command, dialect=dialect)


CACHE = "cache"
"""Folder of an install that holds the unpacked files of a program that unpacks itself."""


def _npm(path: str) -> str:
    return f"node_modules/{path}"


_ALL = (
    Package(
        agent="opencode",
        source="npm",
        name="opencode-ai",
        version="1.18.33",
        programs=tuple(
            _npm(f"opencode-linux-{build}/bin/opencode")
            for build in ("x64", "x64-baseline", "arm64", "x64-musl", "x64-baseline-musl", "arm64-musl")
        ),
        command="opencode",
        dialect="chat",
        undeclared=("@vscode/ripgrep@1.18.0",),  # its script would download the search program from another place
    ),
    Package(
        agent="claude-code",
        source="npm",
        name="@anthropic-ai/claude-code",
        version="2.1.197",
        programs=tuple(
            _npm(f"@anthropic-ai/claude-code-linux-{build}/claude")
            for build in ("x64", "arm64", "x64-musl", "arm64-musl")
        ),
        command="claude",
        dialect="messages",
    ),
    Package(
        agent="codex",
        source="npm",
        name="@openai/codex",
        version="0.166.0",
        programs=(
            _npm("@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"),
            _npm("@openai/codex-linux-arm64/vendor/aarch64-unknown-linux-musl/bin/codex"),
        ),
        command="codex",
        dialect="responses",
    ),
    Package(
        agent="copilot",
        source="npm",
        name="@github/copilot",
        version="1.0.102",
        programs=tuple(
            _npm(f"@github/copilot-{build}/copilot")
            for build in ("linux-x64", "linux-arm64", "linuxmusl-x64", "linuxmusl-arm64")
        ),
        command="copilot",
        dialect="chat",
        cache_env="COPILOT_CACHE_HOME",
    ),
    Package(
        agent="gemini",
        source="npm",
        name="@google/gemini-cli",
        version="0.61.0",
        programs=(_npm("@google/gemini-cli/bundle/gemini.js"),),
        command="gemini",
        dialect="gemini",
        node="20",
    ),
    Package(
        agent="qwen",
        source="npm",
        name="@qwen-code/qwen-code",
        version="0.15.10",
        programs=(_npm("@qwen-code/qwen-code/cli.js"),),
        command="qwen",
        dialect="chat",
        node="20",
    ),
    Package(
        agent="pi",
        source="npm",
        name="@mariozechner/pi-coding-agent",
        version="0.73.1",
        programs=(_npm("@mariozechner/pi-coding-agent/dist/cli.js"),),
        command="pi",
        dialect="chat",
        node="20.6",
    ),
    Package(
        agent="mini-swe-agent",
        source="pypi",
        name="mini-swe-agent",
        version="2.4.6",
        programs=("bin/mini",),
        command="mini",
        dialect="chat",
        undeclared=("mcp",),
    ),
)

PACKAGES: Mapping[str, Package] = MappingProxyType({package.agent: package for package in _ALL})
