"""The report as one HTML page with the plots in it. It loads nothing and has no script."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from whet.skills.report.svg import DARK, FONT, LIGHT, variables

_STYLE = f"""
:root{{color-scheme:light dark;{variables(LIGHT)}}}
@media(prefers-color-scheme:dark){{:root{{{variables(DARK)}}}}}
body{{margin:0 auto;max-width:48rem;padding:1.5rem 1rem 4rem;background:var(--paper);color:var(--ink);
font:16px/1.55 {FONT}}}
h1{{font-size:1.7rem;line-height:1.25;margin:.5rem 0 1rem}}
h2{{font-size:1.2rem;margin:2.5rem 0 .75rem;padding-bottom:.3rem;border-bottom:1px solid var(--grid)}}
h1+p{{font-size:1.08rem}}
figure,.wide{{margin:1rem 0;overflow-x:auto}}
figure svg{{display:block;box-sizing:border-box;
width:100%;min-width:38rem;height:auto;border:1px solid var(--grid);border-radius:6px}}
table{{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}}
th,td{{text-align:left;padding:.3rem .9rem .3rem 0;border-bottom:1px solid var(--grid);vertical-align:top}}
th{{font-weight:600;color:var(--faint)}}
td.end,th.end{{text-align:right}}
code{{font:.88em ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;overflow-wrap:anywhere}}
td code{{white-space:nowrap}}
pre{{overflow-x:auto;padding:.8rem 1rem;border:1px solid var(--grid);border-radius:6px}}
"""


def render_page(text: str, pictures: Mapping[str, str]) -> str:
    """Render Markdown as a page. `pictures` maps image addresses in the text to SVG."""
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    reader.add_render_rule("image", _render_picture)
    reader.add_render_rule("table_open", lambda *_: '<div class="wide"><table>')
    reader.add_render_rule("table_close", lambda *_: "</table></div>")
    title = text.splitlines()[0].lstrip("# ")
    head = (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n"
    )
    return f"{head}{reader.render(text, {'pictures': pictures})}"


def escape_cell(text: str) -> str:
    """Escape a text for a cell of a Markdown table.

    >>> escape_cell("a | *b*")
    'a \\\\| \\\\*b\\\\*'
    """
    return re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", " ".join(text.split()))


def _render_picture(_: Any, tokens: Sequence[Token], place: int, __: Any, env: Mapping[str, Mapping[str, str]]) -> str:
    return f"<figure>{env['pictures'][str(tokens[place].attrs['src'])]}</figure>"
