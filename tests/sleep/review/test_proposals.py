"""Proposals: adopted together, never over what the user wrote, and taken back to the byte."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.proposals_world import HOUSE, NOW, RULE, ProposalsWorld
from whet.errors import UserError
from whet.skills.documents.document import END_LEARNED, LEARNED
from whet.skills.documents.learned import put_block
from whet.sleep.options import SleepOptions
from whet.sleep.repository_settings import RepositorySettings, read_settings
from whet.sleep.review.adopt import adopt_alone, adopt_proposal, roll_back
from whet.sleep.staging import (
    Evidence,
    State,
    diff_lines,
    drop_backups,
    expire_rules,
    find_proposal,
    is_rejected,
    list_proposals,
    read_changes,
    reject,
)

BLOCK = f"{LEARNED}\n- {RULE}\n{END_LEARNED}\n"
ADOPTED = (
    (HOUSE + "\r\n" + BLOCK.replace("\n", "\r\n")).encode(),
    ("\ufeffOther text\n\n" + BLOCK).encode(),
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ProposalsWorld]:
    made = ProposalsWorld(tmp_path)
    with made.store:
        yield made


def test_a_proposal_is_adopted_in_all_files_and_taken_back_to_the_byte(world: ProposalsWorld) -> None:
    before = world.contents
    proposal = world.stage()
    assert [one.path.name for one in proposal.targets] == ["CLAUDE.md", "GEMINI.md"], "a link is no second target"
    assert proposal.targets[0].shown == f"{world.repository}/CLAUDE.md -> {world.agents}"
    assert (proposal.edit, proposal.added, proposal.removed) == (RULE, 4, 0)
    assert world.contents == before
    adopt_proposal(world.store, proposal.id)
    assert world.contents == ADOPTED
    assert find_proposal(world.store, "1").state is State.ADOPTED
    assert sorted(line[3:] for line in world.git("status", "--porcelain").splitlines()) == ["AGENTS.md", "GEMINI.md"]
    with pytest.raises(UserError, match="proposal 1: is adopted already; take it back with `whet sleep rollback 1`"):
        adopt_proposal(world.store, "1")
    roll_back(world.store, "1", NOW)
    assert world.contents == before
    assert world.git("status", "--porcelain") == ""
    with pytest.raises(UserError, match="proposal 1: is rolled back, so there is nothing to take back"):
        roll_back(world.store, "1", NOW)
    adopt_proposal(world.store, "1")
    assert world.contents == ADOPTED


def test_a_file_that_changed_since_is_merged_into_and_reviewed_again(world: ProposalsWorld) -> None:
    world.stage()
    world.agents.write_bytes(world.agents.read_bytes() + b"- Mine.\r\n")
    world.git("commit", "-qam", "mine")
    mine = world.contents
    with pytest.raises(UserError, match=r"AGENTS.md: has changed since the proposal was made. The edit is merged") as e:
        adopt_proposal(world.store, "1")
    assert "`whet sleep diff 1`, then adopt again" in str(e.value)
    assert world.contents == mine
    assert find_proposal(world.store, "1").merged
    adopt_proposal(world.store, "1")
    assert world.contents[0] == mine[0] + b"\r\n" + BLOCK.replace("\n", "\r\n").encode()
    roll_back(world.store, "1", NOW)
    assert world.contents == mine


def test_rules_that_both_sides_changed_are_refused_with_the_line(world: ProposalsWorld) -> None:
    world.stage()
    world.gemini.write_text(put_block("Other text", "- Use npm.\n"))
    world.git("commit", "-qam", "mine")
    with pytest.raises(UserError, match=r"GEMINI.md: the edit does not fit into its learned block: line 1 was changed"):
        adopt_proposal(world.store, "1")
    assert not find_proposal(world.store, "1").merged
    assert world.contents[0] == HOUSE.encode()


def test_taking_back_what_the_user_built_on_becomes_a_proposal(world: ProposalsWorld) -> None:
    world.stage()
    adopt_proposal(world.store, "1")
    world.agents.write_bytes(b"# My house" + world.agents.read_bytes())
    with pytest.raises(UserError, match=r"CLAUDE.md: has changed since it was adopted. Taking the edit"):
        roll_back(world.store, "1", NOW)
    assert world.contents == (b"# My house" + ADOPTED[0], ADOPTED[1])
    reverse = find_proposal(world.store, "2")
    assert (reverse.evidence, reverse.certified, reverse.undoes) == (Evidence.UNDO, False, "1")
    adopt_proposal(world.store, "2", force=True)
    assert world.contents == (b"# My house" + HOUSE.encode(), "\ufeffOther text".encode())
    assert find_proposal(world.store, "1").state is State.ROLLED_BACK


def test_uncommitted_changes_are_refused_unless_forced(world: ProposalsWorld) -> None:
    world.gemini.write_text("Not committed")
    world.stage()
    with pytest.raises(UserError, match=r"GEMINI.md: has changes that are not committed; commit them, or use `force`"):
        adopt_proposal(world.store, "1")
    assert world.contents[0] == HOUSE.encode()
    adopt_proposal(world.store, "1", ["CLAUDE.md"])
    assert world.contents == (ADOPTED[0], b"Not committed")


def test_a_commit_holds_the_adopted_files_alone_and_runs_the_users_hooks(world: ProposalsWorld) -> None:
    (world.repository / "other.txt").write_text("staged by the user")
    world.git("add", "other.txt")
    hook = world.repository / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\necho no commits today >&2; exit 1\n")
    hook.chmod(0o755)
    world.stage(world.draft(targets=(world.agents, world.repository / "NEW.md")))
    with pytest.raises(UserError, match=r"proposal 1: is adopted but not committed: .*no commits today"):
        adopt_proposal(world.store, "1", commit=True)
    assert world.git("status", "--porcelain") == " M AGENTS.md\nA  other.txt\n?? NEW.md\n"
    roll_back(world.store, "1", NOW)
    hook.unlink()
    adopted = adopt_proposal(world.store, "1", commit=True)
    assert adopted.commit == world.git("rev-parse", "--short", "HEAD").strip()
    assert world.git("show", "--name-only", "--format=%s").split("\n\n") == [
        f"AGENTS.md, NEW.md: {RULE}",
        "AGENTS.md\nNEW.md\n",
    ]
    assert world.git("diff", "--cached", "--name-only") == "other.txt\n"
    assert (world.repository / "NEW.md").stat().st_mode & 0o777 == 0o644


def test_a_target_that_is_gone_read_only_or_elsewhere_is_named(world: ProposalsWorld) -> None:
    world.stage()
    world.gemini.chmod(0o444)
    with pytest.raises(UserError, match=r"GEMINI.md: is read-only; make it writable first"):
        adopt_proposal(world.store, "1", force=True)
    world.gemini.unlink()
    with pytest.raises(UserError, match=r"GEMINI.md: is not there any more; reject the proposal, or restore the file"):
        adopt_proposal(world.store, "1", force=True)
    with pytest.raises(UserError, match=r"`target` QWEN.md: the proposal has no such file; known: "):
        adopt_proposal(world.store, "1", ["QWEN.md"])
    assert world.agents.read_bytes() == HOUSE.encode()
    (world.repository / "OUT.md").symlink_to("/etc/passwd")
    with pytest.raises(UserError, match="leads to /etc/passwd; expected a file within"):
        world.stage(world.draft(targets=(world.repository / "OUT.md",)))


@pytest.mark.parametrize(
    ("rules", "complaint"),
    [
        ("- Use [redacted:github-token:1].\n", "a mask for something private"),
        ("- Ask ann@shop.io.\n", "holds an e-mail address"),
        ("- Read /home/ann/notes.\n", "a path in a home folder"),
        ("- Use key sk-ant-api03-" + "a1B2" * 20 + ".\n", "holds a secret"),
        ("- a\n" * 41, "the limit is 40 lines"),
    ],
)
def test_private_and_large_texts_are_not_staged(world: ProposalsWorld, rules: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        world.stage(world.draft(rules))
    assert list_proposals(world.store) == []


def test_unbalanced_marks_are_refused_and_the_same_rule_is_not_staged_twice(world: ProposalsWorld) -> None:
    world.gemini.write_text(f"{LEARNED}\n- a\n\nMine, below a lost mark.\n")
    with pytest.raises(UserError, match=r"GEMINI.md: .* has no end; expected the mark that ends it"):
        world.stage()
    world.gemini.write_text(put_block("x", f"- {RULE}\n"))
    with pytest.raises(UserError, match="nothing is left to propose, the edit is there already"):
        world.stage(world.draft(targets=(world.gemini,)))


def test_a_rejected_rule_is_not_proposed_again_unless_new_sessions_support_it(world: ProposalsWorld) -> None:
    world.stage()
    assert not is_rejected(world.store, "r1", {"claude-code/s1"})
    reject(world.store, "1", "we use both", NOW)
    assert find_proposal(world.store, "1").state is State.REJECTED
    assert is_rejected(world.store, "r1", {"claude-code/s1", "codex/s2"})
    assert not is_rejected(world.store, "r1", {"claude-code/s1", "codex/s3"})
    assert not is_rejected(world.store, "r2", {"claude-code/s1"})
    adopt_proposal(world.store, "1")
    assert not is_rejected(world.store, "r1", {"claude-code/s1"}), "a person changed their mind"
    with pytest.raises(UserError, match="proposal 1: is adopted; take it back with"):
        reject(world.store, "1", "no", NOW)


def test_rules_that_nobody_needed_for_90_days_are_left_out(world: ProposalsWorld) -> None:
    world.stage()
    adopt_proposal(world.store, "1")
    text = world.agents.read_bytes().decode()
    text = put_block(text, f"- By hand.\n- {RULE}\n")
    later = NOW + timedelta(days=400)
    assert expire_rules(world.store, text, {"r1": later - timedelta(days=89)}, later) == text
    assert expire_rules(world.store, text, {}, later) == put_block(text, "- By hand.\n")
    assert expire_rules(world.store, HOUSE, {}, later) == HOUSE
    world.agents.write_bytes(text.encode())
    removal = world.draft(before=text, after=expire_rules(world.store, text, {}, later), evidence=Evidence.EXPIRY)
    proposal = world.stage(removal.model_copy(update={"targets": (world.agents,)}))
    assert (proposal.edit, proposal.removed) == (f"remove: - {RULE}", 1)
    reject(world.store, proposal.id, "we need it", NOW)
    assert expire_rules(world.store, text, {}, later) == text
    assert f"-- {RULE}" in list(diff_lines(read_changes(world.store, proposal)))


def test_what_is_forgotten_leaves_no_copy_but_that_of_an_adopted_file(world: ProposalsWorld) -> None:
    world.stage(world.draft("- Secret of the other repository.\n"))
    world.stage()
    adopt_proposal(world.store, "2")
    world.store.delete("proposal", "1")
    drop_backups(world.store)
    copies = [file.read_bytes() for file in (world.store.folder / "backups").iterdir()]
    assert sorted(copies) == sorted([HOUSE.encode(), "\ufeffOther text".encode(), *ADOPTED])
    roll_back(world.store, "2", NOW)
    assert world.agents.read_bytes() == HOUSE.encode()


def test_a_new_file_in_the_home_folder_is_private(world: ProposalsWorld) -> None:
    file = world.folder / "home" / ".codex" / "AGENTS.md"
    file.parent.mkdir()
    world.stage(world.draft(repository=None, targets=(file,)))
    adopt_proposal(world.store, "1")
    assert (file.read_text(), file.stat().st_mode & 0o777) == (BLOCK, 0o600)
    roll_back(world.store, "1", NOW)
    with pytest.raises(UserError, match=r"AGENTS.md: expected files of one git repository; adopt without `commit`"):
        adopt_proposal(world.store, "1", commit=True)
    assert not file.exists()


@pytest.mark.parametrize(
    "fields", [{"certified": False}, {"evidence": Evidence.RUBRIC}, {"evidence": Evidence.EXPIRY}, {}], ids=str
)
def test_only_what_is_proven_adopts_itself_and_only_where_the_repository_says_so(
    world: ProposalsWorld, fields: dict[str, Any]
) -> None:
    proposal = world.stage(world.draft(**fields))
    for place, text in ((world.folder, "auto = true"), (world.repository, "auto = false")):
        (place / "whet.toml").write_text(f"[sleep]\n{text}\n")
        assert adopt_alone(world.store, proposal, settings(world)) == ""
    (world.repository / "whet.toml").write_text("[sleep]\nauto = true\n")
    note = adopt_alone(world.store, proposal, settings(world))
    assert ("proposal 1: was adopted, as whet.toml says" in note) == (not fields)
    assert world.contents == (ADOPTED if not fields else (HOUSE.encode(), "\ufeffOther text".encode()))


def settings(world: ProposalsWorld, *allowed: str) -> RepositorySettings:
    return read_settings(world.repository, SleepOptions(allow_auto=allowed or (str(world.repository),)))


def test_a_repository_cannot_turn_on_adoption_by_itself(world: ProposalsWorld) -> None:
    (world.repository / "whet.toml").write_text("[sleep]\nauto = true\n")
    note = adopt_alone(world.store, world.stage(), settings(world, "/elsewhere"))
    assert note == (
        f"proposal 1: waits for you, although {world.repository}/whet.toml has `auto = true`: `allow_auto` in your "
        "sleep.toml does not name the repository"
    )
    assert world.contents == (HOUSE.encode(), "\ufeffOther text".encode())


def test_a_file_that_was_touched_waits_for_its_user(world: ProposalsWorld) -> None:
    (world.repository / "whet.toml").write_text("[sleep]\nauto = true\n")
    proposal = world.stage()
    world.gemini.write_text("Mine")
    assert "GEMINI.md: has changes that are not committed" in adopt_alone(world.store, proposal, settings(world))
    assert world.contents == (HOUSE.encode(), b"Mine")
