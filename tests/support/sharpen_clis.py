"""The example tasks, a skill that says too little, and a model that does its work only when its skill has the rule."""

import re
import shutil
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
RULE = "Before you finish, run what you made and check that it does everything the task says."
"""What `criteria` makes of hidden tests that fail; the scripted proposer has the same idea."""
SKILL = """\
---
name: careful-work
description: How to do any task here. Load it before you begin.
---
# Work

- Be brief.
"""
TRAIN = ("sales-report", "largest-files")
"""What the example model does not quite solve; the others are for validation."""
LOAD = '[[scene.reply]]\ntools = [{ name = "skill", arguments = { name = "careful-work" } }]'
IDLE = f'\n[[scene]]\n{LOAD}\n[[scene.reply]]\ntext = "Done."\n'
REFLECTS = f"""
[[scene]]
when.user = "{RULE[:20]}"
[[scene.reply]]
text = '{{"edits": []}}'

[[scene]]
when.system = "You improve a document"
when.user = "These rollouts failed"
[[scene.reply]]
text = '{{"patterns": ["nothing is done"], "edits": [{{"op": "add", "text": "- {RULE}"}}]}}'

[[scene]]
when.system = "You improve a document"
[[scene.reply]]
text = '{{"edits": []}}'
"""
EDITS = f"""
[[scene]]
when.user = "Improve the document"
[[scene.reply]]
tools = [{{ name = "bash", arguments = {{ command = '''
grep -q 'Before you finish' skill/SKILL.md || echo '- {RULE}' >> skill/SKILL.md
''' }} }}]
[[scene.reply]]
text = "I added a rule."
"""


def write_world(folder: Path) -> None:
    """Tasks, skill and models, for `sharpen careful-work tasks --model scripted:model.toml`."""
    (folder / "careful-work").mkdir(parents=True)
    (folder / "careful-work/SKILL.md").write_text(SKILL)
    for task in (EXAMPLES / "tasks").iterdir():
        _copy(task, folder / "tasks" / task.name, "train" if task.name in TRAIN else "val")
    # Three tasks are the fewest to train on.
    again = _copy(EXAMPLES / "tasks/sales-report", folder / "tasks/sales-report-again", "train")
    with (again / "instruction.md").open("a") as file:
        file.write("\nWrite it with care.\n")
    (folder / "model.toml").write_text(obedient_model())
    (folder / "optimizer.toml").write_text(f"{REFLECTS}{EDITS}")


def sharpen_command(agent: str, proposer: str, budget: int) -> list[str]:
    """What a user types in that folder. The agent and another scripted model propose, where that is asked for."""
    options = [] if proposer == "criteria" else ["--proposer-model", "scripted:optimizer.toml"]
    return [
        *("sharpen", "careful-work", "tasks", "--agent", agent, "--model", "scripted:model.toml"),
        *("--proposer", proposer, *options, "--budget", str(budget), "--force"),
        *("--concurrency", "2", "--out", "out"),
    ]


def obedient_model() -> str:
    """The model of the examples, which loads its skill first, and works only when that has the rule."""
    tasks, _, _ = (EXAMPLES / "scripted.toml").read_text().partition("# --- questions")
    works = re.sub(
        r"^when = \{ (user = .*) \}$", rf"when = {{ \1, any = '{RULE}' }}\n{LOAD}", tasks, flags=re.MULTILINE
    )
    return f"{works}{IDLE}"


def _copy(task: Path, place: Path, split: str) -> Path:
    shutil.copytree(task, place)
    manifest = place / "task.toml"
    manifest.write_text(manifest.read_text().replace("[metadata]", f'[metadata]\nsplit = "{split}"'))
    return place
