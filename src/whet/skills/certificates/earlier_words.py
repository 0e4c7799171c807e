"""The words of certificate.md as whet wrote them up to version 0.1, so that older run folders still check."""

from whet.skills.certificates.certificate import Certificate
from whet.skills.certificates.text import E_VALUES, SCOPE, TROUBLES, format_certificate

_EARLIER = (
    (
        SCOPE,
        (
            "It speaks of these tasks, with this agent, model and sandbox and these judges, and of the score "
            "alone: what the judges do not see, it does not either."
        ),
    ),
    (
        TROUBLES,
        (
            "In an exam a rollout that fails is not tried again: it counts against the new skill where that is "
            "certified, and for it where that is given up. A rollout is begun again only when whet itself was "
            "stopped, or the model was down for both skills: whoever stops a run while a rollout goes badly can "
            "steer it, so these are counted. Where the skills differ in one of these columns by more than chance "
            "explains (Fisher's exact test, 5 %), the verdict is withheld."
        ),
    ),
    (
        E_VALUES,
        (
            "An e-value is what became of 1 that was bet on the new skill. Were it no better, this would reach 80"
            " in at most one exam of 80, 20 in one of 20, however often one looks. A position is a task of the "
            "exam, done with both skills. The bounds of the lift hold at the level of the exam, at all times at "
            "once."
        ),
    ),
    ("The run keeps the skill that it started with.", "The skill that the run began with stays."),
    (
        "A run like this certifies a skill that is not better with a chance of at most ",
        "The chance that a run like this certifies anything that is no better is at most ",
    ),
    (
        "An exam like this certifies a skill that is not better with a chance of at most ",
        "The chance that an exam like this certifies anything that is no better is at most ",
    ),
    (" names or fingerprints during this exam: ", " names or fingerprints during this attempt: "),
    ("\n| pairs | ", "\n| positions | "),
    ("; verdict after ", "; the verdict fell after "),
    (": one of each skill per pair |", ": one of each skill at each position |"),
    ("% of the pairs have both scores", "% of the positions have both scores"),
    ("\n## All exams\n", "\n## Every exam that was held\n"),
    ("\n| exam | old skill | new skill |", "\n| attempt | old skill | new skill |"),
    (" | level | pairs | measured |", " | level | positions | measured |"),
    (" points or more is unlikely; if there is one, at most ", " points or more is unlikely: where there is one, "),
    (" of exams miss it.\n", " of exams say so all the same.\n"),
    (
        "; the missing or repeated rollouts may explain the difference.",
        "; what is lost or tried again may have made the difference.",
    ),
    ("\nExam ", "\nAttempt "),
    ("\n## Failed and repeated rollouts\n", "\n## Lost, begun again, sent again\n"),
    (
        "None: every rollout has a score from its first try, and",
        "Nothing: every rollout was scored at its first try, and",
    ),
    (
        "| exam | skill | rollouts | missing score | restarted | with re-sent calls |",
        "| attempt | skill | rollouts | lost | begun again | with calls sent again |",
    ),
    ("The exam did not show that ", "It was not shown that "),
    (" of its rules can be removed: ", " of its rules can be left out: "),
    ("\n## Held-out test\n", "\n## On tasks that have chosen nothing\n"),
    ("\n| held-out test | passed", "\n| sealed test | passed"),
    ("; scores missing: ", "; scores lost: "),
    ("the two skills miss scores at different rates", "the two skills lose scores unevenly"),
    ("\n## Setup\n", "\n## What it was made with\n"),
    ("\n- certified skill: ", "\n- skill that is certified: "),
    (
        ", including this run; each run may be wrong with a chance of its alpha",
        ", with this one; each may be wrong with a chance of its alpha",
    ),
    ("` checks it.\n", "` computes it again.\n"),
)
"""Fragments of today's text, and what stood in their place."""


def is_text_of(text: str, certificate: Certificate) -> bool:
    """Whether a text is the Markdown of a certificate, in today's words or in those of version 0.1."""
    today = earlier = format_certificate(certificate)
    for new, old in _EARLIER:
        earlier = earlier.replace(new, old)
    return text in (today, earlier)
