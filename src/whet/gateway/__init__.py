"""The HTTP server between agents and models: it passes calls through live and records every one of them.

Read `gateway.py` first, then `session.py` and `calls/`. `server.py` is the agents' side, `upstream/` the models' side,
`dialects/` and `translate.py` the wire formats, `guards/` what may be sent.
"""

from whet.gateway.gateway import Gateway
from whet.gateway.limits import Limits, Reached, Spent
from whet.gateway.model import Model
from whet.gateway.session import Session
from whet.gateway.upstream.pool import RETRIED

__all__ = ["RETRIED", "Gateway", "Limits", "Model", "Reached", "Session", "Spent"]
