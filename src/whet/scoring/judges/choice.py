"""`choice`: the answer is one letter, in <answer> tags or the last one that is named."""

import re

from whet.plain_text import tagged
from whet.scoring.judge import Work
from whet.scoring.score import Score
from whet.tasks.judges import Choice


async def choice(spec: Choice, work: Work) -> Score:
    expected = (spec.answer or work.task.answer or "").strip().upper()
    chosen = chosen_letter(work.answer, spec.choices)
    reason = f"the choice is {chosen}" if chosen else "no single choice was named"
    checks = [{"op": "one_choice", "arg": spec.choices, "passed": chosen is not None}]
    if chosen is not None:
        checks.append({"op": "right", "passed": chosen == expected})
    return Score.of(float(chosen == expected), reason, choice=chosen, checks=checks)


def chosen_letter(text: str, choices: str = "ABCDE") -> str | None:
    """The letter that a text settles on; None when it does not.

    >>> chosen_letter("Not A. <answer>(b)</answer>"), chosen_letter("A or B? It is **C**."), chosen_letter("Dog")
    ('B', 'C', None)
    >>> chosen_letter("<answer>A or B</answer>"), chosen_letter("B. A cat has four legs.")
    (None, 'B')
    """
    answer = tagged(text)
    if answer is not None:
        # Lower case counts here, where nothing but the letter is expected; "a" as a word does not come alone.
        named = {letter.upper() for letter in re.findall(rf"(?<![\w'])([{choices}])(?![\w'])", answer, re.IGNORECASE)}
        return named.pop() if len(named) == 1 else None
    # Of a letter with a small word behind it, such as "A cat", it is not known that it is a choice.
    named_last = re.findall(rf"(?<![\w'])([{choices}])(?![\w'])(?!\s+[a-z])", text)
    return str(named_last[-1]) if named_last else None
