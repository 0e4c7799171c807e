"""Local models: weights that are pulled once, and an engine that serves them and reports their tokens exactly.

Read `catalog.py` first, then `pull.py` and `serving.py`. `engine.py` is the program of the serving process.
"""

from whet.models.catalog import KNOWN, KnownModel, PulledModel, find_model, find_pulled, list_pulled
from whet.models.pull import pull, sha256_of
from whet.models.serving import DEFAULT_CONTEXT, Engine, Serving, serve_model

__all__ = [
    "DEFAULT_CONTEXT",
    "KNOWN",
    "Engine",
    "KnownModel",
    "PulledModel",
    "Serving",
    "find_model",
    "find_pulled",
    "list_pulled",
    "pull",
    "serve_model",
    "sha256_of",
]
