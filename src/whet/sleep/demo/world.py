"""A developer's home and repository: commits with tests, sessions with a recurring correction, and a scripted model.

The model keeps the rule only when the memory file says it, so a night can find that out.
"""

import json
import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from whet.sleep.demo.transcripts import Ran, Said, Story, write_claude_code, write_codex

CHECK = "python3 check.py"
RULE = f"Always run `{CHECK}` before you say you are done."
FUNCTIONS = {
    "net": ("the price without tax", "price / 1.25"),
    "gross": ("the price with tax", "price * 1.25"),
    "tax": ("the tax in a price with tax", "price - price / 1.25"),
    "half": ("half the price", "price / 2"),
    "double": ("twice the price", "price * 2"),
    "cents": ("the price in cents", "round(price * 100)"),
    "rounded": ("the price without cents", "round(price)"),
    "is_free": ("whether the price is 0", "price == 0"),
    "is_dear": ("whether the price is above 100", "price > 100"),
    "label": ("the price with two decimals and EUR behind it", "f'{price:.2f} EUR'"),
    "digits": ("how many digits the whole price has", "len(str(int(price)))"),
    "fee": ("the fee of one percent", "price / 100"),
    "total": ("the price with the fee of one percent", "price + price / 100"),
    "saved": ("what a fifth off the price saves", "price / 5"),
}
"""What each commit adds: a function of a price."""
_CHECK_PROGRAM = """import ast, pathlib
for file in pathlib.Path().rglob("*.py"):
    ast.parse(file.read_text())
print("checked")
"""
_TEST = """import unittest

from shop.{name} import {name}


class Test{title}(unittest.TestCase):
    def test_{name}(self):
        for price in (0, 1, 50, 125.5, 2000):
            self.assertEqual({name}(price), {code})
"""


@dataclass(frozen=True, slots=True)
class World:
    """Where everything is."""

    home: Path
    repository: Path
    script: Path
    store: Path


def make_world(folder: Path, now: datetime) -> World:
    """Make the home, the repository and the script below a new folder."""
    world = World(folder / "home", folder / "home/shop", folder / "model.toml", folder / "store")
    make_repository(world.repository, now - timedelta(days=60))
    _make_sessions(world, now - timedelta(days=6))
    world.script.write_text(write_script(), encoding="utf-8")
    return world


def make_repository(folder: Path, at: datetime) -> None:
    for package in ("shop", "tests"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").touch()
    (folder / "check.py").write_text(_CHECK_PROGRAM, encoding="utf-8")
    (folder / "AGENTS.md").write_text("# shop\n\nPlain Python. The tests are in tests/.\n", encoding="utf-8")
    _git(folder, at, "init", "-q", "-b", "main")
    _commit(folder, at, "Start the shop")
    for number, (name, (what, code)) in enumerate(FUNCTIONS.items(), 1):
        (folder / f"shop/{name}.py").write_text(_function(name, code), encoding="utf-8")
        test = _TEST.format(name=name, title=name.title().replace("_", ""), code=code)
        (folder / f"tests/test_{name}.py").write_text(test, encoding="utf-8")
        _commit(folder, at + timedelta(days=number), _message(name, what))


def _function(name: str, code: str) -> str:
    return f"def {name}(price):\n    return {code}\n"


def _message(name: str, what: str) -> str:
    return f"Add a function {name}(price) in shop/{name}.py that gives {what}"


def _commit(folder: Path, at: datetime, message: str) -> None:
    _git(folder, at, "add", "-A")
    _git(folder, at, "-c", "user.name=dev", "-c", "user.email=dev@localhost", "commit", "-q", "-m", message)


def _git(folder: Path, at: datetime, *arguments: str) -> None:
    """git without the settings of the person who runs the demo."""
    times = {"GIT_AUTHOR_DATE": at.isoformat(), "GIT_COMMITTER_DATE": at.isoformat()}
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", **times}
    subprocess.run(["git", *arguments], cwd=folder, env=env, check=True, capture_output=True)


def _make_sessions(world: World, at: datetime) -> None:
    """Three sessions with the same correction, one with a wish for that session alone, and one without any."""
    tests = Ran("python3 -m unittest -q", 0, "OK")
    checked = Ran(CHECK, 0, "checked")
    edit = Ran("sed -i 's/1.25/1.20/' shop/*.py")
    stories = {
        "corrected once": (Said("Change the tax to 20 %.", (edit, tests)), Said(f"No. {RULE}", (checked,))),
        "corrected again": (
            Said("Change the fee to two percent.", (Ran("sed -i 's/100/50/' shop/fee.py"), tests)),
            Said(RULE, (checked, tests)),
        ),
        "corrected a third time": (
            Said("Name the currency in front of the price.", (edit, tests)),
            Said(f"I told you: {RULE[0].lower()}{RULE[1:]}", (checked,)),
        ),
        "a wish for once": (
            Said("Show me the first lines of the fee.", (Ran("head shop/fee.py"),)),
            Said("For this one, use cat instead of head.", (Ran("cat shop/fee.py"),)),
        ),
        "no correction": (Said("Does the suite pass?", (tests,), "Yes."),),
    }
    for day, (name, turns) in enumerate(stories.items()):
        story = Story(name, world.repository, at + timedelta(days=day), turns)
        write = write_codex if day % 2 else write_claude_code
        write(world.home, story)


def write_script() -> str:
    """The model writes each function and runs the tests. Where it has read the rule, it also runs the check."""
    scenes = []
    for name, (what, code) in FUNCTIONS.items():
        asked = re.escape(f"function {name}(price)")
        write = f"printf '%s' {shlex.quote(_function(name, code))} > shop/{name}.py && python3 -m unittest -q"
        for rule in (True, False):
            steps = [write, *([CHECK] if rule else [])]
            when = f"user = {_toml(asked)}" + (f", any = {_toml(re.escape(CHECK))}" if rule else "")
            scenes.append(_scene(when, steps, f"shop/{name}.py gives {what} now."))
    return "\n".join(scenes)


def _scene(when: str, commands: list[str], answer: str) -> str:
    replies = [
        f'[[scene.reply]]\ntools = [ {{ name = "bash", arguments = {{ command = {_toml(one)} }} }} ]\n'
        for one in commands
    ]
    return f"[[scene]]\nwhen = {{ {when} }}\n{''.join(replies)}[[scene.reply]]\ntext = {_toml(answer)}\n"


def _toml(text: str) -> str:
    """A text as TOML writes it. JSON has the same escapes."""
    return json.dumps(text)
