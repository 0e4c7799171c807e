"""The seed that the order of every exam is drawn from: secret until the run is over, committed before its first exam.

Whoever knows the order of an exam can make a candidate for it that is no better and passes. So the seed comes from the
system's randomness, only its digest is shown while the run lasts, and the certificate reveals it.
"""

import json
import secrets
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict

from whet.errors import UserError
from whet.files import write_atomic
from whet.ids import digest

SEED = "seed.json"
"""Where the folder of a run's exams keeps it. Proposers see nothing of that folder."""


class Seed(BaseModel):
    """
    >>> Seed.chosen(7).told, Seed.chosen(7).commitment == Seed.chosen(8).commitment
    ('chosen by the user: 7', False)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: str
    drawn: bool
    """Whether the system's randomness gave it; otherwise the user named it, and may have tried others before."""

    @classmethod
    def draw(cls) -> Self:
        return cls(value=secrets.token_hex(32), drawn=True)

    @classmethod
    def chosen(cls, number: int) -> Self:
        return cls(value=str(number), drawn=False)

    @property
    def commitment(self) -> str:
        """What is shown of it before the first exam: it fixes the seed, and does not reveal one that was drawn."""
        return digest(b"seed of exams", self.value.encode())

    @property
    def told(self) -> str:
        return "drawn" if self.drawn else f"chosen by the user: {self.value}"


def fixed_seed(folder: Path, number: int | None) -> Seed:
    """The seed of a run whose exams have this folder: the one that is there, else this number, else a fresh draw.

    UserError when the run has another seed than this number."""
    file = folder / SEED
    if not file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        new = Seed.draw() if number is None else Seed.chosen(number)
        write_atomic(file, new.model_dump_json() + "\n")
    try:
        found = Seed.model_validate_json(file.read_bytes())
    except ValueError:
        raise UserError(
            f"{file}: expected the seed of this run: {json.dumps({'value': '...', 'drawn': True})}"
        ) from None
    if number is not None and found != Seed.chosen(number):
        raise UserError(f"`seed` is {number}, but the run was begun with a seed that was {found.told}; leave it out")
    return found
