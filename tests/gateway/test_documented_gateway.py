"""What docs/gateway.md lists is what the code does: losses, prices, metrics, recipes."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from whet.gateway.client_recipes import RECIPES
from whet.gateway.guards import chat, gemini, messages, responses
from whet.gateway.guards.checks import WITHHELD, FieldCheck, Permits, Report
from whet.gateway.metrics import Metrics
from whet.gateway.prices import Price
from whet.runs.store.reply_cache import CacheUse

REPOSITORY = Path(__file__).parents[2]
DOCUMENT = (REPOSITORY / "docs" / "gateway.md").read_text()
DIALECTS = REPOSITORY / "src" / "whet" / "gateway" / "dialects"

LISTS = {"chat": chat, "responses": responses, "messages": messages, "gemini": gemini}


def rows(heading: str) -> list[list[str]]:
    """The rows of the table that begins with this column."""
    table = re.search(rf"^\| {re.escape(heading)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", DOCUMENT, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()]


def quoted(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages", "gemini"])
def test_every_loss_in_translation_is_documented_and_no_other(dialect: str) -> None:
    lost_by_the_code = {text for file in (DIALECTS / dialect).glob("*.py") for text in losses(file)}
    documented = quoted(dict(rows("model | lost"))[dialect] + dict(rows("spoken"))[dialect])
    # What has no words of its own is the name of a field.
    assert documented == lost_by_the_code - {"…"}


def losses(file: Path) -> Iterator[str]:
    """The warnings that a file can give; what they are filled in with is `…`."""
    tree = ast.parse(file.read_text())
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For)]
    looped = {loop.target.id: loop.iter for loop in loops if isinstance(loop.target, ast.Name)}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=about, attr="append" | "name"), args=[said]) if _is_lost(about):
                yield from _words(looped.get(said.id, said) if isinstance(said, ast.Name) else said)
            case ast.AugAssign(target=about, value=said) if _is_lost(about):
                yield from _words(said)
            case ast.Assign(targets=[about], value=ast.ListComp() as said) if _is_lost(about):
                yield from _words(said)


def _is_lost(node: ast.expr) -> bool:
    match node:
        case ast.Name("lost") | ast.Attribute(attr="_lost"):
            return True
    return False


def _words(said: ast.expr) -> Iterator[str]:
    match said:
        case ast.Constant(str(text)):
            yield text
        case ast.JoinedStr(pieces):
            yield "".join(str(piece.value) if isinstance(piece, ast.Constant) else "…" for piece in pieces)
        case ast.Call(func=ast.Name("others"), args=[_, _, ast.Constant(str(prefix))]):
            yield f"{prefix}…"
        case ast.ListComp(elt=ast.Name(), generators=[each]):
            yield from _words(each.iter)
        case ast.ListComp(elt=element):
            yield from _words(element)
        case ast.Tuple(elements):
            for element in elements:
                yield from _words(element)
        case _:
            yield "…"


def test_the_metrics_are_those_that_are_served() -> None:
    served = set(re.findall(r"^# TYPE (\w+)", Metrics(Price(1, 1)).text(0), re.MULTILINE))
    assert {name for metric, *_ in rows("metric") for name in quoted(metric)} == served


def test_the_recipes_are_named() -> None:
    (sentence,) = re.findall(r"There are recipes for ([^.]+)\.", DOCUMENT)
    assert quoted(sentence) == set(RECIPES)


def test_the_uses_of_the_cache_are_named() -> None:
    assert {use.strip("`") for use, *_ in rows("`--cache`")} == set(CacheUse)


@pytest.mark.parametrize(("dialect", "fields"), [(name, lists.FIELDS) for name, lists in LISTS.items()])
def test_the_fields_that_pass_are_those_of_the_lists(dialect: str, fields: dict[str, FieldCheck]) -> None:
    passing, refused = next(cells for name, *cells in rows("dialect | fields that pass") if name == dialect)
    report = Report(Permits())
    allowed = set()
    for name, check in fields.items():
        try:
            withheld = check({"x": 1}, report) is WITHHELD and f"field {name}" in report.withheld
        except ValueError as error:
            withheld = "is not allowed here" in str(error)
            assert not withheld or name in quoted(refused)
        allowed |= set() if withheld else {name}
    assert quoted(passing) == allowed
