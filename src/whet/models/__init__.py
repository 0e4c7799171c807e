"""Local models: weights that are pulled once, and an engine that serves them with their tokens told exactly."""

from whet.models.catalog import KNOWN, Known, Pulled, all_pulled, find_model, pulled
from whet.models.pull import pull, sha256_of
from whet.models.serving import DEFAULT_CONTEXT, Engine, Serving, served

__all__ = [
    "DEFAULT_CONTEXT",
    "KNOWN",
    "Engine",
    "Known",
    "Pulled",
    "Serving",
    "all_pulled",
    "find_model",
    "pull",
    "pulled",
    "served",
    "sha256_of",
]
