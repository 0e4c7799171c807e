"""Which readers there are, and what the documents say of them."""

import re
from pathlib import Path

import pytest

from whet.agents.registry import CLIS
from whet.errors import UserError
from whet.sleep.readers.registry import READERS, reader_named

DOCUMENT = Path(__file__).parents[3] / "docs" / "sleep.md"


def test_every_program_that_whet_runs_has_a_reader() -> None:
    assert {reader.cli for reader in READERS} == {cli.kind for cli in CLIS}
    assert all(reader_named(reader.cli) is reader for reader in READERS)


def test_an_unknown_program_is_named() -> None:
    with pytest.raises(UserError, match=r"no transcripts of 'codecs' to read; did you mean 'codex'"):
        reader_named("codecs")


def test_the_document_names_versions_folders_and_variables() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| ([\d.]+) \| `~/(\S+)`.* \| (.+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    told = {cli: (version, tuple(re.findall(r"`(\w+)`", variables))) for cli, version, _, variables in rows}
    moved = {str(cli.kind): tuple(name for name, _ in cli.traits.moved_by) for cli in CLIS}
    assert told == {reader.cli: (reader.tested, moved[reader.cli]) for reader in READERS}


@pytest.mark.parametrize("cli", CLIS, ids=lambda cli: cli.kind)
def test_every_variable_moves_the_transcripts(cli: object) -> None:
    traits = next(one for one in CLIS if one is cli).traits
    for name, replaced in traits.moved_by:
        assert traits.locate(f"{replaced}/sessions", Path("/home"), {name: "/moved"}) == Path("/moved/sessions")
        assert traits.locate("elsewhere/sessions", Path("/home"), {}) == Path("/home/elsewhere/sessions")
