"""What judges run in a process of its own, which this file is the whole program of: it imports nothing of whet.

The request is JSON on standard input, the answer JSON on standard output. It also runs in boxes, by their Python.
"""

import importlib
import json
import os
import re
import resource
import sys
import traceback
from typing import Any

MEMORY = 4 << 30


def regex(request: dict[str, Any]) -> list[bool]:
    """Whether each pattern is found in its text: a pattern may take longer than the universe has."""
    return [re.search(search["pattern"], search["text"], search["flags"]) is not None for search in request["searches"]]


def globs(request: dict[str, Any]) -> list[list[bool]]:
    """For each list of patterns as in a .gitignore: whether they match any of the paths, and whether all."""
    from pathspec import GitIgnoreSpec

    found = []
    for patterns in request["patterns"]:
        matches = [GitIgnoreSpec.from_lines(patterns).match_file(path) for path in request["paths"]]
        found.append([any(matches), all(matches)])
    return found


def schema(request: dict[str, Any]) -> list[str]:
    """What is wrong with a value by a JSON schema. What the schema refers to elsewhere is not fetched."""
    from jsonschema import Draft202012Validator
    from referencing import Registry

    validator = Draft202012Validator(request["schema"], registry=Registry())
    return [
        f"{''.join(f'[{part!r}]' for part in error.absolute_path)}: {error.message[:300]}"
        for _, error in zip(range(20), validator.iter_errors(request["value"]), strict=False)
    ]


def mathematics(request: dict[str, Any]) -> dict[str, Any]:
    """Whether an answer is the expected mathematical object."""
    sys.path.extend(request.get("path", []))
    from math_verify import parse, verify  # type: ignore[import-untyped]

    def read(text: str) -> list[Any]:
        # What is no mathematics is given back as text.
        return [found for found in parse(text, parsing_timeout=None) if not isinstance(found, str)]

    expected = request["expected"]
    gold = read(f"${expected.strip('$')}$") or read(expected)
    if not gold:
        raise ValueError(f"the expected answer {expected[:80]!r} cannot be read as mathematics")
    given = read(request["answer"]) or read(f"${request['answer'].strip('$')}$")
    same = bool(given) and bool(verify(gold, given, timeout_seconds=None, raise_on_error=True))
    return {"same": same, "expected": str(gold[0])[:200], "given": str(given[0])[:200] if given else None}


def function(request: dict[str, Any]) -> Any:
    """What a user's function says of the work. Its files come with the request, into a folder that nobody knows."""
    import base64
    import tempfile
    from pathlib import Path

    folder = tempfile.mkdtemp()
    for path, data in request["files"].items():
        file = Path(folder, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(data))
    sys.path.insert(0, folder)
    os.chdir(folder)
    module, _, name = request["function"].partition(":")
    return getattr(importlib.import_module(module), name)(request["work"])


PROGRAMS = {"regex": regex, "globs": globs, "schema": schema, "math": mathematics, "python": function}


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    # Whatever is printed goes to standard error, so that nothing but the answer is on standard output.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        reply = json.dumps({"answer": PROGRAMS[sys.argv[1]](json.load(sys.stdin))})
    except BaseException as error:  # noqa: BLE001 - all that goes wrong here is the answer
        traceback.print_exc()
        reply = json.dumps({"error": f"{type(error).__name__}: {error}"[:500]})
    answers.write(reply)
    answers.close()


if __name__ == "__main__":
    main()
