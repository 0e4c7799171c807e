"""Sessions that never become tasks: what they did cannot be done again, or must not be."""

import re

from whet.sleep.session import Origin, Session, Speaker
from whet.sleep.shell import read_commands

_OUTSIDE = {
    "git": {"push", "send-email"},
    "npm": {"publish", "unpublish", "deprecate"},
    "pnpm": {"publish"},
    "yarn": {"publish"},
    "cargo": {"publish", "yank"},
    "docker": {"push", "login"},
    "podman": {"push", "login"},
    "terraform": {"apply", "destroy", "import"},
    "twine": {"upload"},
    "gh": {"pr", "issue", "release", "api", "repo", "workflow", "secret"},
    "glab": {"mr", "issue", "release", "api"},
    "poetry": {"publish"},
    "uv": {"publish"},
    "gem": {"push"},
    "alembic": {"upgrade", "downgrade"},
}
"""Programs with the words that make them act outside the repository."""
_ALWAYS_OUTSIDE = frozenset(
    {"ssh", "scp", "sftp", "rsync", "kubectl", "helm", "aws", "gcloud", "az", "heroku", "fly", "flyctl", "vercel"}
) | {"netlify", "sendmail", "mail", "mailx", "stripe", "doctl", "ansible", "ansible-playbook", "pulumi", "serverless"}
_DEPLOYS = re.compile(r"(?:deploy|publish|release|upload|rollout)(?:[:\-_.]\w+)*")
_RUNNERS = frozenset({"make", "just", "npm", "pnpm", "yarn", "task", "rake", "invoke", "./gradlew", "gradle", "mvn"})
_SENDS = frozenset({"-d", "--data", "--data-raw", "--data-binary", "-F", "--form", "-T", "--upload-file", "--json"})


def refuse_session(session: Session, *, scripts: bool = False) -> str | None:
    """Why a session cannot become a task; None if it can."""
    if session.origin is Origin.SUBAGENT:
        return "another agent started it"
    if session.origin is Origin.WHET:
        return "whet started it"
    if session.origin is Origin.HEADLESS and not scripts:
        return "a script started it"
    if not session.turns or not any(step for turn in session.turns for step in turn.steps):
        return "the agent did nothing"
    if any(turn.aborted for turn in session.turns):
        return "it was interrupted"
    people = {Speaker.PERSON, Speaker.SCRIPT}
    if any("[redacted:" in turn.text for turn in session.turns if turn.said_by in people):
        return "a secret was typed in it"
    for step in (step for turn in session.turns for step in turn.steps):
        if step.command is not None and (what := find_outside_act(step.command)):
            return f"it acted outside the repository: {what}"
    return None


def find_outside_act(line: str) -> str | None:
    """The command of a line that sends, deploys, pays or deletes something outside the repository.

    >>> find_outside_act("make test && git push origin main"), find_outside_act("git status")
    ('git push', None)
    """
    for command in read_commands(line):
        program, words = command[0].rpartition("/")[2], command[1:]
        named = next((word for word in words if not word.startswith("-")), "")
        if program in _ALWAYS_OUTSIDE:
            return program
        if named in _OUTSIDE.get(program, ()):
            return f"{program} {named}"
        if program in _RUNNERS and any(_DEPLOYS.fullmatch(word) for word in words):
            return " ".join(command[:3])
        if program in {"curl", "wget", "http", "https"} and _sends(words):
            return f"{program} that sends"
        if program in {"rm", "shred"} and any(word.startswith(("/", "~", "..", "$HOME")) for word in words):
            return f"{program} outside the repository"
    return None


def _sends(words: tuple[str, ...]) -> bool:
    if _SENDS & {word.split("=", 1)[0] for word in words}:
        return True
    return bool({"POST", "PUT", "PATCH", "DELETE", "-XPOST", "-XPUT", "-XPATCH", "-XDELETE"} & {*words})
