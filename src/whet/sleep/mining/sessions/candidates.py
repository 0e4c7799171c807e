"""Candidate tasks of a session: what the agent was asked, the files it started with, a judge, and the known work.

A candidate is not a task yet: proof.py runs it.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

from whet.errors import UserError
from whet.sleep.bank import TaskKind, list_changed_paths
from whet.sleep.mining.sessions.commands import find_verifications
from whet.sleep.mining.sessions.commits import find_commits
from whet.sleep.mining.sessions.refusals import refuse_session
from whet.sleep.mining.sessions.work import SessionWork, find_work, write_solution
from whet.sleep.repository import Lost, find_state, read_state
from whet.sleep.rules.corrections import Vocabulary, read_correction
from whet.sleep.rules.sentences import read_sentences
from whet.sleep.session import Session, Speaker, Turn
from whet.sleep.shell import read_commands
from whet.tasks.git import Tree
from whet.tasks.skeleton import APPLY, TaskParts, belongs_to_tests, find_runner, is_test, read_change, read_tree

LARGEST_HIDDEN = 5_000_000
"""Bytes of test files that are put back over the agent's work before a command judges it."""
_JUDGE = """#!/bin/bash
# {about} Tests are copied over the agent's work. The work runs with whet-untrusted, apart from this judge.
# canary {canary}
scratch="${{WHET_SCRATCH:-$(mktemp -d)}}"
mkdir -p "$scratch/files"
if [ -d /tests/files ]; then cp -r /tests/files "$scratch"; fi
untrusted="$(command -v whet-untrusted)"
${{untrusted:+whet-untrusted --time 800}} bash -c {script} "$scratch"
if [ $? = 0 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


Safe = Callable[[bytes], bool]
"""Whether the content of a file may come into a box."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task that is still to be proved."""

    kind: TaskKind
    parts: TaskParts
    paths: tuple[str, ...]
    """The files that its solution changes, without tests."""
    agreement: str
    """How much of the repository's state was seen to agree."""


def mine_session(
    session: Session, repository: Path, data: Path | None = None, *, scripts: bool = False, safe: Safe = lambda _: True
) -> list[Candidate] | Lost:
    """Make candidates of a session, the most telling first: judged by a verification command of it, or by the tests
    of its commit.

    `data` is the user's data folder. A file whose content is not `safe` does not come into the task.
    """
    if cause := refuse_session(session, scripts=scripts):
        return Lost(cause)
    try:
        by_command = _judge_by_commands(session, repository, data, safe)
        by_commit = _judge_by_commit(session, repository, safe)
        return by_commit or by_command if isinstance(by_command, Lost) else by_command + by_commit
    except UserError as error:
        return Lost(str(error))


def _judge_by_commands(session: Session, repository: Path, data: Path | None, safe: Safe) -> list[Candidate] | Lost:
    state = find_state(session, repository, data)
    if isinstance(state, Lost):
        return state
    work = find_work(session, state)
    if isinstance(work, Lost):
        return work
    verifications = find_verifications(session)
    if not verifications:
        return Lost("no verification command passed after its changes")
    own = {path: text for path, text in work.files.items() if not belongs_to_tests(path)}
    if not own and not work.commands:
        return Lost("it changed tests only")
    tree = {path: file for path, file in read_state(state).items() if safe(file.content)}
    parts = TaskParts(
        write_instruction(session),
        "",
        write_solution(SessionWork(own, work.commands)),
        tree,
        {**_name_files("solution/files", own), **_hide_tests(tree, work.files)},
    )
    judges = [_write_judge(f"Runs `{command}`.", command) for command in verifications]
    paths = tuple(sorted({*own, *_named_files(work, tree)}))
    return [Candidate(TaskKind.COMMAND, replace(parts, judge=judge), paths, state.agreement) for judge in judges]


def _named_files(work: SessionWork, tree: Tree) -> set[str]:
    """The files, without tests, that the commands of a session name."""
    words = {word for line in work.commands for command in read_commands(line) for word in command}
    named = {word.removeprefix("$REPO/").removeprefix("./") for word in words}
    return {path for path in named if path in tree and not belongs_to_tests(path)}


def _hide_tests(tree: Tree, changed: Mapping[str, str]) -> dict[str, bytes]:
    """The tests as the session left them. Without them, an agent could pass by changing a test."""
    kept = {path: file.content for path, file in tree.items() if belongs_to_tests(path) and file.mode != "120000"}
    if sum(map(len, kept.values())) > LARGEST_HIDDEN:
        kept = {}
    kept |= {path: text.encode() for path, text in changed.items() if belongs_to_tests(path)}
    return {f"tests/files/{path}": content for path, content in kept.items()}


def _name_files(folder: str, files: Mapping[str, str]) -> dict[str, bytes]:
    return {f"{folder}/{path}": text.encode() for path, text in files.items()}


def _judge_by_commit(session: Session, repository: Path, safe: Safe) -> list[Candidate]:
    for sha in find_commits(session, repository):
        change = read_change(repository, sha)
        runner = find_runner({name: text for name, text in change.tests.items() if is_test(name)})
        if not change.patch or not runner or not safe(change.patch):
            continue
        parts = TaskParts(
            write_instruction(session),
            _write_judge(f"Runs the tests of commit {sha[:12]}.", runner),
            APPLY,
            {path: file for path, file in read_tree(repository, change.parent).items() if safe(file.content)},
            {**change.hidden, **change.solution},
        )
        return [Candidate(TaskKind.COMMIT, parts, list_changed_paths(change.patch), f"commit {sha[:12]} has its work")]
    return []


def _write_judge(about: str, command: str) -> str:
    # `$REPO` in a recorded command is the working directory.
    script = f'cp -r "$0/files/." . && export REPO=$PWD && {{ {command}\n}}'
    # A mark that no prompt of a proposer may hold: it would have seen the judge.
    canary = uuid5(NAMESPACE_OID, script)
    return _JUDGE.format(about=about.replace("\n", " "), script=shlex.quote(script), canary=canary)


def write_instruction(session: Session) -> str:
    """What the agent was asked: the first turn, and what later turns say about the work.

    Sentences about habits are left out: a task must not hold the rule that it is used to test. So is everything that
    the agent said.
    """
    said = [turn for turn in session.turns if turn.said_by in {Speaker.PERSON, Speaker.SCRIPT}]
    steps = [step for turn in session.turns for step in turn.steps]
    vocabulary = Vocabulary(step.command for step in steps if step.command)
    about_work = [turn for turn in said if turn is said[0] or any(step.is_edit for step in turn.steps)]
    parts = [_without_habits(turn, vocabulary, first=turn is said[0]) for turn in about_work]
    text = "\n\n".join(part for part in parts if part)
    return text.replace("$REPO/", "").replace("$REPO", ".") + "\n"


def _without_habits(turn: Turn, vocabulary: Vocabulary, *, first: bool) -> str:
    """What a turn says about the work. Of the first turn everything stays, pasted text too."""
    text = turn.text
    kept = []
    for sentence in read_sentences(turn.text):
        correction = read_correction(sentence, vocabulary, opened=not first)
        if correction is None or not correction.standing:
            kept.append(sentence)
        else:
            text = re.sub(r"\s+".join(map(re.escape, sentence.split(" "))) + r"[.!]*", "", text)
    return text.strip() if first else ". ".join(kept)
