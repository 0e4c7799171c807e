"""`choice`: the answer is one letter, in <answer> tags or the last one that is named."""

import re

from whet.scoring.judge import Work
from whet.scoring.score import Score
from whet.tasks.judges import ChoiceSpec
from whet.text.plain import find_tagged


async def choice(spec: ChoiceSpec, work: Work) -> Score:
    expected = (spec.answer or work.task.answer or "").strip().upper()
    chosen = find_choice(work.answer, spec.choices)
    reason = f"the choice is {chosen}" if chosen else "the answer does not settle on one choice"
    checks = [{"op": "one_choice", "arg": spec.choices, "passed": chosen is not None}]
    if chosen is not None:
        checks.append({"op": "right", "passed": chosen == expected})
    return Score.of(float(chosen == expected), reason, choice=chosen, checks=checks)


def find_choice(text: str, choices: str = "ABCDE") -> str | None:
    """The letter that a text settles on; None when it does not.

    >>> find_choice("Not A. <answer>(b)</answer>"), find_choice("A or B? It is **C**."), find_choice("Dog")
    ('B', 'C', None)
    >>> find_choice("<answer>A or B</answer>"), find_choice("B. A cat has four legs.")
    (None, 'B')
    """
    answer = find_tagged(text)
    if answer is not None:
        # Lower case counts here, where nothing but the letter is expected; "a" as a word does not come alone.
        named = {letter.upper() for letter in re.findall(rf"(?<![\w'])([{choices}])(?![\w'])", answer, re.IGNORECASE)}
        return named.pop() if len(named) == 1 else None
    # Of a letter with a small word behind it, such as "A cat", it is not known that it is a choice.
    named_last = re.findall(rf"(?<![\w'])([{choices}])(?![\w'])(?!\s+[a-z])", text)
    return str(named_last[-1]) if named_last else None
