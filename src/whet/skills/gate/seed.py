"""The seed of the order of all exams: secret until the run is over, committed to before the first exam.

A proposer that knows the order of an exam can write a candidate that passes without being better. So the seed comes
from the system's randomness, only its digest is shown during the run, and the certificate reveals it.
"""

import json
import secrets
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict

from whet.errors import UserError
from whet.ids import digest
from whet.paths import write_atomic

SEED = "seed.json"
"""File in the folder of a run's exams. Proposers cannot see that folder."""


class Seed(BaseModel):
    """
    >>> Seed.choose(7).origin, Seed.choose(7).commitment == Seed.choose(8).commitment
    ('chosen by the user: 7', False)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: str
    drawn: bool
    """Whether it comes from the system's randomness. Otherwise the user chose it, perhaps after trying others."""

    @classmethod
    def draw(cls) -> Self:
        return cls(value=secrets.token_hex(32), drawn=True)

    @classmethod
    def choose(cls, number: int) -> Self:
        return cls(value=str(number), drawn=False)

    @property
    def commitment(self) -> str:
        """Digest that is shown before the first exam. It fixes the seed without revealing it."""
        return digest(b"seed of exams", self.value.encode())

    @property
    def origin(self) -> str:
        return "drawn" if self.drawn else f"chosen by the user: {self.value}"


def fix_seed(folder: Path, number: int | None) -> Seed:
    """Read the seed from the folder of a run's exams. If there is none, store this number, or a random draw.

    UserError when the run has another seed than this number."""
    file = folder / SEED
    if not file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        new = Seed.draw() if number is None else Seed.choose(number)
        write_atomic(file, new.model_dump_json() + "\n")
    try:
        found = Seed.model_validate_json(file.read_bytes())
    except ValueError:
        raise UserError(
            f"{file}: expected the seed of this run: {json.dumps({'value': '...', 'drawn': True})}"
        ) from None
    if number is not None and found != Seed.choose(number):
        raise UserError(
            f"`seed` is {number}, but this run already has a seed, which was {found.origin}; leave `seed` out"
        )
    return found
