"""A developer's repository, home and store of `whet sleep`, for tests of proposals."""

import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from whet.skills.documents.learned import put_block
from whet.sleep.redaction import Redaction
from whet.sleep.staging import Draft, Evidence, Proposal, Sighting, stage
from whet.sleep.store import SleepStore

NOW = datetime(2026, 11, 16, 3, 0, tzinfo=UTC)
RULE = "Run make test; there is no npm here."
HOUSE = "# House\r\n\r\n\r\n- Be kind.\r\n\r\n\r\n"
"""Hand-written: line ends of Windows, and runs of blank lines."""


@dataclass
class ProposalsWorld:
    """AGENTS.md with a link CLAUDE.md to it, and GEMINI.md with other text and no final newline."""

    folder: Path
    names: tuple[str, ...] = ("CLAUDE.md", "AGENTS.md", "GEMINI.md")
    repository: Path = field(init=False)
    store: SleepStore = field(init=False)

    def __post_init__(self) -> None:
        self.repository = self.folder / "shop"
        self.repository.mkdir()
        (self.folder / "home").mkdir()
        self.agents.write_bytes(HOUSE.encode())
        (self.repository / "CLAUDE.md").symlink_to("AGENTS.md")
        self.gemini.write_bytes(b"\xef\xbb\xbfOther text")
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "Dev")
        self.git("config", "user.email", "dev@example.invalid")
        self.git("add", ".")
        self.git("commit", "-qm", "start")
        self.store = SleepStore(self.folder / "sleep")

    @property
    def agents(self) -> Path:
        return self.repository / "AGENTS.md"

    @property
    def gemini(self) -> Path:
        return self.repository / "GEMINI.md"

    @property
    def contents(self) -> tuple[bytes, bytes]:
        return self.agents.read_bytes(), self.gemini.read_bytes()

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.repository, check=True, capture_output=True, text=True)
        return done.stdout

    def draft(self, rules: str = f"- {RULE}\n", **fields: object) -> Draft:
        sessions = (
            Sighting(cli="claude-code", session="s1", at=datetime(2026, 11, 14, 10, 12, tzinfo=UTC)),
            Sighting(cli="codex", session="s2", at=datetime(2026, 11, 15, 17, 40, tzinfo=UTC)),
        )
        before = HOUSE.replace("\r", "")
        given: dict[str, object] = {
            "night": "2026-11-16",
            "repository": self.repository,
            "targets": tuple(self.repository / name for name in self.names),
            "before": before,
            "after": put_block(before, rules),
            "rule": "r1",
            "sessions": sessions,
            "proof": "rule kept 2/24 -> 23/24 on 6 exam tasks; lower bound +.51 (level .0125); "
            "tests still pass 21/24 -> 22/24 (not worse than -.10)",
            "certified": True,
            "evidence": Evidence.CORRECTION,
        }
        return Draft.model_validate({**given, **fields})

    def stage(self, draft: Draft | None = None) -> Proposal:
        home = self.folder / "home"
        return stage(self.store, draft or self.draft(), Redaction({}, home), NOW, home)
