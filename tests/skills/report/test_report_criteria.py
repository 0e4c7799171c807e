"""What judges asked for and got: shares of the same tasks under two skills, and no answer told."""

import json
from pathlib import Path

import whet
from whet.skill import read_skill
from whet.skills.report.criteria import read_check_rates

SCRIPT = """
[[scene]]
when.system = "Salute"
[[scene.reply]]
text = "Aye, 4 less"

[[scene]]
[[scene.reply]]
text = "4 less"
"""


def test_what_only_one_task_asks_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "script.toml").write_text(SCRIPT)
    for name, text in {"before": "Be brief.", "after": "Salute."}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(text)
    judges = [{"kind": "rules", "checks": [{"op": "contains", "arg": "Aye"}]}, {"kind": "contains"}, {"kind": "exact"}]
    met = {"kind": "rules", "name": "met", "checks": [{"op": "contains", "arg": "less"}]}
    rows = [
        {"id": f"t{answer}", "instruction": f"{answer}?", "answer": str(answer), "judge": [*judges, *more]}
        for answer, more in ((4, []), (5, [met]))
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    before, after = (read_skill(tmp_path / name) for name in ("before", "after"))
    whet.run(
        tmp_path / "tasks.jsonl",
        agent="chat",
        model=f"scripted:{tmp_path / 'script.toml'}",
        skill=[before.folder, after.folder],
        out=tmp_path / "run",
    )
    found = {
        one.words: (one.before.mean, one.after.mean)
        for one in read_check_rates(tmp_path / "run", before.digest, after.digest)
    }
    shared, alone = (
        'The answer contains "Aye".',
        "The answer contains words that only one task expects.",
    )
    assert {words: found[words] for words in (shared, alone)} == {shared: (0.0, 1.0), alone: (0.5, 0.5)}
    assert not any("4" in words or "5" in words for words in found)
