"""A server without a door, to be killed: `python serve_program.py FOLDER COUNT` queues COUNT rollouts, once, and runs
them. It prints a line when they are queued, and one for each that is done."""

import asyncio
import sys
from pathlib import Path

from support.serve_world import ANN, open_test_service, question

GROUP = 10
"""Rollouts of one request."""


async def main(folder: Path, count: int) -> None:
    async with open_test_service(folder, concurrency=4) as service:
        for number in range(count // GROUP):
            await service.submit(question(samples=GROUP, seed=number), ANN, f"request-{number}")
        print("queued", flush=True)
        names = [one.id for one in await service.list_rollouts(ANN, limit=count)]
        for name in reversed(names):
            await service.wait(name, ANN, 600)
            print(name, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
