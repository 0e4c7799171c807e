"""Checks in plain words: the requirement, for a proposer or a user, and the rule that tells an agent to meet it."""

from collections.abc import Callable
from dataclasses import dataclass

from whet.skills.proposers.criteria.checks import Criterion, FailingCheck
from whet.skills.proposers.criteria.regex import Shape, shape_of
from whet.tasks.checks import command_of_pattern


@dataclass(frozen=True, slots=True)
class Wording:
    requirement: str
    """What the check requires of the work."""
    rule: str = ""
    """The same as an instruction; empty when every instruction would give away an answer or help nobody."""
    steps: str = ""
    """Example steps, where a worked answer cannot show the rule."""


def format_failing(failing: FailingCheck) -> str:
    """A failing check for a proposer: in plain words, with its short form and its count.

    >>> format_failing(FailingCheck(Criterion("max_chars", 40), 12, 20, 5))
    'The whole answer has at most 40 characters. [max_chars=40, failed in 12 of 20 rollouts]'
    """
    count = f"failed in {failing.failed} of {failing.rollouts} rollouts"
    requirement = format_requirement(failing.criterion, shared=failing.shared)
    return f"{requirement} [{failing.criterion.short}, {count}]" if failing.shared else f"{requirement} [{count}]"


def format_requirement(criterion: Criterion, *, shared: bool) -> str:
    """What a check requires. A check of only one task is not quoted word for word: it may contain the answer."""
    if shared:
        return describe_check(criterion).requirement
    return _OF_ONE_TASK.get(criterion.op, "A check that only one task has passes.")


_OF_ONE_TASK = {
    "contains": "The answer contains words that only one task expects.",
    "contains_any": "The answer contains words that only one task expects.",
    "not_contains": "The answer does not contain words that only one task forbids.",
    "regex": "The answer has a form that only one task expects.",
    "rubric": "The work meets the rubric of one task.",
    "command": "A command that only one task runs on the work succeeds.",
    "file_exists": "A file that only one task names exists.",
    "file_contains": "A file that only one task names contains certain words.",
}


def describe_check(criterion: Criterion) -> Wording:
    """The requirement and the rule of a check."""
    if (describe := _COMPUTED.get(criterion.op)) is not None:
        return describe(criterion)
    words = (_ANSWER | _WORK).get(criterion.op)
    if words is None:
        return Wording(f"The check {criterion.short} passes.")
    given = {"arg": criterion.arg, "path": criterion.path, "key": str(criterion.arg).removeprefix("answer.")}
    return Wording(*(text.format(**given) for text in (words.requirement, words.rule, words.steps)))


_ALWAYS_ANSWER = "Always give an answer in words. Never refuse, and never end without an answer."

_ANSWER = {
    "max_chars": Wording(
        "The whole answer has at most {arg} characters.",
        "Keep the whole answer under {arg} characters. Say the answer and nothing else.",
    ),
    "min_chars": Wording(
        "The whole answer has at least {arg} characters.",
        "Write at least {arg} characters: first the answer, then an explanation.",
    ),
    "contains": Wording('The answer contains "{arg}".', 'Use "{arg}" in every answer.'),
    "not_contains": Wording('The answer does not contain "{arg}".', 'Never write "{arg}" in an answer.'),
    "section_present": Wording(
        'The answer has a heading titled "{arg}".', 'Put the answer under a heading titled "{arg}".'
    ),
    "no_refusal": Wording("The answer is more than a refusal.", _ALWAYS_ANSWER),
    "answered": Wording("There is an answer.", _ALWAYS_ANSWER),
    "bare_answer": Wording(
        "The answer is the expected one and nothing else.",
        "Answer only with what was asked for: no sentence around it, no explanation.",
    ),
    "one_choice": Wording(
        "The answer names exactly one of the letters {arg}.",
        "When there are several choices, name exactly one: end with its letter between <answer> and </answer>.",
    ),
    "json": Wording("The answer is one JSON value.", "Answer with one JSON object and nothing else."),
    "json_key": Wording('The JSON of the answer has the key "{key}".', 'Include the key "{key}" in your JSON.'),
    "mathematics": Wording(
        "The answer contains a formula or a number.", r"Put the result, as a formula, into \boxed{{}}."
    ),
    "right": Wording("The answer is right."),
}
"""Checks of the final answer. `{arg}` is the argument of the check."""

_LOOK_AT_CHANGES = "before you finish, look at everything you changed, and undo what breaks this rule."

_WORK = {
    "rubric": Wording('The work meets this requirement: "{arg}"', "In everything you do, make sure of this: {arg}"),
    "tool_called": Wording(
        "The agent calls the tool `{arg}`.",
        "Call the tool `{arg}` before you answer. It is not enough to say that you did.",
        "call `{arg}`, read what it returns, and only then answer.",
    ),
    "file_exists": Wording(
        "The file `{arg}` exists at the end.",
        "Write the file `{arg}`.",
        "create `{arg}` in the working directory, and check with `ls` that it is there before you finish.",
    ),
    "file_contains": Wording(
        'The file `{path}` contains "{arg}".',
        'Write "{arg}" into the file `{path}`.',
        "before you finish, read `{path}` and add what is missing.",
    ),
    "changed": Wording("A file that matches `{arg}` is changed.", "Make your change in `{arg}`."),
    "untouched": Wording("No file that matches `{arg}` is changed.", "Never change `{arg}`.", _LOOK_AT_CHANGES),
    "only": Wording("No file except `{arg}` is changed.", "Change only `{arg}`.", _LOOK_AT_CHANGES),
    "adds": Wording("A line that matches the pattern `{arg}` is added."),
    "removes": Wording("A line that matches the pattern `{arg}` is removed."),
    "lacks": Wording("No line that matches the pattern `{arg}` is added."),
    "ended": Wording(
        "The agent stops by itself.",
        "Stop as soon as the task is done, and say what you did.",
        "when the last thing that the task asks for is done, answer in one sentence and run nothing more.",
    ),
    "last_call": Wording(
        "The last command does not fail.",
        "When a command fails, read the error, fix the cause and run the command again before you finish.",
        "after `No such file or directory`, list the folder, use the right name, and run the command again.",
    ),
    "python": Wording("The user's own check passes."),
    "skill_read": Wording(
        "The agent reads the skill. It decides so by the description of the skill.",
        "Always read this skill before you start.",
    ),
    "skill_not_read": Wording(
        "The agent does not read the skill. It decides so by the description of the skill.",
        "Read this skill only for tasks that it is about.",
    ),
}
"""Checks of files, of commands and of how the work ends."""


def _describe_regex(criterion: Criterion) -> Wording:
    shape = shape_of(str(criterion.arg))
    return Wording(f"The answer matches the pattern `{criterion.arg}`.", _shape_rule(shape) if shape else "")


def _shape_rule(shape: Shape) -> str:
    match shape:
        case Shape(before="**", after="**", filled=True):
            return "Write the answer in bold: ** before it and ** after it."
        case Shape(filled=True, before=before, after="") if before:
            return f'Write "{before.strip()}" before the answer.'
        case Shape(filled=True, before="", after=after):
            return f'Write "{after.strip()}" after the answer.'
        case Shape(filled=True, before=before, after=after):
            return f'Write "{before.strip()}" before the answer and "{after.strip()}" after it.'
        case Shape(first=True, before=text):
            return f'Begin every answer with "{text.strip()}".'
        case Shape(last=True, before=text):
            return f'End every answer with "{text.strip()}".'
    return f'Use "{shape.before.strip()}" in every answer.'


def _describe_command_ran(criterion: Criterion) -> Wording:
    line = _command_line(criterion)
    after = " after its last edit" if criterion.op == "command_ran_after_edit" else ""
    when = "After your last edit, run" if after else "Run"
    return Wording(
        f"The agent runs {_quote_command(criterion)}{after}.",
        f"{when} `{line}` before you finish." if line else "",
        f"run `{line}`, read what it prints, fix what it reports, and only then answer."
        if not after
        else f"change the files, run `{line}`, fix what it reports, run `{line}` again, and only then answer.",
    )


def _describe_command_not_ran(criterion: Criterion) -> Wording:
    line = _command_line(criterion)
    return Wording(
        f"The agent does not run {_quote_command(criterion)}.",
        f"Never run `{line}`." if line else "",
        f"before you run a command, check that it is not `{line}`; look in the repository for what is used instead.",
    )


def _command_line(criterion: Criterion) -> str:
    """The command that a pattern asks for; empty when it cannot be told."""
    pattern = str(criterion.arg)
    shape = shape_of(pattern)
    return command_of_pattern(pattern) or (shape.before if shape and not shape.filled else "")


def _quote_command(criterion: Criterion) -> str:
    command = command_of_pattern(str(criterion.arg))
    return f"`{command}`" if command else f"a command that matches the pattern `{criterion.arg}`"


def _describe_contains_any(criterion: Criterion) -> Wording:
    words = criterion.arg if isinstance(criterion.arg, tuple) else (str(criterion.arg),)
    named = " or ".join(f'"{one}"' for one in words)
    return Wording(f"The answer contains {named}.", f"Use {named} in every answer.")


def _describe_section_contains(criterion: Criterion) -> Wording:
    title, text = criterion.arg, criterion.text
    heading = f'The answer has a heading with "{title}" in it'
    rule = f'Give the answer a heading with "{title}" in it'
    if text is None:
        return Wording(f"{heading}.", f"{rule}.")
    return Wording(f'{heading}, and "{text}" under it.', f'{rule}, and write "{text}" under it.')


def _describe_number(criterion: Criterion) -> Wording:
    units = criterion.arg if isinstance(criterion.arg, tuple) else ()
    within = f", in one of these units: {', '.join(units)}" if units else ""
    return Wording(f"The answer ends with a number{within}.", f"End the answer with the number{within}.")


def _describe_json_schema(criterion: Criterion) -> Wording:
    keys = criterion.arg if isinstance(criterion.arg, tuple) else ()
    having = f" with the keys {', '.join(keys)}" if keys else " in the form that the task asks for"
    return Wording(f"The answer is JSON{having}.", f"Answer with one JSON object{having}, and nothing else.")


def _describe_tests(criterion: Criterion) -> Wording:
    command = f"The command `{criterion.arg}` succeeds after the work."
    return Wording(
        command if criterion.arg else "The hidden tests of the task pass.",
        "Before you finish, run what you made and check that it does everything the task says.",
        "after the last change, run the program with an input from the task and compare what it prints.",
    )


_COMPUTED: dict[str, Callable[[Criterion], Wording]] = {
    "regex": _describe_regex,
    "command_ran": _describe_command_ran,
    "command_ran_after_edit": _describe_command_ran,
    "command_not_ran": _describe_command_not_ran,
    "contains_any": _describe_contains_any,
    "section_contains": _describe_section_contains,
    "a_number": _describe_number,
    "json_schema": _describe_json_schema,
    "tests": _describe_tests,
    "command": _describe_tests,
}
"""Checks whose wording depends on more than their argument."""
