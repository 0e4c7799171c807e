"""What the server offers, and its state: tasks, agents, skills, models, pauses."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from whet.client.models import (
    AgentView,
    ModelUpdate,
    ModelView,
    PauseRequest,
    ServiceView,
    SkillView,
    TaskView,
)
from whet.serve.problems import Code, Refused
from whet.serve.rest.errors import JsonRoute
from whet.serve.rest.parts import CallerGiven, PartsGiven, ServiceGiven
from whet.serve.rest.streams import wait_reply

router = APIRouter(prefix="/v1", tags=["server"], route_class=JsonRoute)


@router.get("/service")
async def service_view(service: ServiceGiven, caller: CallerGiven) -> ServiceView:
    """What is running and queued."""
    return service.view(caller)


@router.get("/tasks")
async def tasks(service: ServiceGiven, caller: CallerGiven) -> list[TaskView]:
    """The tasks of the served set."""
    return await service.tasks(caller)


@router.get("/tasks/{name:path}")
async def task(name: str, service: ServiceGiven, caller: CallerGiven) -> TaskView:
    """A task of the served set."""
    found = next((one for one in await service.tasks(caller) if one.id == name), None)
    if found is None:
        raise Refused(Code.NOT_FOUND, f"no task {name[:200]!r} is served; see /v1/tasks")
    return found


@router.get("/agents")
async def agents(service: ServiceGiven, caller: CallerGiven) -> list[AgentView]:
    """The agents that a request may name."""
    return await service.agents(caller)


@router.get("/skills")
async def skills(service: ServiceGiven, caller: CallerGiven) -> list[SkillView]:
    """The skills that a request may name."""
    return await service.skills(caller)


@router.get("/models")
async def models(service: ServiceGiven, caller: CallerGiven) -> list[ModelView]:
    """The models that a request may name."""
    return await service.models(caller)


@router.put("/models/{name:path}")
async def update_model(name: str, update: ModelUpdate, service: ServiceGiven, caller: CallerGiven) -> ModelView:
    """Change the endpoint of a model and the version of its weights. Needs the scope admin."""
    return await service.update_model(name, update, caller)


@router.post("/pause", response_model=ServiceView)
async def pause(request: PauseRequest, parts: PartsGiven, caller: CallerGiven) -> Response:
    """Start no more rollouts, and wait for those that run, or end them. Needs the scope admin."""
    at_once = request.model_copy(update={"wait_sec": 0})
    return await wait_reply(
        parts,
        lambda: parts.service.pause(at_once, caller),
        lambda _: parts.service.pause(request, caller),
        request.wait_sec,
    )


@router.post("/resume")
async def resume(
    service: ServiceGiven, caller: CallerGiven, model: Annotated[str | None, Query(max_length=200)] = None
) -> ServiceView:
    """Start rollouts again. Needs the scope admin."""
    return await service.resume(caller, model)
