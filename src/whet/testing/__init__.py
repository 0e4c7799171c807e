"""A scripted model to rehearse a set-up with: a real HTTP server that plays a script, free and always the same."""

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
