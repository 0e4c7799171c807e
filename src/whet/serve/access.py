"""Who calls: named tokens with scopes and limits. `read_tokens` reads them, `Tokens.authenticate` finds the caller."""

import hashlib
import hmac
import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from whet.errors import UserError
from whet.gateway import Limits
from whet.serve.problems import Code, Refused
from whet.validation_errors import explain, user_error

TOKEN_ENV = "WHET_SERVE_TOKEN"  # noqa: S105 - the name of a variable
SHORTEST_TOKEN = 16
_TOKEN = re.compile(rf"[\x21-\x7e]{{{SHORTEST_TOKEN},}}")
_BEARER = re.compile(r"bearer +(\S+)", re.IGNORECASE)
_HOST_PORT = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::\d+)?")


class Scope(StrEnum):
    """What a caller may do."""

    RUN = "run"
    """Start and cancel rollouts and runs of its own."""
    READ = "read"
    """Read rollouts of its own, tasks and models."""
    ADMIN = "admin"
    """See and cancel all rollouts and runs, change models, pause."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and what it may do and use."""

    name: str
    scopes: frozenset[Scope] = frozenset(Scope)
    concurrency: int | None = None
    """Rollouts that run at the same time."""
    queue: int | None = None
    """Rollouts that wait."""
    limits: Limits = field(default_factory=Limits)
    """What all its rollouts together may use, since the folder of the server was made."""

    def may(self, scope: Scope) -> bool:
        """Whether it has this scope. `admin` includes the others."""
        return scope in self.scopes or Scope.ADMIN in self.scopes


LOCAL = Caller("local")
"""Whoever calls a server without tokens, which listens on the loopback interface only."""


def require_scope(caller: Caller, scope: Scope) -> None:
    """Refused when the caller does not have this scope."""
    if not caller.may(scope):
        raise Refused(Code.FORBIDDEN, f"token '{caller.name}' does not have the scope '{scope}'")


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a server. Only their digests are kept."""

    _callers: Mapping[bytes, Caller] = field(default_factory=dict, repr=False)
    """By the SHA-256 of the token."""

    @property
    def callers(self) -> tuple[Caller, ...]:
        """Everyone who may call."""
        return tuple(self._callers.values()) or (LOCAL,)

    def __bool__(self) -> bool:
        return bool(self._callers)

    def authenticate(self, header: str | None) -> Caller:
        """The caller with this `Authorization` header. Without tokens, everyone is `local`.

        It compares with every token and takes as long for any, so that time tells nothing about them.
        """
        if not self._callers:
            return LOCAL
        bearer = _BEARER.fullmatch(header or "")
        if bearer is None:
            raise Refused(Code.UNAUTHORIZED, "no token; expected the header 'Authorization: Bearer TOKEN'")
        given = hashlib.sha256(bearer[1].encode("utf-8", "surrogatepass")).digest()
        equal = [caller for known, caller in self._callers.items() if hmac.compare_digest(known, given)]
        if not equal:
            raise Refused(Code.UNAUTHORIZED, "the token is not known to this server")
        return equal[0]

    def check_origin(self, host: str | None, origin: str | None) -> None:
        """Without tokens, refuse what a web page of another site sends through the browser of whoever runs the server:
        its `Origin` is not this machine, or its `Host` is a name that was made to point here."""
        if self._callers:
            return
        if not _is_local(host or ""):
            raise Refused(Code.FORBIDDEN, "the Host header is not a loopback address; expected one, or a token")
        if origin is not None and not _is_local(origin.partition("://")[2]):
            raise Refused(Code.FORBIDDEN, "the request comes from a web page of another site; use a token")


def read_tokens(file: Path | None, env: Mapping[str, str] = os.environ) -> Tokens:
    """The tokens of a file and the one in WHET_SERVE_TOKEN, which is named `env` and may do everything."""
    callers: dict[bytes, Caller] = {}
    if TOKEN_ENV in env:
        callers[_digest(env[TOKEN_ENV], TOKEN_ENV)] = Caller("env")
    for name, token in (_read_file(file) if file is not None else {}).items():
        where = f"{file}: token '{name}'"
        if name == "env" and TOKEN_ENV in env:
            raise UserError(f"{where} has the name of the token in {TOKEN_ENV}; expected another name")
        digest = token.digest(where, env)
        if (same := callers.get(digest)) is not None:
            raise UserError(f"{where} is the same token as '{same.name}'; expected a token for each name")
        callers[digest] = token.caller(name)
    return Tokens(callers)


def require_tokens(host: str, tokens: Tokens) -> None:
    """UserError when other machines can reach a server that has no tokens."""
    if not tokens and not _is_local(host):
        raise UserError(
            f"`host` is '{host}', which other machines may reach, and there are no tokens; "
            f"set {TOKEN_ENV} or `tokens`, or listen on 127.0.0.1"
        )


class _Token(BaseModel):
    """One table of the file: the token in one of three forms, and what its caller may do."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    token: SecretStr | None = None
    token_env: str | None = Field(default=None, min_length=1)
    """Environment variable that holds the token."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")] | None = None
    """SHA-256 of the token, in hex."""
    scopes: frozenset[Scope] = Field(default=frozenset({Scope.RUN, Scope.READ}), min_length=1)
    concurrency: int | None = Field(default=None, ge=1)
    queue: int | None = Field(default=None, ge=0)
    total_tokens: int | None = Field(default=None, ge=0)
    input_tokens: int | None = Field(default=None, ge=0)
    output_tokens: int | None = Field(default=None, ge=0)
    cost: float | None = Field(default=None, ge=0)
    """Dollars."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        given = sum(form is not None for form in (self.token, self.token_env, self.sha256))
        if given != 1:
            raise ValueError(f"has {given} of 'token', 'token_env' and 'sha256'; expected exactly one of them")
        return self

    def digest(self, where: str, env: Mapping[str, str]) -> bytes:
        if self.sha256 is not None:
            return bytes.fromhex(self.sha256)
        if self.token is not None:
            return _digest(self.token.get_secret_value(), where)
        assert self.token_env is not None
        if self.token_env not in env:
            raise UserError(f"{where}: environment variable {self.token_env} is not set")
        return _digest(env[self.token_env], f"{where}: {self.token_env}")

    def caller(self, name: str) -> Caller:
        limits = Limits(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            total_tokens=self.total_tokens,
            cost=self.cost,
        )
        return Caller(name, self.scopes, self.concurrency, self.queue, limits)


class _TokenFile(BaseModel):
    """The content of a file of tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    tokens: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")], _Token] = Field(default_factory=dict)


def _read_file(file: Path) -> Mapping[str, _Token]:
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode & 0o777
            tokens = _TokenFile.model_validate(tomllib.load(opened)).tokens
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: not TOML: {error}") from None  # the error holds the text of the file
    except ValidationError as error:
        raise user_error(explain(error, str(file), _TokenFile)) from None
    if not tokens:
        raise UserError(f"{file}: has no tokens; expected at least one table [tokens.NAME]")
    clear = next((name for name, token in tokens.items() if token.token is not None), None)
    if clear is not None and mode & 0o077:
        raise UserError(
            f"{file}: holds the token '{clear}' in clear and others may read it (mode {mode:03o}); "
            f"run 'chmod 600 {file}', or give 'sha256' or 'token_env' in place of 'token'"
        )
    return tokens


def _digest(token: str, where: str) -> bytes:
    if not _TOKEN.fullmatch(token):
        raise UserError(
            f"{where}: not a token; expected at least {SHORTEST_TOKEN} printable ASCII characters without spaces"
        )
    return hashlib.sha256(token.encode()).digest()


def _is_local(host: str) -> bool:
    """Whether a host, with or without a port, is this machine as only itself can reach it."""
    match = _HOST_PORT.fullmatch(host)
    name = match[1].strip("[]") if match else host
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
