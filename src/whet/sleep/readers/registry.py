"""The readers, and their lookup by the name of the agent."""

from whet.errors import UserError, did_you_mean
from whet.sleep.readers.claude_code import ClaudeCodeReader
from whet.sleep.readers.codex import CodexReader
from whet.sleep.readers.copilot import CopilotReader
from whet.sleep.readers.gemini import GeminiReader
from whet.sleep.readers.mini import MiniReader
from whet.sleep.readers.opencode import OpenCodeReader
from whet.sleep.readers.pi import PiReader
from whet.sleep.readers.qwen import QwenReader
from whet.sleep.readers.reader import Reader

READERS: tuple[Reader, ...] = (
    ClaudeCodeReader(),
    CodexReader(),
    CopilotReader(),
    GeminiReader(),
    QwenReader(),
    PiReader(),
    OpenCodeReader(),
    MiniReader(),
)


def reader_named(cli: str) -> Reader:
    """The reader for an agent's transcripts."""
    known = {reader.cli: reader for reader in READERS}
    if cli not in known:
        raise UserError(f"there are no transcripts of '{cli}' to read; {did_you_mean(cli, known)}")
    return known[cli]
