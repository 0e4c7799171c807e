"""Models: providers by name, and local weights that are pulled once and served with exact tokens.

`providers.py` is a table. For local models read `catalog.py` first, then `pull.py` and `serving.py`. `engine.py` is the
program of the serving process.
"""

from whet.models.catalog import KNOWN, KnownModel, PulledModel, find_model, find_pulled, list_pulled
from whet.models.providers import PROVIDERS, Provider, first_set, provider_settings
from whet.models.pull import pull, sha256_of
from whet.models.serving import DEFAULT_CONTEXT, Engine, Serving, serve_model

__all__ = [
    "DEFAULT_CONTEXT",
    "KNOWN",
    "PROVIDERS",
    "Engine",
    "KnownModel",
    "Provider",
    "PulledModel",
    "Serving",
    "find_model",
    "find_pulled",
    "first_set",
    "list_pulled",
    "provider_settings",
    "pull",
    "serve_model",
    "sha256_of",
]
