"""Tokens of the Azure account that this machine is logged in with."""

import asyncio
import importlib
import time
from collections.abc import Callable
from typing import Any

from whet.errors import UserError

AZURE_SCOPE = "https://cognitiveservices.azure.com/.default"
AZURE_MARGIN_SEC = 300.0
"""How long before it expires a token is replaced."""
AZURE_LOGIN_SEC = 60.0


class AzureLogin:
    """Fetches a token, and keeps it until shortly before it expires."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._token = ""
        self._good_until = 0.0

    async def token(self) -> str:
        """A token that is valid for some minutes. UserError when nobody is logged in."""
        async with self._one_at_a_time:
            if self._clock() >= self._good_until:
                try:
                    async with asyncio.timeout(AZURE_LOGIN_SEC):
                        self._token, ends = await asyncio.to_thread(_new_azure_token)
                except TimeoutError as error:
                    raise UserError(f"Azure gave no token within {AZURE_LOGIN_SEC:g} seconds") from error
                self._good_until = ends - AZURE_MARGIN_SEC
            return self._token


def _new_azure_token() -> tuple[str, float]:
    """A token, and when it expires in seconds since the epoch."""
    try:
        # Large, and few need it: it is an extra.
        identity: Any = importlib.import_module("azure.identity")
        errors: Any = importlib.import_module("azure.core.exceptions")
    except ModuleNotFoundError as error:
        raise UserError(
            "a login at Azure needs a package that is not installed; install it: pip install 'whet[azure]', "
            "or set a key: AZURE_OPENAI_API_KEY for azure/MODEL, 'key_env' for a model in whet.toml"
        ) from error
    try:
        with identity.DefaultAzureCredential() as credential:
            granted = credential.get_token(AZURE_SCOPE)
    except errors.AzureError as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"Azure gave no token: {reason}; log in, for example with 'az login'") from error
    return str(granted.token), float(granted.expires_on)
