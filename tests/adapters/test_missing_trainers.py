"""Adapters of trainers that are not installed name their extra."""

import importlib
import sys

import pytest

from whet.errors import UserError


@pytest.mark.parametrize(
    ("name", "package"),
    [("skyrl", "skyrl"), ("tinker", "tinker_cookbook"), ("verifiers", "verifiers"), ("verl", "verl")],
)
def test_an_adapter_names_the_extra_of_its_trainer(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, f"whet.adapters.{name}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"need one more package: pip install 'whet\[{name}\]'"):
        importlib.import_module(f"whet.adapters.{name}")
