"""`whet serve`: rollouts as a service, over REST, OpenEnv and MCP."""

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from whet.cli.options import Json, Layout, takes
from whet.cli.output import command, say
from whet.cli.serve_stdio import McpStdio, serve_client
from whet.serve.options import ServeOptions

if TYPE_CHECKING:
    from whet.client.models import RolloutView
    from whet.serve.serving import Draining, ServeEvent, Serving

LAYOUT = Layout(
    arguments=("tasks",),
    left_out=("resume",),
    flags={"agents": "--agent", "models": "--model", "skills": "--skill"},
    limits=("max_cost", "max_tokens"),
)


@takes(ServeOptions, LAYOUT)
def serve(
    options: ServeOptions,
    as_json: Json = False,
    mcp_stdio: McpStdio = False,
) -> None:
    """Serve rollouts to trainers, agents and programs. They are kept in a folder, as those of `whet run` are.

    \b
    whet serve tasks --agent opencode --model policy
    whet serve --model openai/gpt-5 --host 0.0.0.0 --tokens tokens.toml
    """
    if mcp_stdio:
        serve_client(lambda: options)
        return
    from whet import api
    from whet.cli.run import complete_options

    options, config = complete_options(options)
    api.run_server(options=options, config=config, watch=_print_json if as_json else _print)


def _print(event: "ServeEvent") -> None:
    from whet.client.models import RolloutView
    from whet.serve.serving import Serving

    if isinstance(event, Serving):
        _print_serving(event)
    elif isinstance(event, RolloutView):
        say(_describe_rollout(event))
    else:
        _print_draining(event)


def _print_serving(serving: "Serving") -> None:
    from whet.look.numbers import plural

    tasks = f"serves {plural(serving.tasks, 'task', 'tasks')}" if serving.tasks else "serves tasks that clients bring"
    model = f" on {', '.join(serving.models)}" if serving.models else ""
    say(f"{serving.url} {tasks} with {', '.join(serving.agents)}{model}")
    if serving.skills:
        say(f"  skills: {', '.join(serving.skills)}")
    callers = plural(serving.tokens, "token is", "tokens are") if serving.tokens else ""
    say(f"  {callers} known" if callers else "  everybody on this machine may call it, and nobody else")
    if serving.waiting:
        say(f"  {plural(serving.waiting, 'rollout', 'rollouts')} of an earlier start are not done and run now")
    say(f"  rollouts are kept in {serving.folder}; Ctrl-C drains and ends it")
    say("try it:")
    token = ' -H "Authorization: Bearer $WHET_SERVE_TOKEN"' if serving.tokens else ""
    body = json.dumps({"instruction": "Write 42 to answer", "verify": ["grep -qx 42 answer"]})
    say(f"  curl '{serving.url}/v1/rollouts?wait=600'{token} -H 'Content-Type: application/json' -d '{body}'")
    say(f"  {command('show', str(serving.folder))}")


def _describe_rollout(view: "RolloutView") -> str:
    from whet.look.numbers import duration, plural

    shown = f"{view.reward:.2f}" if view.reward is not None else str(view.outcome)
    took = [duration(sum(view.seconds.values())), plural(view.usage.calls, "call", "calls")]
    why = f"{view.reason} " if view.reason else ""
    cells = (time.strftime("%H:%M:%S"), view.id, shown, view.task, view.agent, view.model, f"{why}({', '.join(took)})")
    return "  ".join(cells)


def _print_draining(event: "Draining") -> None:
    from whet.look.numbers import duration, plural

    running = plural(event.running, "rollout", "rollouts")
    say(f"stopping: {running} may run for {duration(event.seconds)} more; Ctrl-C ends them at once")


def _print_json(event: "ServeEvent") -> None:
    from whet.client.models import RolloutView
    from whet.serve.serving import Serving

    if isinstance(event, RolloutView):
        # Answers and outputs are a stranger's, and long; they are fetched by id.
        fields: dict[str, Any] = event.model_dump(mode="json", exclude={"answer", "setup", "verify", "changed"})
        _print_line("rollout", fields)
    else:
        _print_line("serving" if isinstance(event, Serving) else "draining", asdict(event))


def _print_line(kind: str, fields: dict[str, Any]) -> None:
    print(json.dumps({"event": kind, **fields}, default=str), flush=True)
