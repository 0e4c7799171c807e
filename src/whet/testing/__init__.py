"""A scripted model for rehearsals and tests: a real HTTP server that answers from a script, always the same."""

from whet.testing.script import Fault, Scene, Script, When, call, read_script, say
from whet.testing.script import ScriptedReply as Reply
from whet.testing.script import ScriptedToolCall as ToolCall
from whet.testing.server import Received, ScriptedModel, serve

__all__ = [
    "Fault",
    "Received",
    "Reply",
    "Scene",
    "Script",
    "ScriptedModel",
    "ToolCall",
    "When",
    "call",
    "read_script",
    "say",
    "serve",
]
