"""Local models: weights that are pulled once, and an engine that serves them with their tokens told exactly."""

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
