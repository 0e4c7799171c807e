"""A whole server for the tests of adapters: REST on a free port, a scripted model with token ids, real boxes."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.serve_world import SAMPLING, answers, script_file
from whet.runs.config import Config, ModelConfig
from whet.serve.options import ServeOptions
from whet.serve.serving import open_server
from whet.tasks import Task
from whet.testing import Reply

TASKS = (
    Task(id="four", instruction="2 + 2?", answer="4"),
    Task(id="five", instruction="2 + 3?", answer="5"),
    Task(id="slow", instruction="Take your time: 2 + 2?", answer="4"),
    Task(id="lost", instruction="2 + 2?", verify=("echo nonsense > /logs/verifier/reward.txt",)),
)
SCENES = (answers("your time", Reply(text="4", delay=2)), answers("", Reply(text="4")))


@contextmanager
def serve_tasks(folder: Path, **options: Any) -> Iterator[str]:
    """The address of a server of TASKS, whose model `policy` answers 4 to everything. It has a thread of its own, so
    that tests may block, as some trainers do."""
    script = script_file(folder, *SCENES, tokens=True)
    config = Config(models={"policy": ModelConfig(script=script, capture="vllm", set=SAMPLING)})
    given = {"tasks": TASKS, "agents": ("chat",), "models": ("policy",), "out": folder / "served", "port": 0, **options}
    started: Future[tuple[str, Callable[[], object]]] = Future()

    async def serve() -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        async with open_server(ServeOptions(**given), config, lambda _: None, {}) as server:
            started.set_result((server.about.url, lambda: loop.call_soon_threadsafe(stopped.set)))
            await stopped.wait()

    def fail(done: Future[None]) -> None:
        if not started.done():
            started.set_exception(done.exception() or RuntimeError("the server ended before it began"))

    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(asyncio.run, serve())
        serving.add_done_callback(fail)
        url, stop = started.result()
        try:
            yield url
        finally:
            stop()
            serving.result()
