"""The real engine of `make check-tokens`: vLLM on this machine's processor, and transformers beside it as an oracle."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TEMPLATE = HERE / "chat.jinja"
MODEL = "smollm2"
CONTEXT = 8192
"""The longest that this model reads."""
START_SEC = 300
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "TRANSFORMERS_VERBOSITY": "error",
    "TQDM_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
}


@dataclass(frozen=True, slots=True)
class Engine:
    """An environment that holds vLLM, transformers and a model folder."""

    home: Path

    @property
    def python(self) -> Path:
        return self.home / "bin/python"

    @property
    def model(self) -> Path:
        return self.home / "model"

    @property
    def default_top_k(self) -> int:
        """What the engine samples with where a request does not say otherwise."""
        top_k: int = json.loads((self.model / "generation_config.json").read_text())["top_k"]
        return top_k

    @contextmanager
    def serving(self, log: Path) -> Iterator[str]:
        """The address of the served model."""
        port = _free_port()
        argv: list[str | Path] = [
            *(self.python, "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", self.model, "--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)),
            *("--dtype", "float32", "--enforce-eager", "--max-num-seqs", "8", "--max-model-len", str(CONTEXT)),
            # A request with a seed whose prompt is read in parts ends this engine.
            *("--no-enable-chunked-prefill", "--max-num-batched-tokens", str(CONTEXT)),
            *("--chat-template", TEMPLATE, "--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        ]
        url = f"http://127.0.0.1:{port}"
        with log.open("wb") as output:
            server = subprocess.Popen(
                argv, env=os.environ | QUIET, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                _wait_for(url, server, log)
                yield url
            finally:
                os.killpg(server.pid, signal.SIGTERM)
                server.wait(60)

    def ask_oracle(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """What transformers says of rows; see oracle.py."""
        argv = [self.python, HERE / "oracle.py", self.model, TEMPLATE]
        answer = subprocess.run(
            argv, input=json.dumps(rows).encode(), env=os.environ | QUIET, stdout=subprocess.PIPE, check=True
        )
        told: list[dict[str, Any]] = json.loads(answer.stdout)
        return told


def tokenize(url: str, body: Mapping[str, Any]) -> list[int]:
    """The ids that the engine itself makes of a chat request."""
    asked = {"model": MODEL, "messages": body["messages"], "tools": body.get("tools"), "add_generation_prompt": True}
    request = urllib.request.Request(
        f"{url}/tokenize", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        ids: list[int] = json.load(response)["tokens"]
    return ids


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SEC
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise SystemExit(f"the engine ended with code {server.returncode}; see {log}")
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
        else:
            return
    raise SystemExit(f"the engine did not start within {START_SEC} s; see {log}")
