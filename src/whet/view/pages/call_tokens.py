"""The tokens of a model call: what was sampled and how likely it was, the prompt's ids, and what training makes of
it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from whet.exchange import EXACT, Exchange
from whet.gateway.token_capture import Tokens, read_tokens
from whet.look.numbers import heat
from whet.look.plots.drawing import NARROW, WIDE, Bar, Curve, Drawing, Figure, Label, Line
from whet.look.plots.scales import Scale
from whet.runs.store.store import Store
from whet.trace.training.calls import TokenCall, Training
from whet.trace.training.episode import Episode
from whet.trace.training.rows import Harvest, TrainingRow, harvest

PROMPT_PAGE = 2000
"""Ids of the prompt on a page."""
SAMPLED_PAGE = 4000
"""Sampled tokens on a page."""
_ID = "token_id:"
"""In front of an id that stands in place of a token's text."""
_SHADES = ("≥ −0.1", "≥ −0.7", "≥ −2", "≥ −5", "lower")
"""The five shades, in words."""
_HEIGHT, _WIDTH, _BAR = 120, NARROW, 48
_STRIP, _MARGIN, _FLOOR = 90, 32, -8.0


@dataclass(frozen=True, slots=True)
class Token:
    """One sampled token."""

    text: str
    id: int | None
    logprob: float | None


@dataclass(frozen=True, slots=True)
class TokenPage:
    """What the tab of tokens shows."""

    state: str
    """Empty when they are exact; otherwise why they are not, or why there are none."""
    sampled: tuple[Token, ...] = ()
    total: int = 0
    start: int = 0
    prompt: tuple[int, ...] = ()
    prompt_total: int = 0
    prompt_start: int = 0
    strip: Figure | None = None
    """The log-probability of every token, first to last."""
    histogram: Drawing | None = None
    finish: str | None = None
    weights: str | None = None


def read_token_page(exchange: Exchange, start: int, prompt_start: int) -> TokenPage:
    """The sampled tokens of a call from `start` on, and ids of its prompt from `prompt_start` on."""
    state = _state(exchange)
    try:
        tokens = read_tokens(exchange.response, exchange.streamed)
    except ValueError:
        return TokenPage(state or "the reply cannot be read")
    sampled = _sampled(tokens)
    if not sampled and not tokens.prompt:
        return TokenPage(state)
    known = [one.logprob for one in sampled if one.logprob is not None]
    prompt = tokens.prompt or []
    return TokenPage(
        state,
        tuple(sampled[start : start + SAMPLED_PAGE]),
        len(sampled),
        start,
        tuple(prompt[prompt_start : prompt_start + PROMPT_PAGE]),
        len(prompt),
        prompt_start,
        Figure(_strip(known, WIDE), _strip(known, NARROW)) if len(known) > 1 else None,
        _histogram(known) if known else None,
        tokens.finish,
        tokens.weights,
    )


def _state(exchange: Exchange) -> str:
    if exchange.tokens == EXACT:
        return ""
    if exchange.tokens is None:
        return "the reply holds no tokens; `capture` in whet.toml requests them from vLLM, SGLang or llama.cpp"
    return f"not exact: {exchange.tokens}"


def _sampled(tokens: Tokens) -> list[Token]:
    """The sampled tokens, as far as their ids or their entries are there."""
    entries, ids = tokens.entries, tokens.ids
    found = []
    for place in range(max(len(entries), len(ids))):
        entry = entries[place] if place < len(entries) else None
        id_ = ids[place] if place < len(ids) else None
        text = entry.token if entry is not None and not entry.token.startswith(_ID) else ""
        found.append(Token(text or f"⟨{id_}⟩", id_, None if entry is None else entry.logprob))
    return found


def _strip(logprobs: Sequence[float], wide: int) -> Drawing:
    """The log-probabilities in order: of neighbours that share a pixel, the lowest."""
    drawing = Drawing(wide, _STRIP, f"Log-probability of {len(logprobs)} sampled tokens, in order")
    x, y = Scale(0, len(logprobs) - 1, _MARGIN, wide - 4), Scale(_FLOOR, 0, _STRIP - 8, 8)
    for bound in (0.0, -2.0, -5.0, _FLOOR):
        drawing.add(Line(_MARGIN, y(bound), wide, y(bound), "grid"))
        drawing.add(Label(_MARGIN - 6, y(bound) + 4, f"{bound:g}".replace("-", "−"), "faint", "end"))
    width = max(1, -(-len(logprobs) // (wide - _MARGIN)))
    points = [(x(at), y(min(logprobs[at : at + width]))) for at in range(0, len(logprobs), width)]
    drawing.add(Curve(tuple(points), "better"))
    return drawing


def _histogram(logprobs: Sequence[float]) -> Drawing:
    """How many tokens fall into each shade."""
    counts = Counter(heat(one) for one in logprobs)
    drawing = Drawing(_WIDTH, _HEIGHT, f"{len(logprobs)} sampled tokens by log-probability")
    scale = Scale(0, max(counts.values()), _HEIGHT - 20, 16)
    drawing.add(Line(0, _HEIGHT - 20, _WIDTH, _HEIGHT - 20, "zero"))
    for shade, words in enumerate(_SHADES, 1):
        x, top = (shade - 1) * _WIDTH / len(_SHADES) + 10, scale(counts[shade])
        share = counts[shade] / len(logprobs)
        drawing.add(Bar(x, top, _BAR, _HEIGHT - 20 - top, "better", f"{words}: {counts[shade]:,} tokens, {share:.1%}"))
        drawing.add(Label(x + _BAR / 2, top - 4, f"{counts[shade]:,}", "faint", "middle"))
        drawing.add(Label(x + _BAR / 2, _HEIGHT - 6, words, "faint", "middle"))
    return drawing


@dataclass(frozen=True, slots=True)
class RowPlace:
    """What training makes of a call."""

    sentence: str
    trained: bool
    spans: tuple[tuple[int, str, int, int, bool], ...] = ()
    """Of its row: call, kind, first token, end, whether trained."""


def find_row(store: Store, attempt: int, index: int) -> RowPlace:
    """The training row that a call becomes part of, or why it does not. Reads all calls of the attempt."""
    episode = Episode("", "", "", "", "", "", 0, 0, None, store.each_exchange(attempt))
    return _place(harvest(episode, Training()), index)


def _place(found: Harvest, index: int) -> RowPlace:
    call = next((one for one in found.calls if one.id == index), None)
    if call is None:
        return RowPlace("It is not trained: the ids of its prompt and reply are not all known.", trained=False)
    rows = [(row, False) for row in found.rows.rows] + [(row, True) for row in found.rows.apart]
    holding = [(row, apart) for row, apart in rows if any(span.call == index for span in row.spans)]
    trained = next(((row, apart) for row, apart in holding if any(s.call == index for s in row.trained_spans)), None)
    if trained is not None:
        return _trained(*trained, index)
    return RowPlace(f"It is not trained: {_why_not(found, call)}.", False, _spans(holding[0][0]) if holding else ())


def _why_not(found: Harvest, call: TokenCall) -> str:
    if call.refused is not None:
        return call.refused
    if (why := found.rows.forest.discarded.get(call.id)) is not None:
        return why
    return "; ".join(found.rows.dropped) or "no row holds it"


def _trained(row: TrainingRow, apart: bool, index: int) -> RowPlace:
    span = next(one for one in row.trained_spans if one.call == index)
    where = f"row {row.number + 1} of {row.of}, tokens {span.start:,}–{span.end - 1:,} of {len(row.tokens):,}"
    note = f" The row is kept apart: {row.truncated}." if apart else ""
    return RowPlace(f"Its reply is trained in {where} (loss mask 1).{note}", True, _spans(row))


def _spans(row: TrainingRow) -> tuple[tuple[int, str, int, int, bool], ...]:
    return tuple((span.call, span.kind, span.start, span.end, span.trained) for span in row.spans)
