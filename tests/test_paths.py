"""Where whet keeps what lasts longer than a run."""

import os
from pathlib import Path

import pytest

from whet.paths import install_folder, user_cache, user_state


@pytest.mark.parametrize(
    ("env", "cache", "state"),
    [
        ({}, ".cache/whet", ".local/state/whet"),
        ({"XDG_CACHE_HOME": "here", "XDG_STATE_HOME": ""}, ".cache/whet", ".local/state/whet"),
        ({"XDG_CACHE_HOME": "/c", "XDG_STATE_HOME": "/s"}, "/c/whet", "/s/whet"),
    ],
)
def test_xdg_variables_move_the_users_folders(env: dict[str, str], cache: str, state: str) -> None:
    assert user_cache(env) == Path.home() / cache
    assert user_state(env) == Path.home() / state


@pytest.mark.parametrize(("user", "expected"), [(0, "/var/cache/whet/agents"), (1000, "/c/whet/agents")])
def test_root_installs_where_other_users_can_enter(monkeypatch: pytest.MonkeyPatch, user: int, expected: str) -> None:
    monkeypatch.setattr(os, "getuid", lambda: user)
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    monkeypatch.delenv("WHET_AGENTS", raising=False)
    assert install_folder("agents") == Path(expected)
    monkeypatch.setenv("WHET_AGENTS", "/mine")
    assert install_folder("agents") == Path("/mine")
