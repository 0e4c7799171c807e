"""Rules for the source of pages that a reader of the code would have to check by eye."""

import ast
import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import nodes

import whet
from whet.look.templates import make_environment
from whet.view.assets import SOURCES, STATIC, VENDOR, Assets
from whet.view.render import make_view_environment

SOURCE = Path(whet.__file__).parent
TEMPLATES = sorted(path for kind in ("html", "svg") for path in SOURCE.rglob(f"templates/*.{kind}"))
SCRIPTS = sorted(STATIC.glob("*.js"))
MARKUP = SOURCE / "look" / "markup.py"
WITH_STYLES = {"one_file.html", "report_page.html", "plot_file.svg"}
"""Pages that are one file: they hold their style sheet, and no script."""
SHELL = ("whet.css", "htmx.js", "theme.js", "view.js")
"""What every page loads."""

_JINJA = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_TAG = re.compile(r"<[a-z][^>]*>", re.IGNORECASE)


def tags(path: Path) -> Iterator[str]:
    """The start tags of a template, with one character in place of each expression."""
    html = _JINJA.sub(lambda match: "\x01" if match[0].startswith("{{") else " ", path.read_text())
    return (match[0] for match in _TAG.finditer(html))


def named(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in paths])


def test_all_templates_and_scripts_are_found() -> None:
    assert len(TEMPLATES) > 25
    assert {path.name for path in SCRIPTS} == {"gate.js", "theme.js", "view.js"}


@named(TEMPLATES)
def test_templates_have_no_inline_style_or_handler_and_quote_every_value(path: Path) -> None:
    for tag in tags(path):
        assert not re.search(r"[\s\"'](?:style|on\w+|srcdoc|formaction)\s*=", tag, re.IGNORECASE), tag
        assert not re.search(r"=\s*\x01", tag), f"a value without quotes: {tag}"
        assert not re.match(r"<(?:iframe|object|embed|base|form[^>]*javascript)", tag), tag
        assert "javascript:" not in tag


@named(TEMPLATES)
def test_scripts_of_templates_are_files_with_a_nonce_and_styles_are_files(path: Path) -> None:
    for tag in tags(path):
        if tag.startswith("<script"):
            assert 'src="' in tag, tag
            assert "nonce=" in tag, tag
    assert "<style" not in path.read_text() or path.name in WITH_STYLES


@named(TEMPLATES)
def test_elements_that_htmx_reads_carry_the_nonce(path: Path) -> None:
    for tag in tags(path):
        if set(re.findall(r"\bhx-[a-z:-]+", tag)) - {"hx-ignore", "hx-nonce"}:
            assert 'hx-nonce="\x01"' in tag, tag


@named(TEMPLATES)
def test_templates_never_switch_escaping_off(path: Path) -> None:
    environment = make_view_environment()
    tree = environment.parse(path.read_text())
    assert not [one for one in tree.find_all(nodes.Filter) if one.name in {"safe", "forceescape", "tojson", "xmlattr"}]
    assert not list(tree.find_all((nodes.MarkSafe, nodes.MarkSafeIfAutoescape, nodes.EvalContextModifier)))
    assert "autoescape" not in path.read_text()


def test_everything_is_escaped_whatever_the_name_of_the_template() -> None:
    for environment in (make_view_environment(), make_environment()):
        assert environment.autoescape is True
        assert environment.from_string("{{ a }}").render(a="<'\">") == "&lt;&#39;&#34;&gt;"
        marked = environment.from_string('<p title="{{ a }}">{{ a }}</p>').render(a="\u202e")
        assert marked == '<p title="⟨U+202E⟩">⟨U+202E⟩</p>'


def test_only_one_module_makes_markup_and_only_one_an_environment() -> None:
    makers = {"Markup": {MARKUP}, "Environment": {SOURCE / "look" / "templates.py"}}
    found: dict[str, set[Path]] = {name: set() for name in makers}
    for path in SOURCE.rglob("*.py"):
        if (text := path.read_text()) and ("jinja2" in text or "markupsafe" in text):
            for name in found.keys() & called_names(ast.parse(text)):
                found[name].add(path)
    assert found == makers


def called_names(tree: ast.AST) -> set[str]:
    """The names of all that a module calls."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in calls}


def test_no_other_module_defines_how_an_object_becomes_html() -> None:
    for path in SOURCE.rglob("*.py"):
        assert "__html__" not in path.read_text(), path


@named(SCRIPTS)
def test_scripts_parse_no_html_and_evaluate_no_text(path: Path) -> None:
    code = re.sub(r"//.*", "", path.read_text())
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|setHTML|srcdoc"
        r"|\beval\b|\bFunction\b|\bimport\s*\(|setTimeout\(\s*[\"'`]|setInterval\(\s*[\"'`]|javascript:|trustedTypes"
        r"|setAttribute\(\s*[\"']on|\.on[a-z]+\s*=[^=>]"
    )
    assert re.findall(forbidden, code) == []


def test_vendored_files_are_those_of_the_manifest() -> None:
    manifest = json.loads((VENDOR / "manifest.json").read_text())
    for one in manifest:
        assert hashlib.sha256((VENDOR / one["file"]).read_bytes()).hexdigest() == one["sha256"], one["file"]
        assert one["version"], one
        assert one["licence"], one
    listed = {one["file"] for one in manifest} | {one["licence_file"] for one in manifest} | {"manifest.json"}
    assert {path.name for path in VENDOR.iterdir()} == listed


def test_served_files_are_listed_hashed_and_small() -> None:
    assets = Assets()
    for name in SOURCES:
        digest = hashlib.sha256(assets.body(name)).hexdigest()
        assert assets.address(name) == f"/static/{name}?v={digest[:16]}"
    assert sum(path.stat().st_size for path in STATIC.rglob("*") if path.is_file()) <= 350_000
    shell = [assets.body(name) for name in SHELL]
    assert sum(map(len, shell)) <= 120_000
    assert sum(len(gzip.compress(body, 9)) for body in shell) <= 45_000


def test_styles_load_nothing_from_elsewhere() -> None:
    style = Assets().body("whet.css").decode()
    assert "@import" not in style
    assert "expression(" not in style
    assert all(
        not match.startswith(("http", "//", "data:")) for match in re.findall(r"url\(\s*[\"']?([^)\"']+)", style)
    )
