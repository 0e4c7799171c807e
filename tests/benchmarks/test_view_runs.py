"""The runs that `make bench-view` measures are ones that whet could have written."""

from pathlib import Path

from support.view_worlds import write_many_rollouts
from view_runs import multiply_run, write_certificate
from whet.runs.index import RunIndex
from whet.runs.store.store import Store
from whet.skills.certificates.certificate import CERTIFICATE, read_certificate
from whet.skills.certificates.checks.arithmetic import problems


def test_the_certificate_of_the_benchmark_holds(tmp_path: Path) -> None:
    write_certificate(tmp_path / "run", exams=3, positions=20)
    read = read_certificate(tmp_path / "run" / CERTIFICATE)
    assert problems(read) == []
    assert [len(record.positions) for record in read.records] == [20, 20, 20]


def test_a_multiplied_run_has_every_rollout_with_its_result(tmp_path: Path) -> None:
    write_many_rollouts(tmp_path / "one", tasks=3, arms=2, samples=2)
    multiply_run(tmp_path / "one", tmp_path / "four", 4)
    index = RunIndex()
    with Store.open_read(tmp_path / "four") as store:
        index.update(store)
    assert len(index.rows) == 48
    assert len({row.rollout.task for row in index.rows}) == 12
    assert [row.value for row in index.rows[:12]] == [row.value for row in index.rows[36:]]
    assert all(row.value is not None or row.cause is not None for row in index.rows)
