"""Every colour of text can be read on every ground that it may stand on, in light and in dark."""

import re
from pathlib import Path

import pytest

import whet.look

TOKENS = (Path(whet.look.__file__).parent / "tokens.css").read_text()
TEXTS = ("ink", "ink-2", "ink-3", "accent", "better", "worse", "missing", "undecided")
GROUNDS = ("paper", "well", "raised", "accent-wash", "better-wash", "worse-wash", "missing-wash", "add", "del")
HEATS = tuple(f"heat-{shade}" for shade in range(1, 6))
ENOUGH = 4.5
"""WCAG 2.2, level AA, for text of any size."""


def read_colours(start: str) -> dict[str, str]:
    """The colours of the block that begins so."""
    block = TOKENS[TOKENS.index(start) :]
    return dict(re.findall(r"--([\w-]+):(#[0-9a-f]{6})", block[: block.index("}")]))


LIGHT = read_colours(":root{")
DARK = read_colours(":root:not([data-theme=light]){")


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_computed_as_the_guidelines_say() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read_on_every_ground(colours: dict[str, str]) -> None:
    found = {(text, ground): contrast(colours[text], colours[ground]) for text in TEXTS for ground in GROUNDS}
    found |= {("ink", ground): contrast(colours["ink"], colours[ground]) for ground in HEATS}
    assert {pair: round(value, 2) for pair, value in found.items() if value < ENOUGH} == {}


def test_dark_by_choice_and_dark_by_system_are_the_same_and_change_every_colour() -> None:
    assert read_colours(":root[data-theme=dark]{") == DARK
    assert DARK.keys() == LIGHT.keys()


def test_only_screens_are_dark() -> None:
    for start in re.finditer(r":root(?::not\(\[data-theme=light\]\)|\[data-theme=dark\])\{", TOKENS):
        assert (
            TOKENS[: start.start()]
            .rstrip()
            .endswith(("@media screen{", "@media screen and (prefers-color-scheme:dark){"))
        )
