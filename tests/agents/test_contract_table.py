"""The table of what each CLI can do: made from the traits to which the contract holds them, and shown in the docs."""

from pathlib import Path

from whet.agents import CLIS, CliAgent

DOCUMENT = Path(__file__).parents[2] / "docs/agents.md"
HEAD = ("agent", "speaks", "skills", "memory", "system prompt", "images", "schema", "followups", "sub-agents")


def capability_table() -> str:
    """The table in Markdown. Files and folders are those of the home."""
    rows = [HEAD, tuple("---" for _ in HEAD), *(_row(cli) for cli in CLIS)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(cli: CliAgent) -> tuple[str, ...]:
    traits = cli.traits
    places = [f"`~/{place}`" if place else "no" for place in (traits.skills, traits.memory)]
    can = [traits.system, traits.images, traits.schema, traits.resumes, traits.subagents]
    return (cli.kind, traits.dialect, *places, *("yes" if one else "no" for one in can))


def test_the_docs_show_what_each_cli_can_do() -> None:
    assert capability_table() in DOCUMENT.read_text(), f"docs/agents.md must hold this table:\n{capability_table()}"


def test_the_docs_have_a_paragraph_for_each_cli() -> None:
    text = DOCUMENT.read_text()
    assert [cli.kind for cli in CLIS if f"\n**{cli.kind}.** " not in text] == []
