"""Criteria in plain words: what is asked, for a writer to read, and the rule that asks it of an agent."""

from dataclasses import dataclass

from whet.skills.proposers.criteria.checks import Criterion, Failing
from whet.skills.proposers.criteria.regex import Shape, shape_of


@dataclass(frozen=True, slots=True)
class Wording:
    asked: str
    """What is asked of the work."""
    rule: str = ""
    """The same as an instruction; empty when none would help that does not give away an answer."""
    how: str = ""
    """What to do, for example, where an answer cannot show it."""


def told(failing: Failing) -> str:
    """A failing criterion for a writer: in plain words, with its short form and its count.

    >>> told(Failing(Criterion("max_chars", 40), 12, 20, 5))
    'The whole answer has at most 40 characters. [max_chars=40, not met in 12 of 20 trials]'
    """
    count = f"not met in {failing.failed} of {failing.rollouts} trials"
    asked = asked_in_words(failing.criterion, shared=failing.shared)
    return f"{asked} [{failing.criterion.short}, {count}]" if failing.shared else f"{asked} [{count}]"


def asked_in_words(criterion: Criterion, *, shared: bool) -> str:
    """What a criterion asks. What one task alone asks for is not told word for word: it may be its answer."""
    if shared:
        return wording(criterion).asked
    return _ALONE.get(criterion.op, "Something that one task alone asks for.")


_ALONE = {
    "contains": "The answer has certain words that one task alone waits for.",
    "contains_any": "The answer has certain words that one task alone waits for.",
    "not_contains": "The answer lacks certain words that one task alone forbids.",
    "regex": "The answer has a form that one task alone waits for.",
    "rubric": "The work meets the rubric of one task.",
    "command": "A command that one task alone runs on the work ends well.",
    "file_exists": "A file that one task alone names is there.",
    "file_contains": "A file that one task alone names holds certain words.",
}


def wording(criterion: Criterion) -> Wording:
    """A criterion in words."""
    match criterion:
        case Criterion(op="regex", arg=str(pattern)):
            return _pattern(pattern)
        case Criterion(op="command_ran", arg=str(pattern)):
            shape = shape_of(pattern)
            line = shape.before if shape and not shape.filled else ""
            return Wording(
                f"A command that matches the pattern `{pattern}` is run.",
                f"Run `{line}` before you finish." if line else "",
                f"run `{line}`, read what it prints, put right what it complains of, and only then answer.",
            )
    return _of_answer(criterion) or _of_work(criterion) or Wording(f"The check {criterion.short} passes.")


def _pattern(pattern: str) -> Wording:
    shape = shape_of(pattern)
    return Wording(f"The answer matches the pattern `{pattern}`.", _shape_rule(shape) if shape else "")


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


def _of_answer(criterion: Criterion) -> Wording | None:
    """What is asked of the final answer."""
    match criterion:
        case Criterion(op="max_chars", arg=bound):
            return Wording(
                f"The whole answer has at most {bound} characters.",
                f"Keep the whole answer under {bound} characters. Say the answer and nothing else.",
            )
        case Criterion(op="min_chars", arg=bound):
            return Wording(
                f"The whole answer has at least {bound} characters.",
                f"Write at least {bound} characters: the answer, and then what explains it.",
            )
        case Criterion(op="contains", arg=words):
            return Wording(f'The answer has the words "{words}" in it.', f'Use "{words}" in every answer.')
        case Criterion(op="contains_any", arg=tuple(words)):
            named = " or ".join(f'"{one}"' for one in words)
            return Wording(f"The answer has {named} in it.", f"Use {named} in every answer.")
        case Criterion(op="not_contains", arg=words):
            return Wording(
                f'The answer does not have the words "{words}" in it.', f'Never write "{words}" in an answer.'
            )
        case Criterion(op="section_present", arg=title):
            return Wording(
                f'The answer has a heading titled "{title}".', f'Put the answer under a heading titled "{title}".'
            )
        case Criterion(op="section_contains", arg=title, text=None):
            return Wording(
                f'The answer has a heading with "{title}" in it.', f'Give the answer a heading with "{title}" in it.'
            )
        case Criterion(op="section_contains", arg=title, text=text):
            return Wording(
                f'The answer has a heading with "{title}" in it, and "{text}" stands under it.',
                f'Give the answer a heading with "{title}" in it, and write "{text}" under it.',
            )
        case Criterion(op="no_refusal" | "answered" as op):
            asked = "There is an answer." if op == "answered" else "The answer is more than a refusal."
            return Wording(asked, "Always give an answer in words. Never refuse, and never end without one.")
        case Criterion(op="bare_answer"):
            return Wording(
                "The answer is the expected one and nothing besides.",
                "Answer with the thing asked for alone: no sentence around it, no explanation.",
            )
        case Criterion(op="one_choice", arg=letters):
            return Wording(
                f"The answer names exactly one of the letters {letters}.",
                "Of several choices, name exactly one: end with its letter between <answer> and </answer>.",
            )
        case Criterion(op="a_number", arg=tuple(units)):
            within = f", in one of these units: {', '.join(units)}" if units else ""
            return Wording(f"The answer ends with a number{within}.", f"End the answer with the number{within}.")
        case Criterion(op="json"):
            return Wording("The answer is one JSON value.", "Answer with one JSON object and nothing else.")
        case Criterion(op="json_schema", arg=tuple(keys)):
            having = f" with the keys {', '.join(keys)}" if keys else " in the form that the task asks for"
            return Wording(f"The answer is JSON{having}.", f"Answer with one JSON object{having}, and nothing else.")
        case Criterion(op="json_key", arg=str(place)):
            key = place.removeprefix("answer.")
            return Wording(
                f'The JSON of the answer has the key "{key}".', f'Have the key "{key}" in the JSON you give.'
            )
        case Criterion(op="mathematics"):
            return Wording("The answer holds a formula or a number.", r"Put the result, as a formula, into \boxed{}.")
        case Criterion(op="right"):
            return Wording("The answer is right.")
    return None


def _of_work(criterion: Criterion) -> Wording | None:
    """What is asked of files, of commands and of the way to the end."""
    arg = criterion.arg
    match criterion.op:
        case "rubric":
            return Wording(f'The work meets this: "{arg}"', f"See to this in all you do: {arg}")
        case "tool_called":
            return Wording(
                f"The tool `{arg}` is really called.",
                f"Call the tool `{arg}` before you answer. To say that you did is not enough.",
                f"call `{arg}`, read what it gives back, and only then answer.",
            )
        case "file_exists":
            return Wording(
                f"There is a file `{arg}` at the end.",
                f"Write the file `{arg}`.",
                f"make `{arg}` in the working directory, and look with `ls` that it is there before you finish.",
            )
        case "file_contains":
            return Wording(
                f'The file `{criterion.path}` has the words "{arg}" in it.',
                f'Write "{arg}" into the file `{criterion.path}`.',
                f"look into `{criterion.path}` before you finish, and add what it lacks.",
            )
        case "changed":
            return Wording(f"A file that matches `{arg}` is changed.", f"Make your change in `{arg}`.")
        case "untouched" | "only":
            only = criterion.op == "only"
            asked = f"Nothing but `{arg}` is changed." if only else f"Nothing that matches `{arg}` is changed."
            rule = f"Change nothing but `{arg}`." if only else f"Never change `{arg}`."
            return Wording(asked, rule, "look at all that you changed before you finish, and undo what breaks this.")
        case "adds" | "removes":
            done = "added" if criterion.op == "adds" else "removed"
            return Wording(f"A line that matches the pattern `{arg}` is {done}.")
        case "lacks":
            return Wording(f"No line that matches the pattern `{arg}` is added.")
        case "tests" | "command":
            shown = f"The command `{arg}` ends well after the work." if arg else "The hidden tests of the task pass."
            return Wording(
                shown,
                "Before you finish, run what you made and look whether it does all that the task says.",
                "after the last change run the program with an input of the task and compare what it prints.",
            )
        case "ended":
            return Wording(
                "The agent ends by itself.",
                "Stop as soon as the task is done, and say what you did.",
                "when the last thing that the task asks for is done, answer in one sentence and run nothing more.",
            )
        case "last_call":
            return Wording(
                "The last command does not fail.",
                "When a command fails, read the error, put it right and run it again before you finish.",
                "after `No such file or directory`, list the folder, take the right name, and run the command again.",
            )
        case "python":
            return Wording("The check that the user wrote is content.")
    return None
