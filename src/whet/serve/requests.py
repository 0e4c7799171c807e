"""From a request to what its rollouts need: a task, an agent, a model and a skill that the server offers."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError

from whet.client.models import Endpoint, OnFailure, OnStraddle, Reply, RolloutRequest
from whet.errors import UserError, did_you_mean
from whet.gateway import Model
from whet.rollout.resources import RunResources
from whet.runs.config import NO_MODEL, ModelConfig
from whet.runs.options import MODEL_FREE
from whet.runs.store.served import FROM_REQUEST
from whet.scoring import judges_of
from whet.serve.policies import REPORTING
from whet.serve.problems import Code, Refused
from whet.skill import Skill
from whet.tasks import Task, TaskLimits
from whet.tasks.judges import AnyJudge, MathSpec, asks_model
from whet.tasks.rows import with_digest
from whet.validation_errors import explain

NO_SKILL = "none"
"""The name that stands for no skill."""
SAFE_JUDGES = frozenset(
    {"verify", "exact", "contains", "choice", "number", "json", "rules", "math", "rubric", "diff", "outcome"}
)
"""Judges that a client may bring along: they run no code of the client's on the server, and read none of its files."""
TASK_NAME = 100
"""Characters of a client's name for a task that the task's id begins with."""
MOST_NAMED = 50
"""Names that an error lists."""
SMALL = 32 << 10
"""Characters of a request that is small."""
SMALL_COMMANDS = 50
_HIDDEN = {"endpoint": {"api_key"}}
"""What of a request is never written."""


class Terms(Reply):
    """The parts of a request that are needed wherever its rollouts are shown."""

    task_id: str = ""
    metadata: dict[str, str] = Field(default_factory=dict)
    on_failure: OnFailure = OnFailure.DROP
    retries: int = 2
    min_group: int = 1
    max_staleness: int | None = None
    on_straddle: OnStraddle = OnStraddle.MARK
    needs_key: bool = False
    """It came with a key for its model, which is in memory only."""
    reports_weights: bool = False
    """The model's engine says which weights it has."""


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request whose names are resolved."""

    task: Task
    agent: str
    model: str
    """As the plan names it."""
    skill: Skill | None
    endpoint: Endpoint | None
    """The model, if the caller brings one along. Without its key."""
    seed: int | None
    terms: Terms


@dataclass(frozen=True, slots=True)
class Offer:
    """What requests may name."""

    tasks: Mapping[str, Task]
    agents: tuple[str, ...]
    """The default first."""
    models: tuple[str, ...]
    skills: Mapping[str, Skill]
    default_skill: Skill | None
    resources: RunResources

    def prepare(self, request: RolloutRequest) -> PreparedRequest:
        """What the rollouts of a request need. Refused when the server does not offer it."""
        agent = _choose("agent", request.agent, self.agents)
        model = self._model(request, agent)
        brought = request.endpoint or self.resources.models.get(model, NO_MODEL)
        return PreparedRequest(
            task=self._task(request),
            agent=agent,
            model=model,
            skill=self._skill(request.skill),
            endpoint=request.endpoint and request.endpoint.model_copy(update={"api_key": None}),
            seed=request.seed,
            terms=terms_of(request, brought.capture),
        )

    def _task(self, request: RolloutRequest) -> Task:
        if request.task is None:
            task = describe_task(request)
            self._check_judges(task)
            return task
        name = _choose("task", request.task, self.tasks)
        task = self.tasks[name]
        if request.limits is None:
            return task
        given = request.limits.model_dump(exclude_unset=True)
        return task.model_copy(update={"limits": TaskLimits(**{**task.limits.model_dump(), **given})})

    def _check_judges(self, task: Task) -> None:
        """Refuse judges of a client that could run its code on the server, or call a model that is not offered."""
        for judge in task.judge:
            _refuse_unsafe(judge)
            asked = asks_model(judge)
            if asked is None:
                continue
            offered = self.resources.judge_models
            if asked.model is None and self.resources.judge_model is None:
                raise Refused(Code.INVALID, f"judge '{judge.kind}' asks a model, and this server has no judge model")
            if asked.model is not None and asked.model not in offered:
                raise Refused(
                    Code.INVALID, f"unknown judge model '{asked.model}'; {did_you_mean(asked.model, offered)}"
                )
        try:
            judges_of(task)
        except UserError as error:
            raise Refused(Code.INVALID, str(error)) from error

    def _model(self, request: RolloutRequest, agent: str) -> str:
        if request.endpoint is not None:
            return name_endpoint(request.endpoint)
        if request.model is None and getattr(self.resources.agents[agent], "kind", "") in MODEL_FREE:
            return self.models[0] if self.models else NO_MODEL.name
        if not self.models:
            raise Refused(Code.INVALID, "this server offers no model; expected 'endpoint'")
        return _choose("model", request.model, self.models)

    def _skill(self, name: str | None) -> Skill | None:
        if name is None:
            return self.default_skill
        if name == NO_SKILL:
            return None
        return self.skills[_choose("skill", name, [*self.skills, NO_SKILL])]


def terms_of(request: RolloutRequest, capture: str) -> Terms:
    """The parts of a request that views need."""
    given = request.model_dump(include=set(Terms.model_fields) & set(RolloutRequest.model_fields))
    needs_key = request.endpoint is not None and request.endpoint.api_key is not None
    return Terms(**given, needs_key=needs_key, reports_weights=capture in REPORTING)


def is_small(request: RolloutRequest) -> bool:
    """Whether a request takes less time to encode and to check than a thread takes to be called."""
    if request.files or request.judge or request.tools or (request.endpoint and request.endpoint.set):
        return False
    texts = [request.instruction, request.answer, request.workdir, *request.metadata.values()]
    commands = [*request.setup, *request.verify]
    return len(commands) <= SMALL_COMMANDS and sum(len(one or "") for one in [*texts, *commands]) <= SMALL


def encode_request(request: RolloutRequest) -> bytes:
    """A request as it is stored: JSON without keys. Refused when it holds text that cannot be stored."""
    try:
        body = request.model_dump(mode="json", exclude=_HIDDEN, exclude_unset=True)
        return json.dumps(body, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:  # lone surrogates
        raise Refused(Code.INVALID, "the request holds text that is not Unicode") from error


def decode_request(body: bytes) -> RolloutRequest:
    """What `encode_request` wrote."""
    return RolloutRequest.model_validate_json(body)


def describe_task(request: RolloutRequest) -> Task:
    """The task that a request describes. The same description has the same id."""
    fields = {
        "instruction": request.instruction,
        "setup": request.setup,
        "verify": request.verify,
        "files": request.files,
        "answer": request.answer,
        "judge": [_move_into_box(judge) for judge in request.judge],
        "workdir": request.workdir,
        "tools": request.tools,
        "keep": request.keep,
        "limits": request.limits,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        task = with_digest(Task.model_validate({"id": "-", "origin": FROM_REQUEST, **given}))
    except ValidationError as error:
        raise Refused(Code.INVALID, explain(error, "request", Task)[0]) from error
    name = re.sub(r"[^\w.-]+", "-", request.task_id)[:TASK_NAME].strip("-") or "task"
    return task.model_copy(update={"id": f"{name}-{task.digest[:12]}"})


def name_endpoint(endpoint: Endpoint) -> str:
    """The name of a model that a client brings along.

    >>> name_endpoint(Endpoint(base_url="http://10.0.0.5:8000/v1", model="qwen"))
    'qwen@10.0.0.5:8000'
    """
    return f"{endpoint.model}@{urlsplit(endpoint.base_url).netloc.rpartition('@')[2]}"


def open_endpoint(endpoint: Endpoint, secret: SecretStr | None) -> Model:
    """A model that a client brings along, as the gateway calls it with this key."""
    name = name_endpoint(endpoint)
    try:
        config = ModelConfig(
            url=endpoint.base_url,
            name=endpoint.model,
            dialect=endpoint.dialect,
            capture=endpoint.capture,
            set=endpoint.set,
            max_tokens=endpoint.max_tokens,
        )
    except ValidationError as error:
        raise Refused(Code.INVALID, explain(error, "endpoint", ModelConfig)[0]) from error
    key = secret.get_secret_value() if secret is not None else None
    if key is not None and not key.isprintable():
        raise Refused(Code.INVALID, "key 'endpoint.api_key' holds a character that cannot be sent; expected one line")
    return Model(
        name=name,
        url=endpoint.base_url,
        upstream_name=endpoint.model,
        key=key or None,
        dialect=config.dialect,
        capture=config.capture,
        set=tuple((field, json.dumps(value).encode()) for field, value in config.set.items()),
        max_tokens=config.max_tokens,
    )


def _move_into_box(judge: AnyJudge) -> AnyJudge:
    """A judge that compares with what a client wrote does so in the box, where nothing else can be reached."""
    return judge.model_copy(update={"where": "box"}) if isinstance(judge, MathSpec) else judge


def _refuse_unsafe(judge: AnyJudge) -> None:
    if judge.kind not in SAFE_JUDGES:
        known = ", ".join(sorted(SAFE_JUDGES))
        raise Refused(Code.INVALID, f"judge '{judge.kind}' is not for requests; expected one of: {known}")


def _choose(what: str, name: str | None, known: Collection[str]) -> str:
    """The name, or the default. Refused when it is not known."""
    if name is None:
        return next(iter(known))
    if name not in known:
        raise Refused(Code.NOT_FOUND if what == "task" else Code.INVALID, _unknown(what, name, known))
    return name


def _unknown(what: str, name: str, known: Collection[str]) -> str:
    if len(known) > MOST_NAMED:
        known = [one for one in known if one[:1] == name[:1]][:MOST_NAMED]
    return f"unknown {what} '{name}'; {did_you_mean(name, known)}"
