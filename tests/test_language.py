"""Plain English: phrases that a reader has to read twice do not come back into help, errors, reports and docs."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.whet_program import REPOSITORY
from whet.cli import VERBS, load_verb

SOURCE = REPOSITORY / "src" / "whet"
DOCUMENTS = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
BANNED = re.compile(
    r"\b(in vain|for want of|of then|carries nothing|tried to be|so many|so much|so often|goes on|go on with|"
    r"whoever|whomever|is no verdict|says nothing of|all the same with|to hold against|held against|hold before)\b",
    re.IGNORECASE,
)
IN_HELP = re.compile(r"\b(told|tells?|said|asked|by default as|what is done)\b", re.IGNORECASE)
FLAG = re.compile(r"(?<![\w`-])--[a-z][a-z-]+")


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module but for docstrings: what it prints, raises, stores or sends."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    documented = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.lineno, node.value


def help_texts() -> Iterator[tuple[str, str]]:
    for verb in VERBS:
        command = load_verb(verb)
        for name, one in {verb: command, **getattr(command, "commands", {})}.items():
            yield name, one.help or ""
            yield from ((f"{name} {parameter.name}", parameter.help or "") for parameter in one.params)


def test_help_is_plain_english_and_complete() -> None:
    found = [(name, text) for name, text in help_texts() if BANNED.search(text) or IN_HELP.search(text)]
    assert found == []
    hidden = {"no_user_config", "context"}
    assert [name for name, text in help_texts() if not text and name.split()[-1] not in hidden] == []


def test_errors_reports_and_prompts_are_plain_english() -> None:
    found = [
        f"{file.relative_to(SOURCE)}:{line}: {text}"
        for file in sorted(SOURCE.rglob("*.py"))
        if file.name != "earlier_words.py"  # what certificates of earlier versions say
        for line, text in texts(file)
        if BANNED.search(text)
    ]
    assert found == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_are_plain_english(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if BANNED.search(line)] == []


def raised_texts(file: Path) -> Iterator[tuple[int, str]]:
    """The texts of the errors that a module raises for the user."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "UserError":
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def test_only_the_command_line_names_flags_in_errors() -> None:
    """Errors name options; a Python program has no flags. A whole command to type may be named."""
    found = [
        f"{file.relative_to(SOURCE)}:{line}: {text}"
        for file in sorted(SOURCE.rglob("*.py"))
        if file.parent.name != "cli"
        for line, text in raised_texts(file)
        if FLAG.search(text) and "whet " not in text
    ]
    assert found == []
