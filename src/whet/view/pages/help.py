"""How to use the pages: keys, marks, and what the view never does."""

from typing import NamedTuple

from whet.view.page import Page, PageRequest, PageRoute, View


class Keys(NamedTuple):
    """Keys that belong together, and what they do."""

    keys: tuple[str, ...]
    meaning: str


EVERYWHERE = (
    Keys(("?",), "this page"),
    Keys(("/",), "search; on a trace, find in the trace"),
    Keys(("g r", "g c", "g s", "g i"), "go to runs, compare, skills, inbox"),
    Keys(("u",), "up to the page above"),
    Keys(("t",), "theme: as the system, light, dark"),
    Keys(("Escape",), "leave a field"),
)
TABLES = (
    Keys(("j", "k"), "next and previous row"),
    Keys(("Enter", "o"), "open the row; open it in a new tab"),
    Keys(("Space",), "look into a rollout without leaving the table"),
    Keys(("x",), "select the row"),
    Keys(("←", "→"), "previous and next sample, on the page of a rollout"),
    Keys(("d",), "download the summary of a run as JSON"),
)
TRACE = (
    Keys(("j", "k"), "next and previous step"),
    Keys(("J", "K"), "next and previous call of the main agent"),
    Keys(("]", "["), "next and previous error"),
    Keys(("}", "{"), "next and previous sub-agent"),
    Keys(("n", "N"), "next and previous hit of a search"),
    Keys(tuple("1234567"), "show or hide a layer; 7 shows errors only"),
    Keys(("r",), "the bytes of the call"),
    Keys(("e",), "open what is folded"),
    Keys(("y",), "copy the link to the step"),
    Keys(("f",), "copy the command that forks here"),
)
KEYS = (("On every page", EVERYWHERE), ("In tables of runs and rollouts", TABLES), ("On a trace", TRACE))
"""All keys. The script of the pages has the same; a test compares them."""
MARKS = (
    ("▲ better", "the interval is above zero at the stated level"),
    ("▼ worse", "the interval is below zero at the stated level"),
    ("○ undecided", "the data do not show a difference; the page says how much more it takes"),
    ("┄ missing", "no score, with its cause. It is never counted as 0"),
    ("✓ holds", "whet has computed it again, and it is the same"),
    ("✗ fails", "whet has computed it again, and it is not the same"),
    ("– not checked", "what the check needs is not here"),
    ("⟨U+202E⟩", "a character that would be invisible, or would change the order of the text"),
)


def help_page(_: View, __: PageRequest) -> Page:
    """What keys and marks mean."""
    return Page("help.html", "Help", {"keys": KEYS, "marks": MARKS}, command="whet view --help", section="help")


ROUTES = (PageRoute("/help", help_page),)
