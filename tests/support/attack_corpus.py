"""Texts that attack whoever shows them: built from lists, each with a name. Scripts in them set `window.__canary`.

ATTACKS is planted in every stored text by `support.hostile_run`, and given to every function of `whet.look.markup`.
"""

import itertools
import json
from collections.abc import Iterator

CANARY = "window.__canary"
ELSEWHERE = "http://127.0.0.1:9/stolen"
"""An address that no page of ours may call."""

_EVENTS = (
    "onerror", "onload", "onclick", "onfocus", "onmouseover", "ontoggle", "onbegin", "onanimationstart",
    "onpointerenter", "onpageshow", "onhashchange", "onscroll", "onwheel", "onbeforeinput", "oncopy",
    "onbeforetoggle",
)  # fmt: skip
_ELEMENTS = (
    "<img src=x {}>",
    "<svg {}><circle/></svg>",
    "<body {}>",
    "<input autofocus {}>",
    "<details open {}><summary>x</summary></details>",
    "<video src=x {}></video>",
)
_BREAKOUTS = (
    "", "</script>", "</style>", "</pre>", "</textarea>", "</title>", "</bdi></pre></div>", "</template>",
    "</noscript>", "</td></tr></table>", "</option></select>", "</svg>", "-->", "]]>", '">', "'>", "`>", '" ', "' ",
    "*/", "\\\"", "&quot;>",
)  # fmt: skip
_SCRIPTS = (
    "<script>{}</script>",
    "<script src={elsewhere}></script>",
    "<script type=module>{}</script>",
    "<SCRIPT\n>{}</SCRIPT\n>",
    "<scr<script>ipt>{}</scr</script>ipt>",
    "<svg><script>{}</script></svg>",
    "<math><mtext><script>{}</script></mtext></math>",
    "<svg><animate onbegin={} attributeName=x dur=1s></svg>",
    "<svg><set attributeName=href to='javascript:{}'/></svg>",
    "<svg><use href='data:image/svg+xml,<svg id=x onload={} xmlns=http://www.w3.org/2000/svg/>#x'/></svg>",
    "<svg><foreignObject><iframe srcdoc='<script>parent.__canary=1</script>'></iframe></foreignObject></svg>",
    "<math href='javascript:{}'>x</math>",
    "<iframe src='javascript:{}'></iframe>",
    "<iframe srcdoc='<script>parent.__canary=1</script>'></iframe>",
    "<object data='data:text/html,<script>parent.__canary=1</script>'></object>",
    "<embed src='data:text/html,<script>parent.__canary=1</script>'>",
    "<a href='javascript:{}' autofocus>x</a>",
    "<form action='javascript:{}'><button>x</button></form>",
    "<button formaction='javascript:{}'>x</button>",
    "<meta http-equiv=refresh content='0;url={elsewhere}'>",
    "<meta http-equiv=refresh content='0;url=javascript:{}'>",
    '<meta name=htmx-config content=\'{{"prefix":"x-"}}\'>',
    "<base href='{elsewhere}/'>",
    "<link rel=stylesheet href={elsewhere}>",
    "<link rel=prefetch href={elsewhere}>",
    "<style>@import '{elsewhere}';</style>",
    "<p style='background:url({elsewhere})'>x</p>",
    "<img src={elsewhere}>",
    "<picture><source srcset={elsewhere}><img></picture>",
    "<video poster={elsewhere}></video>",
    "<form method=post action={elsewhere}><input name=a></form>",
    "<noscript><p title='</noscript><img src=x onerror={}>'>",
    "<!--><img src=x onerror={}>-->",
    "<![CDATA[><img src=x onerror={}>]]>",
    "<template shadowrootmode=open><script>{}</script></template>",
    "<x-y is=z onclick={}>x</x-y>",
    "<portal src='javascript:{}'></portal>",
    "<marquee onstart={}>x</marquee>",
    "<isindex action='javascript:{}' type=submit>",
    "<table background='javascript:{}'><tr><td>x</table>",
    "<keygen autofocus onfocus={}>",
    "<dialog open onclose={}><form method=dialog><button>x</button></form></dialog>",
    "<button popovertarget=x>x</button><div popover id=x onbeforetoggle={}>y</div>",
    "<plaintext>",
    "<xmp><script>{}</script></xmp>",
    "<listing><img src=x onerror={}></listing>",
)
_HTMX = (
    "<div hx-get='/stolen' hx-trigger='load'>x</div>",
    "<div hx-post='/stolen' hx-trigger='load'>x</div>",
    "<div hx-put='/stolen' hx-trigger='load'>x</div>",
    "<div hx-delete='/stolen' hx-trigger='every 1s'>x</div>",
    "<div data-hx-get='/stolen' data-hx-trigger='load'>x</div>",
    "<div hx-action='/stolen' hx-method='post' hx-trigger='load'>x</div>",
    "<div hx-get='{elsewhere}' hx-trigger='load'>x</div>",
    "<div hx-on:load='{}' hx-on:click='{}'>x</div>",
    "<div hx-on::after-init='{}'>x</div>",
    "<div hx-on='load -> {}'>x</div>",
    "<div hx-get='/' hx-trigger='load[{}]'>x</div>",
    "<div hx-get='/' hx-trigger='load' hx-vals='js:{{a:{}}}'>x</div>",
    "<div hx-get='/' hx-trigger='load' hx-headers='js:{{a:{}}}'>x</div>",
    "<div hx-get='js:{}' hx-trigger='load'>x</div>",
    "<div hx-confirm='js:{}' hx-get='/' hx-trigger='load'>x</div>",
    "<div hx-sse:connect='/stolen/events'>x</div>",
    "<div sse-connect='/stolen/events'>x</div>",
    "<div hx-swap-oob='true' id='main'>x</div>",
    "<hx-partial hx-target='body'><p>planted</p></hx-partial>",
    "<template hx type='partial' hx-target='body'><p>planted</p></template>",
    "<div hx-boost='true'><a href='/stolen'>x</a></div>",
    "<div hx-preserve id='main'>x</div>",
    "<div hx-history-elt>x</div>",
    "<div hx-live='{}'>x</div>",
    "<body hx-get='/stolen' hx-trigger='load'>",
    "</div><div hx-ignore='false' hx-get='/stolen' hx-trigger='load'>x</div>",
)
_SCHEMES = (
    "javascript:{}", "JaVaScRiPt:{}", "java\tscript:{}", "\x01javascript:{}", "&#106;avascript:{}",
    "javascript&colon;{}", "vbscript:{}", "data:text/html,<script>parent.__canary=1</script>",
    "data:text/html;base64,PHNjcmlwdD4xPC9zY3JpcHQ+",
    "data:image/svg+xml,<svg onload={} xmlns='http://www.w3.org/2000/svg'/>", "file:///etc/passwd",
    "//127.0.0.1:9/stolen", "http://127.0.0.1:9/stolen", "blob:http://127.0.0.1/x", "view-source:x", "vscode://x",
    "\\\\127.0.0.1\\stolen",
)  # fmt: skip
_MARKDOWN = (
    "[x]({})", "![x]({})", "<{}>", "[x]: {}\n\n[x]", "![x][y]\n\n[y]: {}", '[x]({} "onmouseover=1")',
    "[![x]({})]({})",
)  # fmt: skip
_MATHS = (
    r"$\href{javascript:%s}{x}$", r"\(\href{javascript:%s}{x}\)", r"$$\unicode{<img src=x onerror=%s>}$$",
    r"\[\require{html}\style{background:url(http://127.0.0.1:9/stolen)}{x}\]", r"$\class{a onclick=%s}{x}$",
    r"$\htmlData{onload=%s}{x}$", r"$\includegraphics{http://127.0.0.1:9/stolen}$",
    "```mermaid\nclick A href \"javascript:%s\"\n```",
)  # fmt: skip
_TEMPLATES = (
    "{{7*7}}", "{{ config }}", "{{ self.__init__.__globals__ }}", "{% raw %}x{% endraw %}",
    "{% include 'layout.html' %}", "{# comment #}", "{{ nonce }}", "{{ form_token }}", "${7*7}", "#{7*7}",
    "<%= 7*7 %>", "%(nonce)s", "{0.__class__}", "{{ ''|safe }}", "{{ request.cookies }}",
    "{{[].__class__.__base__.__subclasses__()}}",
)  # fmt: skip
_ANSI = (
    "\x1b[31mred", "\x1b[8mhidden\x1b[0m", "\x1b[30;40mblack on black\x1b[0m", "\x1b[2J\x1b[H",
    "\x1b[1A\x1b[2Koverwritten", "\x1b]8;;http://127.0.0.1:9/stolen\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]8;;javascript:1\x07link\x1b]8;;\x07", "\x1b]0;title\x07", "\x1b]52;c;c3RvbGVu\x07",
    "\x1b]1337;File=name=eA==:eA==\x07", "\x1bP+q544e\x1b\\", "\x1b_app\x1b\\", "\x1b]0;never ends", "\x1b[", "\x1b",
    "\x1b[38;5;999m256", "\x1b[38;2;1;2m", "\x1b[99999999999999999999m", "\x1b[1;;;;m", "\x9b31mC1", "\x1b[?1049h",
    "\x1b[6n", "\x1bc", "\x1b(0lqqk", "a\rb", "a\x08\x08b", "\x1b[31m<script>window.__canary=1</script>\x1b[0m",
    '\x1b[31;"onload=1;m',
)  # fmt: skip
_UNICODE = (
    "\u202eevil\u202c", "\u2066a\u2067b\u2069", "\u061c\u200e\u200f", "a\u200bb\u200cc\u200dd\ufeff",
    "\u2060\u2061\u2062\u2063", "".join(chr(0xE0000 + ord(one)) for one in "ignore previous instructions"),
    "\U000e0001\U000e007f", "".join(chr(0xE0100 + one) for one in range(20)), "\ufe00\ufe01\ufe0f\ufe0f",
    "\u00ad\u034f\u115f\u3164\uffa0\u2800", "\ud800", "\udfff\ud800", "a\udcffb", "\x00", "a\x00b\x00",
    "\ufffe\uffff\U0001fffe", "\u2028\u2029\x85\x0b\x0c", "\x7f\x80\x9f", "e" + "\u0301" * 200, "\ufdfa" * 50,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u2764\ufe0f",
    "/* \u202e } \u2066if (admin)\u2069 \u2066 begin */", "\uff1cscript\uff1e", "\u02bb\u2039script\u203a", "аdmin",
    "\u180e\u17b4", "\xff\xfe".encode("latin-1").decode("utf-8", "surrogateescape"), "\r\n\r\n", "\t\t \n \n",
    "⟨U+202E⟩", "\U0001d173",
)  # fmt: skip
_NAMES = (
    "../../../etc/passwd", "..%2f..%2f", "..\\..\\", "/etc/passwd", "%00", "%252e%252e%252f", "a/b/c", "a?b#c&d=e",
    "a%0d%0aSet-Cookie: x", "x\r\nSet-Cookie: y=1\r\n\r\n", "con", ".", "..", "-rf", "--help", "$(touch x)",
    "`touch x`", "; touch x", "'; drop table x; --", "*" * 50, "[a-z]*", "a" * 300, " ", "\n", "0", "null", "None",
    "undefined", "__proto__", "constructor", "NaN",
)  # fmt: skip


def _markup_attacks() -> Iterator[tuple[str, str]]:
    for element, event in itertools.product(_ELEMENTS, _EVENTS):
        yield f"event {event} {element[1:6]}", element.format(f"{event}={CANARY}=1")
    for number, script in enumerate(_SCRIPTS):
        yield f"script {number}", _fill(script)
    for number, breakout in enumerate(_BREAKOUTS):
        yield f"breakout {number}", breakout + _fill("<script>{}</script>")
        yield f"attribute {number}", breakout + f" onmouseover={CANARY}=1 autofocus onfocus={CANARY}=1 x="
    for number, planted in enumerate(_HTMX):
        yield f"htmx {number}", _fill(planted)


def _text_attacks() -> Iterator[tuple[str, str]]:
    for (number, form), (second, scheme) in itertools.product(enumerate(_MARKDOWN), enumerate(_SCHEMES)):
        yield f"markdown {number} {second}", form.replace("{}", _fill(scheme))
    lists = {"maths": _MATHS, "template": _TEMPLATES, "ansi": _ANSI, "unicode": _UNICODE, "name": _NAMES}
    for kind, texts in lists.items():
        for number, text in enumerate(texts):
            yield f"{kind} {number}", text.replace("%s", f"{CANARY}=1")


def _fill(form: str) -> str:
    filled = form.replace("{elsewhere}", ELSEWHERE).replace("{}", f"{CANARY}=1")
    return filled.replace("{{", "{").replace("}}", "}")


def _json_attacks() -> Iterator[tuple[str, str]]:
    yield "json in script", json.dumps({"a": "</script><script>window.__canary=1</script>", "<!--": "\u2028"})
    yield "json proto", '{"__proto__": {"x": 1}, "constructor": {"prototype": {}}}'
    yield "json deep", "[" * 2_000 + "]" * 2_000
    yield "json objects", '{"a":' * 500 + "1" + "}" * 500
    yield "json twice", '{"a": 1, "a": 2, "a": NaN}'


ATTACKS = dict((*_markup_attacks(), *_text_attacks(), *_json_attacks()))
"""Short texts by name; each fits wherever a text is stored."""

LONG_ATTACKS = {
    "long line": "x" * (1 << 20),
    "long tag": "<" * (1 << 18),
    "long escape": "\x1b[" * (1 << 17),
    "long bidi": "\u202e\u202d" * (1 << 16),
    "long nul": "\x00" * (1 << 18),
    "many lines": "-\n" * (1 << 17),
}
"""Texts that take long to show, for places that store much."""
