"""The process that serves a local model: llama.cpp's own server on a socket file, and in front of it, on a port of
this machine, what makes its replies token exact. It ends when its standard input does: with the whet that started it.
"""

import asyncio
import os
import shutil
import socket
import sys
import threading
from pathlib import Path

import xllamacpp
from aiohttp import web

from whet.models.exact import exact_front

OUTPUT_TOKENS = 1024
"""How much is sampled when a request does not say: a small model may never end by itself."""
CACHE_MIB = 512
"""Memory for prompts that may come again; llama.cpp itself would take 8 GiB."""
TELLS_IDS = 10
"""From this verbosity on, llama.cpp tells the ids that it sampled."""


def main(weights: str, name: str, slots: str, context: str, port: str, folder: str) -> None:
    """Serve until standard input ends; tell the port on standard output when ready."""
    threading.Thread(target=_end_with_whet, args=(folder,), daemon=True).start()
    path = Path(folder, "llama.sock")
    sock = _bind(int(port))
    try:
        # It serves for as long as it lives.
        server = xllamacpp.Server(_params(weights, name, int(slots), int(context), path))
    except RuntimeError as error:
        sys.exit(str(error))
    asyncio.run(_serve(path, sock))
    del server


def _params(weights: str, name: str, slots: int, context: int, path: Path) -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.model_alias = {name}
    params.hostnames = [str(path)]
    params.n_parallel = slots
    params.n_ctx = context * slots
    params.n_predict = OUTPUT_TOKENS
    params.cache_ram_mib = CACHE_MIB
    params.verbosity = TELLS_IDS
    params.ui = False
    params.endpoint_slots = False  # it shows what others asked
    # Threads that wait for a core which somebody else has cost more than they bring.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(1, len(os.sched_getaffinity(0)) // 2)
    # No token is cut off unless a request says so: log-probabilities are those of what was sampled from.
    params.sampling.top_k, params.sampling.top_p, params.sampling.min_p = 0, 1.0, 0.0
    return params


def _bind(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        sys.exit(f"port {port}: {os.strerror(error.errno or 0)}")


async def _serve(path: Path, sock: socket.socket) -> None:
    runner = web.AppRunner(exact_front(path), access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.SockSite(runner, sock).start()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # from here on, it would be every word of every call
    print(sock.getsockname()[1], flush=True)
    await asyncio.get_running_loop().create_future()


def _end_with_whet(folder: str) -> None:
    while os.read(0, 1):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)  # llama.cpp's threads would be waited for


if __name__ == "__main__":
    main(*sys.argv[1:])
