"""Reads command lines as a shell would: which programs run, with which words."""

import re
import shlex

_BETWEEN = re.compile(r"[;&|()]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")
_REDIRECTION = re.compile(r"\d*(?:[<>]+&?|&>+)\S*")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
WRAPPERS = (
    *(("npx",), ("pnpm", "exec"), ("yarn", "exec"), ("bunx",), ("sudo",), ("time",), ("env",), ("nice",)),
    *(("uv", "run"), ("poetry", "run"), ("pipenv", "run"), ("python", "-m"), ("python3", "-m"), ("bundle", "exec")),
)
"""Words in front of a program that run it."""


def read_commands(line: str) -> list[tuple[str, ...]]:
    """The simple commands of a command line, without variables and redirections.

    >>> read_commands("cd src && CI=1 pytest -q 2>&1 | tail -5")
    [('cd', 'src'), ('pytest', '-q'), ('tail', '-5')]
    """
    return [command for part in _without_documents(line) for command in _read_line(part)]


def _without_documents(line: str) -> list[str]:
    """The lines that are commands, not the text that a here-document holds."""
    kept: list[str] = []
    end = ""
    for part in line.replace("\\\n", " ").split("\n"):
        if end:
            end = "" if part.strip() == end else end
            continue
        if not part.strip():
            continue
        kept.append(part)
        opened = _HEREDOC.search(part)
        end = opened[2] if opened else ""
    return kept


def _read_line(line: str) -> list[tuple[str, ...]]:
    commands: list[tuple[str, ...]] = []
    words: list[str] = []
    for token in [*_tokens(line), ";"]:
        if not _BETWEEN.fullmatch(token):
            words.append(token)
            continue
        if command := _bare(words):
            commands.append(command)
        words = []
    return commands


def _tokens(line: str) -> list[str]:
    line = re.sub(r"&>+", " >", re.sub(r"\d*[<>]&\d*-?", " ", line))  # else an ampersand of these separates commands
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:  # an open quote
        return line.split()


def _bare(words: list[str]) -> tuple[str, ...]:
    """A command without the variables in front of it and without its redirections."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif _REDIRECTION.fullmatch(word):
            skip = not word.strip("0123456789<>&")  # its file is the next word
        elif kept or not _ASSIGNMENT.fullmatch(word):
            kept.append(word)
    return tuple(kept)


def unwrap(command: tuple[str, ...]) -> tuple[str, ...]:
    """A command without the words that only start it.

    >>> unwrap(("uv", "run", "pytest", "-q"))
    ('pytest', '-q')
    """
    for wrapper in WRAPPERS:
        if command[: len(wrapper)] == wrapper and len(command) > len(wrapper):
            return unwrap(command[len(wrapper) :])
    return command


_CHANGES = frozenset(
    {"tee", "patch", "apply_patch", "mv", "cp", "rm", "touch", "mkdir", "rmdir", "ln", "truncate", "dd"}
)
_GIT_CHANGES = frozenset({"checkout", "switch", "stash", "reset", "restore", "pull", "merge", "rebase", "apply", "am"})
_IN_PLACE = re.compile(r"-\w*i\b.*|--in-place.*|--write|--fix|-w")
_INTERPRETERS = re.compile(r"(?:python[\d.]*|node|perl|ruby|bash|sh)")


def writes_files(line: str) -> bool:
    """Whether a command line may change files of the working directory by itself, as an editor does.

    >>> writes_files("sed -i s/a/b/ x"), writes_files("cat x > y"), writes_files("pytest 2>/dev/null")
    (True, True, False)
    """
    return bool(re.search(r"(?<![\d&<>=-])>{1,2}(?!\s*(?:/dev/|&))", _strip_quoted(line))) or any(
        _changes(command, line) for command in read_commands(line)
    )


def _strip_quoted(line: str) -> str:
    return re.sub(r"'[^']*'|\"[^\"]*\"", "", line)


def _changes(command: tuple[str, ...], line: str) -> bool:
    program, words = command[0].rpartition("/")[2], command[1:]
    if program == "git":
        return bool(words) and words[0] in _GIT_CHANGES
    if program in {"sed", "perl", "ruff", "eslint", "prettier", "gofmt"}:
        return any(_IN_PLACE.fullmatch(word) for word in words)
    if _INTERPRETERS.fullmatch(program):
        return bool({"-c", "-e", "-"} & {*words}) or "<<" in line
    return program in _CHANGES
