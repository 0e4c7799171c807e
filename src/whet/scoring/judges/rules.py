"""`rules`: checks of the answer, of the tools that were called and of files. Hard is all of them, soft the share."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.scoring.answers import has_words, is_refusal
from whet.scoring.isolation.search import no_verdict_details, search
from whet.scoring.judge import JudgeError, ObservedCall, Work
from whet.scoring.score import Score
from whet.tasks.checks import (
    OF_CALLS,
    AnyCheck,
    FileCheck,
    FileWordsCheck,
    LengthCheck,
    NoRefusalCheck,
    PatternCheck,
    SectionCheck,
    SkillCheck,
    WordsCheck,
    command_pattern,
)
from whet.tasks.judges import RulesSpec
from whet.text.plain import read_json

_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_HEADING = re.compile(r"^ {0,3}(#{1,6})(?=[ \t]|$)")
_VIEWERS = frozenset({"str_replace_editor", "str_replace_based_edit_tool"})
"""Editors that show files, too."""
_EDITORS = _VIEWERS | {
    *("edit", "multiedit", "write", "notebookedit", "apply_patch", "patch", "create", "replace", "write_file"),
    *("edit_file", "create_file", "search_replace"),
}
"""The agents' tools that change files, in lower case."""
_APPLIES_PATCH = re.compile(command_pattern("apply_patch"))
_COMMAND_KEYS = frozenset({"command", "cmd", "commands", "script", "code"})


async def rules(spec: RulesSpec, work: Work) -> Score:
    found = await search(_searches(spec.checks, work))
    matched = iter(found)
    results = []
    for check in spec.checks:
        good = next(matched) if isinstance(check, PatternCheck) else await _passes(check, work)
        stalled = {"problem": "its pattern took too long on this text"} if good is None else {}
        if check.op == "command_not_ran" and good is not None:
            good = not good
        passed = _check_known(check, good is True, work)
        results.append({**check.model_dump(exclude_none=True), "passed": passed, **stalled})
    failed = [result for result in results if not result["passed"]]
    named = ", ".join(map(_name, failed))
    reason = f"{len(results) - len(failed)} of {len(results)} checks passed" + (
        f"; failed: {named[:300]}" if named else ""
    )
    return Score.of(1 - len(failed) / len(results), reason, checks=results, **no_verdict_details(found))


def _name(result: Mapping[str, Any]) -> str:
    """A check with what it asks for, and the file that it asks about."""
    where = f" in {result['path']}" if "path" in result else ""
    return (f"{result['op']}={result['arg']}" if "arg" in result else str(result["op"])) + where


def _check_known(check: AnyCheck, good: bool, work: Work) -> bool:
    """What is not on record is not known to be absent."""
    if not work.captured and isinstance(check, WordsCheck | PatternCheck) and not _is_logged(check.op, good):
        unknown = f"{check.op}={check.arg}: the agent's calls were not captured, so it is not known"
        raise JudgeError(unknown, unrelated=True)
    return good


def _is_logged(op: str, good: bool) -> bool:
    """Whether the log of the task's own programs is enough for this result."""
    match op:
        case "tool_called" | "command_ran":
            return good
        case "command_not_ran":
            return not good
    return op not in OF_CALLS


async def _passes(check: AnyCheck, work: Work) -> bool:
    match check:
        case FileCheck(arg=path):
            return await work.read_file(path) is not None
        case FileWordsCheck(path=path, arg=text):
            content = await work.read_file(path)
            return content is not None and has_words(content.decode(errors="replace"), text)
        case SkillCheck(op=op):
            if work.skill_read is None:
                raise JudgeError(f"{op}: the agent's prompts were not captured, so it is not known", unrelated=True)
            return work.skill_read is (op == "skill_read")
        case WordsCheck(op="tool_called", arg=name):
            return any(call.name.casefold() == name.casefold() for call in work.calls)
    # A text that is not there has no form and no content: silence passes no check of it.
    return bool(work.answer.strip()) and text_passes(check, work.answer)


def text_passes(check: AnyCheck, text: str) -> bool:
    """Whether a text passes a check that asks for nothing but the text."""
    match check:
        case SectionCheck(op="section_present", arg=name):
            return any(_is_heading(line, name) for line in _lines(text))
        case SectionCheck(arg=name, text=wanted):
            return any(
                name.casefold() in section.title.casefold() and (wanted is None or has_words(section.text, wanted))
                for section in sections(text)
            )
        case LengthCheck(op="max_chars", arg=bound):
            return len(text) <= bound
        case LengthCheck(arg=bound):
            return len(text) >= bound
        case WordsCheck(op="contains", arg=phrase):
            return has_words(text, phrase)
        case WordsCheck(op="not_contains", arg=phrase):
            return not has_words(text, phrase)
        case NoRefusalCheck():
            return not is_refusal(text)
    raise AssertionError(check)


def _searches(checks: Sequence[AnyCheck], work: Work) -> list[tuple[str, str]]:
    """Pattern and text of each check that is one; of silence nothing is asked."""
    never = r"(?!)"
    said = {"regex": work.answer} if work.answer.strip() else {}
    texts = {
        "command_ran": _join_commands(work.calls),
        "command_not_ran": _join_commands(work.calls),
        "command_ran_after_edit": _join_commands(_after_edits(work.calls)),
        **said,
    }
    return [
        (check.arg, texts[check.op]) if check.op in texts else (never, "")
        for check in checks
        if isinstance(check, PatternCheck)
    ]


def _join_commands(calls: Iterable[ObservedCall]) -> str:
    return "\n".join(command for call in calls for command in commands_of(call))


def _after_edits(calls: Sequence[ObservedCall]) -> list[ObservedCall]:
    """The calls after the last edit. The order of the model's calls is on record; that of a task's programs is not."""
    asked = [call for call in calls if call.by == "model"]
    edits = [index for index, call in enumerate(asked) if is_edit(call)]
    return asked[edits[-1] + 1 :] if edits else asked


def is_edit(call: ObservedCall) -> bool:
    """Whether a call changes a file by a tool for that. Commands that change files are not seen, except apply_patch.

    >>> [is_edit(ObservedCall(name, '{"command": "sed -i s/a/b/ x"}', "model")) for name in ("Edit", "bash")]
    [True, False]
    """
    if call.by == "program":
        return False
    if call.name.casefold() in _EDITORS:
        return '"view"' not in call.arguments[:200] or call.name.casefold() not in _VIEWERS
    return any(_APPLIES_PATCH.search(command) for command in commands_of(call))


def commands_of(call: ObservedCall) -> Iterator[str]:
    """The command lines of a call.

    >>> list(commands_of(ObservedCall("bash", '{"command": "ls -l", "timeout": 5}', "model")))
    ['ls -l']
    """
    if call.by == "program":
        yield f"{call.name} {call.arguments}".rstrip()
        return
    try:
        given = read_json(call.arguments)
    except ValueError:
        yield call.arguments  # a tool that takes text as it is
        return
    for key, value in given.items() if isinstance(given, dict) else ():
        if key in _COMMAND_KEYS:
            yield value if isinstance(value, str) else " ".join(map(str, value)) if isinstance(value, list) else ""


@dataclass(frozen=True, slots=True)
class SectionText:
    title: str
    text: str


def sections(text: str) -> list[SectionText]:
    """The sections of a Markdown text: each heading with all that stands under it, smaller headings too."""
    lines = list(_lines(text))
    open_ones: list[tuple[int, int, str]] = []
    found: list[tuple[int, SectionText]] = []
    for index in range(len(lines) + 1):
        heading = _read_heading(lines[index]) if index < len(lines) else (0, "")
        if heading is None:
            continue
        while open_ones and open_ones[-1][1] >= heading[0]:
            start, _, title = open_ones.pop()
            found.append((start, SectionText(title, "\n".join(lines[start + 1 : index]))))
        open_ones.append((index, *heading))
    return [section for _, section in sorted(found, key=lambda one: one[0])]


def _read_heading(line: str) -> tuple[int, str] | None:
    """Level and title of a heading; None for other lines."""
    mark = _HEADING.match(line)
    if mark is None:
        return None
    title = line[mark.end() :].strip()
    bare = title.rstrip("#")
    return len(mark[1]), bare.rstrip() if not bare or bare[-1].isspace() else title


def _lines(text: str) -> Iterator[str]:
    """The lines of a text; in a block of code, where `#` is no heading, they are indented."""
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
            fence = ""
        yield f"    {line}" if fence else line


def _is_heading(line: str, name: str) -> bool:
    """Whether a line is a heading that ends with this name, a bold line with it, or begins with it and a colon."""
    name, folded = name.casefold().strip(), line.casefold()
    heading = _read_heading(folded)
    if heading is not None:
        title = heading[1].rstrip(" \t:*_")
        before = title.removesuffix(name)
        return title.endswith(name) and not re.search(r"\w\Z", before)
    bold = re.fullmatch(r"\s{0,3}\*\*(.+?)\*\*:?\s*", folded)
    if bold is not None:
        return has_words(bold[1], name)
    return not line.startswith("    ") and folded.lstrip().startswith(f"{name}:")
