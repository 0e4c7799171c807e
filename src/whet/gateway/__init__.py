"""The HTTP server between agents and models: it passes calls through live and records every one of them."""

from whet.gateway.gateway import Gateway
from whet.gateway.session import Session
from whet.gateway.upstream import RETRIED, Model

__all__ = ["RETRIED", "Gateway", "Model", "Session"]
