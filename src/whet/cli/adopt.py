"""`whet adopt`: take over what a run of `whet sharpen` found."""

from typing import TYPE_CHECKING

from whet.cli.options import Layout, takes
from whet.cli.output import say
from whet.skills.options import AdoptOptions

if TYPE_CHECKING:
    from whet.skills.sharpen.adopt import Adoption

LAYOUT = Layout(arguments=("run",), required=("run",))


@takes(AdoptOptions, LAYOUT)
def adopt(options: AdoptOptions) -> None:
    """Write the certified skill of a run over the one that the run started with. --undo takes it back."""
    from whet import api
    from whet.cli.output import command

    adoption = api.adopt(options=options)
    if options.undo:
        for one in adoption.files:
            say(f"{one.path}: as it was before")
        return
    _print_diff(adoption)
    say(f"undo with: {command('adopt', str(options.run), '--undo')}")


def _print_diff(adoption: "Adoption") -> None:
    for one in adoption.files:
        for line in one.diff:
            say(line)
    shown = "certified" if adoption.certified else "not certified"
    for one in adoption.files:
        say(f"{one.path}: is now version {adoption.version[:8]}, {shown}")
