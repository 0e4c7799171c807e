"""`whet transfer`: whether a skill helps other agents and models too."""

import sys
from typing import TYPE_CHECKING

from whet.cli.options import Layout, takes
from whet.skills.options import TransferOptions

if TYPE_CHECKING:
    from whet.cli.tables import TextTable
    from whet.skills.sharpen.transfer import Lifts


LAYOUT = Layout(
    arguments=("skill", "tasks"),
    required=("skill", "tasks"),
    limits=("max_cost",),
    flags={"agents": "--agent", "models": "--model"},
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
    console.say(f"\neffect of {lifts.skill.name}, compared with {against}:", _table(lifts))
    console.say(*(f"  {line}" for line in (*describe_error_rates(len(lifts.lifts)), *list_doubts(lifts.lifts))))
    console.say(str(options.out / READABLE))


def _table(lifts: "Lifts") -> "TextTable":
    from whet.cli.tables import Column, TextTable
    from whet.skills.sharpen.transfer import VERDICT_WORDS, count_pairs, format_lift, format_missing

    names = [Column("agent"), Column("model"), Column("the skill")]
    lift, pairs = Column("lift, points [95 % together]", right=True), Column("better/alike/worse", 1, right=True)
    table = TextTable([*names, lift, pairs, Column("tasks", 2, right=True), Column("missing", right=True)])
    for (agent, model), one in lifts.lifts.items():
        counts = f"{one.wins}/{one.ties}/{one.losses}"
        facts = (VERDICT_WORDS[one.verdict], format_lift(one), counts, str(count_pairs(one)), format_missing(one))
        table.add(agent, model, *facts)
    return table
