"""How REST refuses: every error is a `Problem`, whoever raised it."""

from json import JSONDecodeError
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.responses import Response

from whet.client.models import Problem
from whet.errors import UserError
from whet.serve.problems import Code, Refused
from whet.serve.replies import json_reply, problem_reply
from whet.validation_errors import SHOWN, describe_error, user_error

INTERNAL = "internal"
"""The code of a defect of the server."""


class JsonRequest(Request):
    """A request whose body is read by a parser that is quick, and bounded in depth."""

    async def json(self) -> Any:
        try:
            return from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            # The one error that FastAPI passes on with its text.
            raise JSONDecodeError(str(error), "", 0) from error


class JsonRoute(APIRoute):
    """A route that takes JSON and nothing else."""

    def get_route_handler(self) -> Any:
        handle = super().get_route_handler()
        takes_body = self.body_field is not None

        async def handle_json(request: Request) -> Response:
            request = JsonRequest(request.scope, request.receive)
            if takes_body and await request.body():
                _require_json(request.headers.get("content-type"))
            reply: Response = await handle(request)
            return reply

        return handle_json


def _require_json(given: str | None) -> None:
    kind = (given or "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise Refused(Code.INVALID, f"the header Content-Type is {given!r}; expected application/json")


def add_error_handlers(app: FastAPI) -> None:
    """Let every error of an application become a `Problem`."""
    app.exception_handler(Refused)(_on_refused)
    app.exception_handler(UserError)(_on_user_error)
    app.exception_handler(RequestValidationError)(_on_invalid)
    app.exception_handler(HTTPException)(_on_http_error)
    app.exception_handler(Exception)(_on_defect)


async def _on_refused(_: Request, refused: Refused) -> Response:
    return problem_reply(refused)


async def _on_user_error(_: Request, error: UserError) -> Response:
    return problem_reply(Refused(Code.INVALID, str(error)))


async def _on_invalid(request: Request, error: RequestValidationError) -> Response:
    model = _body_model(request)
    found = error.errors()
    lines = [_describe(detail, model) for detail in found[:SHOWN]]
    return problem_reply(Refused(Code.INVALID, str(user_error(lines, len(found) - len(lines)))))


def _body_model(request: Request) -> type[BaseModel]:
    """What the route expects as its body."""
    field = getattr(request.scope.get("route"), "body_field", None)
    found = field.field_info.annotation if field is not None else None
    return found if isinstance(found, type) and issubclass(found, BaseModel) else BaseModel


def _describe(detail: Any, model: type[BaseModel]) -> str:
    """One line for an error, which names the key and its value."""
    place, *parts = detail["loc"]
    if detail["type"] == "json_invalid":
        return f"the body is not JSON: {detail['ctx']['error']}"
    if place == "body" and not parts and detail["type"] == "missing":
        return "the body is missing; expected JSON"
    inner: Any = {**detail, "loc": tuple(parts)}
    return describe_error(inner, model) if place == "body" else f"{place}: {describe_error(inner, BaseModel)}"


async def _on_http_error(request: Request, error: HTTPException) -> Response:
    path = request.url.path
    match error.status_code:
        case 404:
            reply = problem_reply(Refused(Code.NOT_FOUND, f"there is nothing at {path[:200]}; see /openapi.json"))
        case 405:
            allowed = (error.headers or {}).get("Allow", "")
            why = f"{request.method} is not possible at {path[:200]}; expected one of: {allowed}"
            reply = problem_reply(Refused(Code.INVALID, why), 405)
            reply.headers["Allow"] = allowed
        case status:
            reply = problem_reply(Refused(Code.INVALID, str(error.detail)), status)
    return reply


async def _on_defect(_: Request, __: Exception) -> Response:
    return json_reply(Problem(error="the server failed; its log says why", code=INTERNAL), 500)
