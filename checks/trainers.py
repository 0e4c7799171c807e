"""`make check-trainers`: each adapter runs in the environment of its trainer, against a real server with the scripted
model. What the trainer holds at the end must equal whet's own rows.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainers_world import write_world

HERE = Path(__file__).parent
NAMES = ("verifiers", "trl", "verl", "skyrl", "tinker")
OFFLINE = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled", "TOKENIZERS_PARALLELISM": "false"}
QUIET = {"TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "error", "TRL_EXPERIMENTAL_SILENCE": "1"}


def main(home: Path, names: list[str]) -> int:
    failed = []
    for name in names or NAMES:
        work = home / name / "last"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        write_world(work)
        print(name, flush=True)
        with serve(work) as url:
            failed += [name] if run(home / name, name, url, work) else []
    print(f"failed: {', '.join(failed)}" if failed else "all adapters give whet's rows")
    return bool(failed)


def run(environment: Path, name: str, url: str, work: Path) -> int:
    """Run the program of a trainer in its environment."""
    path = os.pathsep.join(map(str, (HERE.parent / "src", HERE, work)))
    programs = f"{environment}/bin{os.pathsep}{os.environ['PATH']}"
    environ = os.environ | OFFLINE | QUIET | {"PYTHONPATH": path, "PATH": programs}
    program = str(HERE / f"trainers_{name}.py")
    argv = [str(environment / "bin/python"), "-W", "ignore", program, url, str(work)]
    return subprocess.run(argv, cwd=work, env=environ, check=False).returncode


@contextmanager
def serve(work: Path) -> Iterator[str]:
    """`whet serve` on a free port, until this ends."""
    argv = [sys.executable, "-m", "whet", "serve", "tasks.jsonl", "--agent", "loop", "--model", "policy"]
    argv += ["--allow", "127.0.0.1:*", "--port", "0"]
    with (work / "server.log").open("w") as log:
        server = subprocess.Popen(argv, cwd=work, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert server.stdout is not None
            yield read_url(server.stdout.readline())
        finally:
            server.terminate()
            server.wait(60)


def read_url(line: str) -> str:
    """The address in the line that the server prints when it is ready."""
    found = next((word for word in line.split() if word.startswith("http://")), None)
    assert found is not None, f"the server printed {line!r}"
    return found.rstrip("/,")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
