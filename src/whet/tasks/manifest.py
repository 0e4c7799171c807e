"""The task.toml of a Harbor task folder: every key of the format, its type and its rules."""

import datetime as dt
import ipaddress
import re
import unicodedata
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from whet.errors import did_you_mean
from whet.tasks.fields import Table
from whet.tasks.judges import Judges
from whet.tasks.task import Allowed, Canary, Env, TaskLimits
from whet.validation_errors import key_path

# Harbor ignores unknown keys. They are kept here so that `unknown_keys` can report them.
_OPEN = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

_HOST = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
_CREDENTIAL_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key"})


def _host(text: str) -> str:
    host = text.lower().removesuffix(".")
    try:
        ipaddress.ip_network(host, strict=False)
    except ValueError:
        if not _HOST.fullmatch(host):
            raise ValueError(
                "expected a host name, *.suffix, IP address or CIDR, without scheme, port or path"
            ) from None
    return host


def _megabytes(value: object) -> int:
    size = re.fullmatch(r"(\d{1,12}(?:\.\d+)?)([GMK])", value.strip().upper()) if isinstance(value, str) else None
    if size is None:
        raise ValueError("expected a size such as '4G', '512M' or '2048K'")
    number, unit = float(size[1]), size[2]
    return int(number * 1024 if unit == "G" else number / 1024 if unit == "K" else number)


def _user(value: object) -> object:
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise ValueError("expected a user name or a number")
    return value


def _reward_gate(value: object) -> object:
    if not isinstance(value, float | int | dict) or isinstance(value, bool):
        raise ValueError("expected a number or a table of numbers")
    return value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _registry_name(name: str) -> str:
    if ".." in name:
        raise ValueError("expected a name without '..'")
    return name


def _portable(name: str) -> str:
    unusable = re.search(r"[/\\\x00-\x1f\x7f]", name) or name.endswith((".", " ")) or _DEVICE.fullmatch(name)
    if not name or unusable or len(name.encode()) > 255:
        raise ValueError("expected a folder name that every system can hold")
    return name


def _source_as_table(value: object) -> object:
    return {"source": value} if isinstance(value, str) else value


def _only_with_allowlist(hosts: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
    if hosts is not None and info.data.get("network_mode", "allowlist") != "allowlist":
        raise ValueError("is given without network_mode 'allowlist'; expected both or neither")
    return hosts


def _as_json(value: Any) -> Any:
    """Convert TOML's dates and times to text."""
    match value:
        case dict():
            return {key: _as_json(item) for key, item in value.items()}
        case list():
            return [_as_json(item) for item in value]
        case dt.date() | dt.time():
            return value.isoformat()
        case _:
            return value


Seconds = Annotated[float, Field(ge=0)]
User = Annotated[str | int, BeforeValidator(_user)]
NetworkMode = Literal["no-network", "public", "allowlist"]
Hosts = tuple[Annotated[str, AfterValidator(_host)], ...]
Megabytes = Annotated[int, BeforeValidator(_megabytes), Field(gt=0)]


class Artifact(BaseModel):
    """A file or folder that is collected after the agent has ended."""

    model_config = _OPEN
    service: str = "main"
    source: str = Field(min_length=1)
    destination: str | None = None
    exclude: tuple[str, ...] = ()

    @field_validator("source")
    @classmethod
    def _source_is_clear(cls, source: str, info: ValidationInfo) -> str:
        path = PurePosixPath(source)
        if ".." in path.parts or (info.data.get("service", "main") != "main" and not path.is_absolute()):
            raise ValueError("expected a path without '..', absolute unless the service is 'main'")
        return source

    @field_validator("destination")
    @classmethod
    def _destination_stays_inside(cls, destination: str | None) -> str | None:
        path = PurePosixPath(destination or "_")
        if path.is_absolute() or ".." in path.parts or "\\" in str(path) or str(path) == "manifest.json":
            raise ValueError("expected a relative path with forward slashes, without '..', not manifest.json")
        return destination


Artifacts = tuple[Annotated[Artifact, BeforeValidator(_source_as_table)], ...]


class Author(BaseModel):
    """Who wrote the task."""

    model_config = _OPEN
    name: str
    email: str | None = None


class Identity(BaseModel):
    """[task]: the name in a registry."""

    model_config = _OPEN
    name: Annotated[str, AfterValidator(_registry_name)] = Field(
        pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*$"
    )
    version: str | None = Field(default=None, min_length=1)
    description: str = ""
    authors: tuple[Author, ...] = ()
    keywords: tuple[str, ...] = ()


class AgentTable(BaseModel):
    """[agent]"""

    model_config = _OPEN
    timeout_sec: float | None = Field(default=None, gt=0)
    user: User | None = None
    network_mode: NetworkMode | None = None
    allowed_hosts: Hosts | None = None

    _hosts = field_validator("allowed_hosts")(_only_with_allowlist)


class Healthcheck(BaseModel):
    """[environment.healthcheck]"""

    model_config = _OPEN
    command: str
    interval_sec: Seconds = 5
    timeout_sec: Seconds = 30
    start_period_sec: Seconds = 0
    start_interval_sec: Seconds = 5
    retries: int = Field(default=3, ge=0)


class Tpu(BaseModel):
    """[environment.tpu]"""

    model_config = _OPEN
    type: str
    topology: str = Field(pattern=r"^\d+x\d+(x\d+)?$")


class McpServer(BaseModel):
    """[[environment.mcp_servers]]"""

    model_config = _OPEN
    name: str
    transport: Literal["sse", "stdio", "streamable-http", "http"] = "sse"
    url: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    headers: dict[str, str] = Field(default_factory=dict)

    @field_validator("headers")
    @classmethod
    def _credentials_come_from_the_host(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if re.search(r"\$\{[^}]*\$\{", value):
                raise ValueError(f"has a template inside a template for '{name}'; expected ${{VAR}}")
            if name.lower() in _CREDENTIAL_HEADERS and not re.search(r"\$\{\w+\}", value):
                raise ValueError(f"has a written-out credential for '{name}'; expected ${{VAR}} without a default")
        return headers

    @model_validator(mode="after")
    def _can_be_reached(self) -> Self:
        needed = "command" if self.transport == "stdio" else "url"
        if getattr(self, needed) is None:
            raise ValueError(f"has no '{needed}'; expected one for transport '{self.transport}'")
        return self


class Environment(BaseModel):
    """[environment] and [verifier.environment]"""

    model_config = _OPEN
    build_timeout_sec: Seconds = 600
    docker_image: str | None = None
    os: Annotated[Literal["linux", "windows"], BeforeValidator(_lower)] = "linux"
    cpus: float | None = Field(default=None, gt=0)
    memory: Megabytes | None = None
    memory_mb: int | None = Field(default=None, gt=0)
    storage: Megabytes | None = None
    storage_mb: int | None = Field(default=None, gt=0)
    gpus: int | None = Field(default=None, ge=0)
    gpu_types: tuple[str, ...] | None = None
    tpu: Tpu | None = None
    env: Env = Field(default_factory=dict)
    skills_dir: str | None = None
    workdir: str | None = Field(default=None, pattern=r"^/[^\x00]*$")
    healthcheck: Healthcheck | None = None
    allow_internet: bool | None = None
    network_mode: NetworkMode = "public"
    allowed_hosts: Hosts | None = None
    mcp_servers: tuple[McpServer, ...] = ()

    _hosts = field_validator("allowed_hosts")(_only_with_allowlist)

    @field_validator("memory_mb", "storage_mb")
    @classmethod
    def _agrees_with_the_older_key(cls, size: int | None, info: ValidationInfo) -> int | None:
        older = str(info.field_name).removesuffix("_mb")
        if None not in (size, info.data.get(older)) and size != info.data[older]:
            raise ValueError(f"is {size}, but the older key '{older}' says {info.data[older]} MB; expected one size")
        return size


class Collect(BaseModel):
    """[[verifier.collect]]"""

    model_config = _OPEN
    command: str
    service: str = "main"
    timeout_sec: Seconds = 60
    user: User | None = None


class VerifierTable(BaseModel):
    """[verifier]"""

    model_config = _OPEN
    timeout_sec: float = Field(default=600, gt=0)
    env: Env = Field(default_factory=dict)
    user: User | None = None
    network_mode: NetworkMode | None = None
    allowed_hosts: Hosts | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: Environment | None = None
    collect: tuple[Collect, ...] = ()

    _hosts = field_validator("allowed_hosts")(_only_with_allowlist)

    @field_validator("environment")
    @classmethod
    def _is_not_shared(cls, environment: Environment | None, info: ValidationInfo) -> Environment | None:
        if environment is not None and info.data.get("environment_mode") == "shared":
            raise ValueError("is given with environment_mode 'shared'; expected 'separate'")
        return environment


class Solution(BaseModel):
    """[solution]"""

    model_config = _OPEN
    env: Env = Field(default_factory=dict)


class ManifestStep(BaseModel):
    """[[steps]]"""

    model_config = _OPEN
    name: Annotated[str, AfterValidator(_portable)]
    min_reward: Annotated[float | dict[str, float], BeforeValidator(_reward_gate)] | None = None
    artifacts: Artifacts = ()
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    healthcheck: Healthcheck | None = None


class WhetTable(BaseModel):
    """[metadata.whet]: settings that Harbor has no key for. Harbor leaves [metadata] to the task's author."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    limits: TaskLimits = TaskLimits()
    """Takes precedence over Harbor's keys."""
    allow: tuple[Allowed, ...] = ()
    judge: Judges = ()
    answer: str | None = None
    answer_schema: Table | None = None
    canary: tuple[Canary, ...] = ()
    agent_logs: bool = False
    system: str | None = None
    read_only: bool = False
    needs_image: bool = True
    """False: a sandbox without images can run the task too, from its files alone."""


class TaskManifest(BaseModel):
    """The whole file."""

    model_config = _OPEN
    version: str | None = None
    schema_version: str | None = None
    source: str | None = None
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    artifacts: Artifacts = ()
    metadata: Annotated[dict[str, Any], AfterValidator(_as_json)] = Field(default_factory=dict)
    task: Identity | None = None
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    environment: Environment = Environment()
    solution: Solution = Solution()
    steps: tuple[ManifestStep, ...] = ()

    @field_validator("schema_version")
    @classmethod
    def _agrees_with_the_older_key(cls, version: str | None, info: ValidationInfo) -> str | None:
        older = info.data.get("version")
        if None not in (version, older) and version != older:
            raise ValueError(f"is {version!r}, but the older key 'version' is {older!r}; expected one version")
        return version

    @field_validator("steps")
    @classmethod
    def _steps_have_different_names(cls, steps: tuple[ManifestStep, ...]) -> tuple[ManifestStep, ...]:
        if len({unicodedata.normalize("NFC", step.name).casefold() for step in steps}) < len(steps):
            raise ValueError("has two steps of one name; expected a different name for each")
        return steps


def unknown_keys(table: BaseModel, path: tuple[int | str, ...] = ()) -> Iterator[str]:
    """A message for each key that the format does not have."""
    for key in table.model_extra or {}:
        yield f"unknown key '{key_path((*path, key))}'; {did_you_mean(key, type(table).model_fields)}"
    for name in type(table).model_fields:
        value = getattr(table, name)
        if isinstance(value, BaseModel):
            yield from unknown_keys(value, (*path, name))
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield from unknown_keys(item, (*path, name, index))
