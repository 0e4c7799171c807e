"""Which tests failed, as pytest, unittest, Go, Jest, Cargo, TAP or a FAIL line tell it."""

import re

NAMED = 3
"""So many failed tests are named; the others are counted."""
LONGEST = 160
"""Characters of a line that says what is wrong."""
_FAILED = re.compile(
    r"""(?mx)
    ^(?:FAILED|ERROR)\ (?P<pytest>[^\s:]+(?:::[^\n]+?|\.py))(?:\ -\ .*)?$
    | ^(?:FAIL|ERROR):\ (?P<unittest>\w+\ \([\w.]+\))
    | ^\s*---\ FAIL:\ (?P<go>\S+)
    | ^\s*(?:●|✕|✗|×)\ (?P<jest>.+?)(?:\ \(\d+\ m?s\))?$
    | ^FAIL\ +(?!\S*[/.]\S*$)(?P<line>\S.*?)$
    | ^test\ (?P<cargo>\S+)\ \.\.\.\ FAILED$
    | ^\s*not\ ok\ \d+\s+(?:-\s+)?(?P<tap>.+?)$
    """
)
_COMPLAINT = re.compile(r"(?mi)^.*\b(?:FAIL(?:ED|URE)?|\w*Error|not found|No such file)\b.*$")


def find_failed_tests(output: str) -> list[str]:
    """The names of failed tests in the output of a test program, in order, each once.

    >>> find_failed_tests("ok   sorted\\nFAIL the message is short\\nFAIL empty lists")
    ['the message is short', 'empty lists']
    >>> find_failed_tests("FAILED tests/test_a.py::test_mug - assert 3 == 4\\n--- FAIL: TestPlate (0.00s)")
    ['tests/test_a.py::test_mug', 'TestPlate']
    """
    found = (next(name for name in match.groups() if name) for match in _FAILED.finditer(output))
    return list(dict.fromkeys(name.strip() for name in found))


def describe_failure(output: str) -> str:
    """What went wrong, in a few words: the failed tests, or the last line that complains, or the last line.

    >>> describe_failure("checking\\nFAIL: price of mug is 3, expected 4\\n")
    'FAIL: price of mug is 3, expected 4'
    """
    if names := find_failed_tests(output):
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return f"failed: {', '.join(name[:LONGEST] for name in names[:NAMED])}{more}"
    complaints = _COMPLAINT.findall(output) or [line for line in output.splitlines() if line.strip()]
    return complaints[-1].strip()[:LONGEST] if complaints else "no output"
