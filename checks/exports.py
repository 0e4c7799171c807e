"""`make check-exports`: a run with sub-agents and token ids is exported, and held against its readers' own types.

The rehearsed run is made here; schemas.py, in the readers' environment, judges what was exported.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from whet.trace.export import FORMATS

CONFIG = """
[models.exact]
script = "script.toml"
capture = "vllm"
set = { temperature = 1.0, top_p = 1.0, top_k = -1, min_p = 0.0, repetition_penalty = 1.0 }
"""
SCRIPT = """
tokens = true

[[scene]]
when = { user = "Count the lines" }
[[scene.reply]]
text = "Three lines."

[[scene]]
[[scene.reply]]
thinking = "It wants a file."
text = "I write it."
tools = [{ name = "bash", arguments = { command = "echo 42 > answer; cat answer" } }]
[[scene.reply]]
text = "Someone else may count."
tools = [{ name = "agent", arguments = { prompt = "Count the lines of all files here, please." } }]
[[scene.reply]]
text = "It says 42."
"""
TASKS = (
    {"id": "good", "instruction": "Write 42.", "verify": ["grep -qx 42 answer"], "tags": ["easy"]},
    {"id": "bad", "instruction": "Write 43.", "verify": ["grep -qx 43 answer"]},
)


def main(home: Path) -> int:
    work = home / "last"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    (work / "whet.toml").write_text(CONFIG)
    (work / "script.toml").write_text(SCRIPT)
    (work / "tasks.jsonl").write_text("\n".join(map(json.dumps, TASKS)))
    whet(
        work, "run", "tasks.jsonl", "--agent", "loop,claude-code", "--model", "exact", "--samples", "2", "--out", "run"
    )
    for name in FORMATS:
        whet(work, "export", "run", "--format", name, "--out", name)
    return subprocess.run([home / "bin/python", Path(__file__).with_name("schemas.py"), work], check=False).returncode


def whet(work: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "whet", *arguments], cwd=work, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
