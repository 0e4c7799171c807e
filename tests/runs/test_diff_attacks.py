"""The `diff` judge sees every change, whatever an agent does to hide it; what was not looked at gives no verdict."""

import shlex
from pathlib import Path

import pytest

from support.run_world import perform, read_results, scripted, write_rows
from whet.rollout.result import Result
from whet.scoring import Cause
from whet.testing import Reply

HIDES = {
    "many files on top": "mkdir a; cd a; seq 1 20001 | xargs touch; cd ..; echo bad >> deep/er/config.ini",
    "a large file with its old time": "printf X | dd of=large.bin bs=1 seek=17000000 conv=notrunc status=none;"
    " touch -d @1700000000 large.bin",
    "deep folders": "d=$(printf 'd/%.0s' {1..60}); mkdir -p $d; echo bad > $d/config.ini",
    "a binary file": "printf 'x\\0bad\\n' > code.bin",
    "a long file": "{ seq 1 40000; echo bad; } > long.txt",
    "a closed file": "echo bad >> deep/er/config.ini; chmod 0 deep/er/config.ini deep/er deep",
}
UNTOUCHED = {"kind": "diff", "untouched": ["*.ini", "large.bin"], "threshold": 1}
LACKS = {"kind": "diff", "lacks": "bad"}
SETUP = (
    "mkdir -p deep/er; echo good > deep/er/config.ini;"
    " head -c 18000000 /dev/zero > large.bin; touch -d @1700000000 large.bin"
)


async def changed_by(folder: Path, script: str, *judges: object) -> Result:
    row = {"id": "t", "instruction": "-", "setup": [SETUP], "judge": [*judges]}
    agents = ("command:bash -c " + shlex.quote(script),)
    await perform(write_rows(folder, row), scripted(folder, {"": Reply(text="4")}), agents=agents)
    ((_, result),) = read_results(folder / "run")
    return result


@pytest.mark.parametrize("script", HIDES.values(), ids=HIDES.keys())
async def test_a_hidden_change_is_seen(tmp_path: Path, script: str) -> None:
    result = await changed_by(tmp_path, script, LACKS if "bad" in script else UNTOUCHED)
    assert (result.score.value, result.score.cause) == (0, None), result.score.reason


async def test_honest_work_passes_with_binaries_and_large_files_beside_it(tmp_path: Path) -> None:
    result = await changed_by(tmp_path, "seq 1 40000 > long.txt; printf 'x\\0y' > y.pyc; touch large.bin", UNTOUCHED)
    assert result.score.value == 1, result.score.reason


async def test_a_cut_snapshot_gives_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.sandbox.disk.snapshot.NAMES", 50)
    result = await changed_by(tmp_path, "touch {1..99}; echo bad >> deep/er/config.ini", UNTOUCHED)
    assert result.score.cause is Cause.JUDGE
    assert "could not be read completely: there are more than 50 names" in result.score.reason
    assert result.unseen is not None
