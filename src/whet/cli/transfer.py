"""`whet transfer`: whether a skill helps other agents and models too."""

import sys
from typing import TYPE_CHECKING

from whet.cli.options import Layout, takes
from whet.skills.options import TransferOptions

if TYPE_CHECKING:
    from rich.table import Table

    from whet.skills.sharpen.transfer import Lifts


LAYOUT = Layout(
    arguments=("skill",),
    required=("skill", "tasks"),
    limits=("max_cost",),
    help={"tasks": "Task folder or file. Only tasks with split 'test' are used, if there are any."},
)


@takes(TransferOptions, LAYOUT)
def transfer(options: TransferOptions) -> None:
    """Run every agent on every model with a skill and without it, and report where the skill helps."""
    from whet import api
    from whet.cli.progress import watcher
    from whet.cli.run import complete_options, resume_command
    from whet.cli.tables import terminal
    from whet.skills.sharpen.transfer import READABLE, describe_error_rates, list_doubts

    options, config = complete_options(options)
    with watcher(as_json=False, resume=resume_command(sys.argv[1:], options.out)) as watch:
        lifts = api.transfer(options=options, config=config, watch=watch.on)
    console = terminal()
    against = lifts.against.digest[:8] if lifts.against else "no skill"
    console.print(f"\neffect of {lifts.skill.name}, compared with {against}:")
    console.print(_table(lifts))
    for line in (*describe_error_rates(lifts), *list_doubts(lifts)):
        console.print(f"  {line}", soft_wrap=True)
    console.print(str(options.out / READABLE), soft_wrap=True)


def _table(lifts: "Lifts") -> "Table":
    from rich.text import Text

    from whet.cli.tables import plain_table
    from whet.skills.sharpen.transfer import VERDICT_WORDS, count_pairs, format_lift, format_missing

    table = plain_table(
        "agent", "model", "the skill", "lift, points [95 % together]", "better/alike/worse", "tasks", "missing"
    )
    for (agent, model), one in lifts.lifts.items():
        counts = f"{one.wins}/{one.ties}/{one.losses}"
        facts = (VERDICT_WORDS[one.verdict], format_lift(one), counts, str(count_pairs(one)), format_missing(one))
        table.add_row(Text(agent), Text(model), *map(Text, facts))
    return table
