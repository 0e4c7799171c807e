"""HTTP replies: a model as JSON, and the reason of a refusal."""

from collections.abc import Mapping

from pydantic import BaseModel
from starlette.responses import Response

from whet.client.models import Problem
from whet.serve.problems import Code, Refused

JSON = "application/json"
RETRY_AFTER_SEC = 5
"""What a client that comes too early is asked to wait, if nothing better is known."""


def json_reply(model: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A model as the body of a reply."""
    return Response(model.model_dump_json(), status, headers, JSON)


def problem_reply(refused: Refused, status: int | None = None) -> Response:
    """The reply to a request that is refused."""
    status = refused.code.status if status is None else status
    headers = {}
    if refused.code in {Code.BUSY, Code.DRAINING}:
        headers["Retry-After"] = str(round(refused.retry_after or RETRY_AFTER_SEC) or 1)
    if refused.code is Code.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return json_reply(Problem(error=str(refused), code=refused.code), status, headers)
