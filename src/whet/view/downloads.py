"""An export of training rows that is made while the reader waits, by `whet export` in a process of its own. If the
reader leaves, the process is ended."""

import asyncio
import contextlib
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from whet.errors import UserError

_FIRST_DATE = (1980, 1, 1, 0, 0, 0)
"""The time of files in an archive, so that the same export has the same bytes."""


class ExportResponse(Response):
    """A reply whose file is made when the reply is sent."""

    def __init__(self, arguments: Sequence[str], name: str, *, lines: bool) -> None:
        """`arguments` are those of whet, `lines` says whether the format is a file of lines."""
        super().__init__()
        self._arguments, self._name, self._lines = arguments, name, lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with tempfile.TemporaryDirectory(prefix="whet-view-") as folder:
            making = asyncio.create_task(self._make(Path(folder)))
            leaving = asyncio.create_task(_wait_for_end(receive))
            try:
                await asyncio.wait({making, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if making.done():
                    await self._reply(making)(scope, receive, send)
            finally:
                for task in (making, leaving):
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError, UserError):
                        await task

    def _reply(self, making: "asyncio.Task[Path]") -> Response:
        try:
            file = making.result()
        except UserError as error:
            return PlainTextResponse(f"{error}\n", 409)
        kind = "application/x-ndjson" if file.suffix == ".jsonl" else "application/zip"
        return FileResponse(file, 200, {"Cache-Control": "no-store"}, kind, filename=file.name)

    async def _make(self, folder: Path) -> Path:
        """The file of the export. UserError says why there is none."""
        out = folder / "export" / f"{self._name}{'.jsonl' if self._lines else ''}"
        out.parent.mkdir()
        argv = ("-P", "-m", "whet", *self._arguments, "--out", str(out))
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=pipe
        )
        try:
            _, said = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise UserError(said.decode(errors="replace").strip() or "the export ended without a result")
        if {path.name for path in out.parent.iterdir()} == {out.name, f"{out.name}.manifest.json"} and self._lines:
            return out
        # A folder, or truncated rows in a file of their own.
        return await asyncio.to_thread(_pack, out.parent, folder / f"{self._name}.zip")


async def _wait_for_end(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _pack(folder: Path, archive: Path) -> Path:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                named = zipfile.ZipInfo(str(path.relative_to(folder)), _FIRST_DATE)
                named.compress_type = zipfile.ZIP_DEFLATED
                with path.open("rb") as source, packed.open(named, "w", force_zip64=True) as target:
                    while piece := source.read(1 << 20):
                        target.write(piece)
    return archive
