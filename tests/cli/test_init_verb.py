"""`whet init`: a repository is ready for its first run, and nothing of it is overwritten."""

import os
import pty
import subprocess
import sys

import pytest

from support.waiting import PATIENCE
from support.whet_program import Project, said_to_user

KEYLESS = dict.fromkeys(
    ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENROUTER_API_KEY"), ""
)
IDENTITY = ["-c", "user.name=A", "-c", "user.email=a@example.com"]


def init(project: Project, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return Project(project.path, project.tmp, {**KEYLESS, **env}).whet("init", *words)


@pytest.fixture
def repository(project: Project) -> Project:
    for name in ("app.py", "deep/util.py", "CLAUDE.md", "skills/review/SKILL.md"):
        project.write(name, f"# {name}\n")
    project.write(".gitignore", "*.pyc")
    for words in (["init", "-q"], ["add", "-A"], [*IDENTITY, "commit", "-q", "-m", "Begin"]):
        subprocess.run(["git", *words], cwd=project.path, check=True)
    return project


def test_a_repository_gets_what_its_first_run_needs(repository: Project) -> None:
    done = init(repository, ANTHROPIC_API_KEY="sk-0123456789")
    assert done.returncode == 0, done.stderr
    assert 'agent = "claude-code"\nmodel = "anthropic/claude-sonnet-4-5"' in (repository.path / "whet.toml").read_text()
    assert (repository.path / ".gitignore").read_text() == "*.pyc\nruns/\n"
    assert "found documents for agents: CLAUDE.md, skills/review\n" in done.stdout
    assert "sk-0123456789" not in done.stdout
    commands = [line.strip() for line in done.stdout.partition("next:\n")[2].splitlines()]
    assert len(commands) == 3
    assert commands[1].endswith("whet run tasks/first --skill CLAUDE.md --out runs/first")
    workspace = repository.path / "tasks" / "first" / "workspace"
    assert sorted(str(path.relative_to(workspace)) for path in workspace.rglob("*.*")) == [
        ".gitignore",
        "app.py",
        "deep/util.py",
        "skills/review/SKILL.md",
    ]
    checked = repository.whet("tasks", "check", "tasks")
    assert checked.returncode == 0, checked.stdout
    assert [line.split()[:2] for line in checked.stdout.splitlines()] == [
        ["proved", "first"],
        ["read", "answer-a-question"],
        ["read", "edit-a-file"],
    ]


def test_what_is_there_stays(repository: Project) -> None:
    repository.write("whet.toml", '[defaults]\nmodel = "mine"\n')
    init(repository)
    before = {path: path.read_bytes() for path in repository.path.rglob("*") if path.is_file()}
    again = init(repository, "--model", "openai/gpt-5")
    assert {path: path.read_bytes() for path in repository.path.rglob("*") if path.is_file()} == before
    assert "kept whet.toml\nkept tasks/first\nkept tasks/rows.jsonl\n" in again.stdout


@pytest.mark.parametrize(
    ("words", "env", "expected"),
    [
        ((), {"OPENAI_API_KEY": "k"}, 'agent = "codex"\nmodel = "openai/gpt-5"'),
        ((), {"GOOGLE_API_KEY": "k"}, 'agent = "gemini"\nmodel = "google/gemini-2.5-pro"'),
        (("--model", "ollama/qwen3", "--agent", "pi"), {}, 'agent = "pi"\nmodel = "ollama/qwen3"\n'),
    ],
)
def test_the_provider_is_the_one_whose_key_is_set_or_that_is_named(
    project: Project, words: tuple[str, ...], env: dict[str, str], expected: str
) -> None:
    done = init(project, *words, **env)
    assert done.returncode == 0, done.stderr
    assert expected in (project.path / "whet.toml").read_text()
    assert not (project.path / ".gitignore").exists(), "this is no git repository"
    assert project.whet("models").returncode == 0, "the file can be read"


def test_a_key_that_is_missing_is_named(project: Project) -> None:
    missing = "note: ANTHROPIC_API_KEY is not set; model anthropic/claude-sonnet-4-5 cannot be called without it"
    assert missing in init(project, HOME=str(project.tmp)).stdout


def test_a_login_stands_in_for_a_key(project: Project) -> None:
    credentials = project.tmp / ".claude" / ".credentials.json"
    credentials.parent.mkdir()
    credentials.write_text("{}")
    said = init(project, HOME=str(project.tmp)).stdout
    assert "note: ANTHROPIC_API_KEY is not set; with --login, claude-code uses your own login" in said
    assert "whet run tasks/first --login --out runs/first" in said


@pytest.mark.parametrize(
    ("words", "expected"), [("--model smal", "unknown model 'smal'"), ("--agent cloude", "unknown agent 'cloude'")]
)
def test_mistakes_leave_nothing_behind(project: Project, words: str, expected: str) -> None:
    assert expected in said_to_user(init(project, *words.split()))
    assert list(project.path.iterdir()) == []


def test_on_a_terminal_model_and_agent_are_asked_for(project: Project) -> None:
    ours, theirs = pty.openpty()
    whet = subprocess.Popen(
        [sys.executable, "-m", "whet", "init"], cwd=project.path, env=project.environ(), stdin=theirs, stdout=theirs
    )
    os.close(theirs)
    os.write(ours, b"openai/gpt-5\n\n")  # the second answer is the default
    assert whet.wait(timeout=PATIENCE) == 0
    os.close(ours)
    assert 'agent = "codex"\nmodel = "openai/gpt-5"' in (project.path / "whet.toml").read_text()
