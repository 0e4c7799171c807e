"""Environment variables whose values a task takes from the host."""

import re
from collections.abc import Mapping

from whet.errors import UserError

_TEMPLATE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\}", re.DOTALL)


def resolve_env(env: Mapping[str, str], host: Mapping[str, str], where: str) -> dict[str, str]:
    """Fill the templates in the variables from the host. A template must be the whole value.

    >>> resolve_env({"MODE": "${MODE:-fast}", "NOTE": "costs ${PRICE}"}, {}, "task 'a'")
    {'MODE': 'fast', 'NOTE': 'costs ${PRICE}'}
    """
    return {name: _resolve(name, value, host, where) for name, value in env.items()}


def _resolve(name: str, value: str, host: Mapping[str, str], where: str) -> str:
    template = _TEMPLATE.fullmatch(value)
    if template is None:
        return value
    source, default = template.groups()
    if source in host:
        return host[source]
    if default is None:
        raise UserError(
            f"{where}: variable '{name}' is '{value}', but {source} is not set; "
            f"expected {source} in the environment, or a default: ${{{source}:-default}}"
        )
    return str(default)
