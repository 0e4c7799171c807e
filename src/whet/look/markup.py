"""Hostile text as HTML. This is the only module that makes `Markup`, and text enters it through one function.

Nothing is stripped. What a reader could not see stands as a mark, `⟨U+202E⟩`, in a span of the class `unseen`.
Styles of all classes are in `markup.css`.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES, _TokenType

from whet.look.unseen import UNSEEN_RUN, code_point, mark_run, mark_unseen

MOST_CODE = 100_000
"""Longer texts are not coloured."""
MOST_MARKDOWN = 50_000
"""Longer texts are shown as they are."""
MOST_LINE = 2_000
"""Texts with a longer line are not coloured: some patterns of Pygments take quadratic time on such lines."""

_LEXERS = {
    "bash": ("sh", "bash"),
    "c": ("c", "h"),
    "cpp": ("cc", "cpp", "cxx", "hpp"),
    "css": ("css",),
    "diff": ("diff", "patch"),
    "go": ("go",),
    "ini": ("cfg", "ini"),
    "java": ("java",),
    "javascript": ("cjs", "js", "jsx", "mjs"),
    "json": ("ipynb", "json", "jsonl"),
    "python": ("py", "pyi"),
    "ruby": ("rb",),
    "rust": ("rs",),
    "sql": ("sql",),
    "toml": ("toml",),
    "typescript": ("ts", "tsx"),
    "yaml": ("yaml", "yml"),
}
_LEXER_OF = {suffix: lexer for lexer, suffixes in _LEXERS.items() for suffix in suffixes}

_ESCAPE = re.compile(
    "\x1b\\[(?P<colours>[0-9;:]*)m"
    "|(?P<other>\x1b\\[[0-?]*[ -/]*[@-~]"  # cursor, erase, modes
    "|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)"  # titles, links, clipboard
    "|\x1b[ -/]*[0-~])"
)
_MOST_DIGITS = 3
_FLAGS = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike"}
_UNSET = {22: {"bold", "dim"}, 23: {"italic"}, 24: {"underline"}, 27: {"inverse"}, 29: {"strike"}}
_HUNK = re.compile(r"@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
_FILE_LINES = ("--- ", "+++ ", "diff ", "index ", "new file", "deleted file", "rename ", "similarity ", "Binary files")


def visible(text: str) -> Markup:
    """A text with its hidden characters as marks.

    >>> visible("a<b\\u202e")
    Markup('a&lt;b<span class="unseen">⟨U+202E⟩</span>')
    """
    return _markup(_escape(text))


def exact(text: object) -> Markup:
    """A text without marks, for values of forms: it is sent back and must be found again."""
    return _markup(str(escape(str(text))))


def mark_value(value: object) -> object:
    """What a template writes. Hidden characters of a text are marked wherever it stands, also in attributes."""
    return mark_unseen(value) if type(value) is str else value


def marks(text: str) -> tuple[str, ...]:
    """The hidden characters of a text by name, each once.

    >>> marks("a\\u202eb\\u202ec\\x00")
    ('U+0000', 'U+202E RIGHT-TO-LEFT OVERRIDE')
    """
    found = sorted({match[1] for match in UNSEEN_RUN.finditer(text)})
    return tuple(f"{code_point(one)} {unicodedata.name(one, '')}".rstrip() for one in found)


def ansi(text: str) -> Markup:
    """The output of a terminal: colours become classes, other sequences become marks.

    >>> ansi("\\x1b[1;31mno\\x1b[0m \\x1b[2Jyes")
    Markup('<span class="ansi-bold ansi-fg-1">no</span> <span class="unseen">⟨ESC[2J⟩</span>yes')
    """
    return _markup(*_terminal_pieces(text))


def diff(text: str) -> Markup:
    """A unified diff, one span of the class `line` per line; added and removed lines have `add` and `del`."""
    return _markup(*(_span(f"line {kind}".rstrip(), _escape(line)) for kind, line in _diff_lines(text)))


def code(text: str, name: str) -> Markup:
    """The content of a file, coloured by the suffix of its name."""
    lexer = _lexer(name)
    if lexer is None or len(text) > MOST_CODE or any(len(line) > MOST_LINE for line in text.split("\n")):
        return visible(text)
    tokens = [(kind, value) for _, kind, value in lexer.get_tokens_unprocessed(text)]
    if "".join(value for _, value in tokens) != text:
        return visible(text)
    return _markup(*(_coloured(kind, value) for kind, value in tokens))


def markdown(text: str) -> Markup:
    """Markdown without HTML and pictures. Links stay as they are written, so that their address can be read.

    >>> markdown("*a* [b](javascript:c) <i>")
    Markup('<p><em>a</em> [b](javascript:c) &lt;i&gt;</p>\\n')
    """
    if len(text) > MOST_MARKDOWN:
        return _markup("<pre><code>", _escape(text), "</code></pre>")
    reader = _markdown_reader()
    tokens = reader.parse(text)
    for token in tokens:
        _simplify(token)
    # The reader escapes what it writes, and its tags hold nothing of the text.
    return _markup(_mark(reader.renderer.render(tokens, reader.options, {})))


def _markup(*pieces: str) -> Markup:
    """HTML made of escaped pieces."""
    return Markup("".join(pieces))  # noqa: S704 - the only place, and all that calls it escapes


def _escape(text: str) -> str:
    """The only way in which text becomes HTML."""
    return _mark(str(escape(str(text))))


def _mark(html: str) -> str:
    """Mark the hidden characters of HTML that has none inside its tags."""
    return UNSEEN_RUN.sub(lambda match: _span("unseen", mark_run(match)), html)


def _span(kind: str, inner: str) -> str:
    return f'<span class="{kind}">{inner}</span>'


@dataclass(frozen=True, slots=True)
class _Style:
    """How a terminal writes at the moment."""

    flags: frozenset[str] = frozenset()
    fore: int | None = None
    back: int | None = None

    def classes(self) -> str:
        names = [f"ansi-{flag}" for flag in sorted(self.flags)]
        # Text in the colour of its background could not be read.
        if "inverse" not in self.flags and self.fore != self.back:
            colours = {"fg": self.fore, "bg": self.back}
            names += [f"ansi-{place}-{colour}" for place, colour in colours.items() if colour is not None]
        return " ".join(names)


def _terminal_pieces(text: str) -> Iterator[str]:
    style, end = _Style(), 0
    for match in _ESCAPE.finditer(text):
        yield _styled(text[end : match.start()], style)
        if match["colours"] is None:
            yield _span("unseen", f"⟨ESC{_escape(match['other'][1:])}⟩")
        else:
            style = _change_style(style, match["colours"])
        end = match.end()
    yield _styled(text[end:], style)


def _styled(text: str, style: _Style) -> str:
    classes = style.classes() if text else ""
    return _span(classes, _escape(text)) if classes else _escape(text)


def _change_style(style: _Style, parameters: str) -> _Style:
    numbers = iter([int(one) if 0 < len(one) <= _MOST_DIGITS else 0 for one in re.split("[;:]", parameters)])
    for number in numbers:
        style = _apply(style, number, numbers)
    return style


def _apply(style: _Style, number: int, rest: Iterator[int]) -> _Style:
    if number == 0:
        return _Style()
    if number in _FLAGS:
        return replace(style, flags=style.flags | {_FLAGS[number]})
    if number in _UNSET:
        return replace(style, flags=style.flags - _UNSET[number])
    if 30 <= number <= 39 or 90 <= number <= 97:
        return replace(style, fore=_colour(number, 30, rest))
    if 40 <= number <= 49 or 100 <= number <= 107:
        return replace(style, back=_colour(number, 40, rest))
    return style


def _colour(number: int, base: int, rest: Iterator[int]) -> int | None:
    """One of the sixteen colours; others become the nearest of them."""
    if number == base + 9:
        return None
    if number == base + 8:
        return _extended_colour(rest)
    return number - base if number < 90 else number - base - 60 + 8


def _extended_colour(rest: Iterator[int]) -> int | None:
    kind = next(rest, 0)
    if kind == 5:
        return _of_256(next(rest, 0))
    if kind == 2:
        return _nearest(next(rest, 0), next(rest, 0), next(rest, 0))
    return None


def _of_256(number: int) -> int:
    if number < 16:
        return number
    if number >= 232:
        return _nearest(*[(number - 232) * 10 + 8] * 3)
    red, rest = divmod(number - 16, 36)
    return _nearest(*(level * 51 for level in (red, *divmod(rest, 6))))


def _nearest(red: int, green: int, blue: int) -> int:
    most = max(red, green, blue)
    if most < 64:
        return 0
    bits = [int(2 * level > most) << place for place, level in enumerate((red, green, blue))]
    return sum(bits) + 8 * (most > 191)


def _diff_lines(text: str) -> Iterator[tuple[str, str]]:
    """Each line with its class. Within a hunk, a line that begins with `---` was removed and names no file."""
    old = new = 0
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        hunk = _HUNK.match(line) if old <= 0 and new <= 0 else None
        if hunk:
            old, new = (int(count or 1) for count in hunk.groups())
            yield "hunk", line
            continue
        inside = old > 0 or new > 0
        yield _diff_kind(line, inside), line
        old -= line[0] in " -"
        new -= line[0] in " +"


def _diff_kind(line: str, inside: bool) -> str:
    if not inside and line.startswith(_FILE_LINES):
        return "file"
    if not inside and line.startswith("@@"):
        return "hunk"
    return {"+": "add", "-": "del"}.get(line[0], "")


def _lexer(name: str) -> Lexer | None:
    found = _LEXER_OF.get(name.rpartition(".")[2].lower())
    return get_lexer_by_name(found) if found else None


def _coloured(kind: _TokenType, value: str) -> str:
    name = next(STANDARD_TYPES[one] for one in reversed(kind.split()) if one in STANDARD_TYPES)
    return _span(f"tok-{name}", _escape(value)) if name else _escape(value)


@cache
def _markdown_reader() -> MarkdownIt:
    reader = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    # `normalize` would replace NUL; references would take the definitions of links out of the text.
    reader.disable(["normalize", "link", "image", "autolink", "reference", "html_inline", "html_block"])
    for kind in ("fence", "code_block"):
        reader.add_render_rule(kind, _render_code)
    return reader


def _render_code(_self: object, tokens: Sequence[Token], index: int, _options: object, _env: object) -> str:
    token = tokens[index]
    language = _span("quiet", str(escape(token.info))) + "\n" if token.info else ""
    return f"<pre><code>{language}{escape(token.content)}</code></pre>\n"


def _simplify(token: Token) -> None:
    """Leave out attributes, which the text has chosen. A heading of the text is not a heading of the page."""
    start = token.attrs.get("start")
    token.attrs = {"start": start} if isinstance(start, int) else {}
    if token.type in {"heading_open", "heading_close"}:
        token.attrs = {"class": f"heading-{token.tag[1]}"} if token.nesting == 1 else {}
        token.tag = "p"
