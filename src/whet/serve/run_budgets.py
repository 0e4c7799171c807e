"""How much of a caller's limits a whole run takes: it is set aside when the run begins, and settled when it ends."""

from dataclasses import fields
from typing import Any

from whet.client.models import RunRequest
from whet.exchange import Usage
from whet.gateway import Limits
from whet.gateway.limits import Spent
from whet.serve.problems import Code, Refused


def find_limits(all_together: Limits, spent: Spent, request: RunRequest) -> Limits:
    """What a run may use: the least of what the request names and what is left of the limits that it shares with other
    work of its caller. Refused when nothing is left."""
    usage = spent.usage
    used = {
        "turns": spent.turns,
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "cost": spent.cost,
    }
    wanted = {"total_tokens": request.max_tokens, "cost": request.max_cost}
    found: dict[str, Any] = {}
    for name, so_far in used.items():
        limit = getattr(all_together, name)
        left = None if limit is None else limit - so_far
        if left is not None and left <= 0:
            raise Refused(Code.SPENT, f"the limit on {name.replace('_', ' ')} is used up: {so_far:g} of {limit:g}")
        found[name] = min((one for one in (left, wanted.get(name)) if one is not None), default=None)
    return Limits(**found)


def reserve(all_together: Limits, limits: Limits) -> Spent:
    """The most that a run with these limits can use of the limits that it shares."""
    most = {
        one.name: getattr(limits, one.name) or 0 if getattr(all_together, one.name) is not None else 0
        for one in fields(limits)
    }
    # Input and output together are at least what the run may use of each limit, and of their sum.
    tokens = Usage(input=max(most["input_tokens"], most["total_tokens"]), output=most["output_tokens"])
    return Spent(turns=most["turns"], usage=tokens, cost=most["cost"])


def subtract(spent: Spent, reserved: Spent) -> Spent:
    """What is to be counted when the reservation ends: it is negative where less was used.

    >>> subtract(Spent(cost=1.0), Spent(cost=5.0)).cost
    -4.0
    """
    mine, theirs = spent.usage, reserved.usage
    usage = Usage(mine.input - theirs.input, mine.output - theirs.output)
    return Spent(spent.turns - reserved.turns, usage, spent.cost - reserved.cost)
