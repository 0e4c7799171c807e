"""Harbor task folders: read unmodified, mapped to a Task, and told apart from what whet cannot run."""

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from whet.errors import UserError
from whet.tasks import Task, TaskLimits, read_tasks

EVERYTHING = (Path(__file__).parent / "golden" / "everything.toml").read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The smallest task folder: a manifest, an instruction, a test script."""
    folder = tmp_path / "sort"
    put(folder, "task.toml", "")
    put(folder, "instruction.md", "Sort it.\n")
    put(folder, "tests/test.sh", "echo 1 > /logs/verifier/reward.txt\n")
    return folder


def put(folder: Path, name: str, text: str = "") -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def read(folder: Path) -> Task:
    (task,) = read_tasks(folder)
    return task


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_tasks(folder)
    return str(caught.value).replace(f"{folder.parent}/", "")


def test_the_smallest_folder_is_a_task_named_after_the_folder(folder: Path) -> None:
    task = read(folder)
    assert task == Task(
        id="sort", instruction="Sort it.\n", origin=str(folder), digest=task.digest, tests=folder / "tests"
    )


def test_every_key_is_read_and_the_known_ones_reach_the_task(folder: Path) -> None:
    put(folder, "task.toml", EVERYTHING)
    put(folder, "solution/solve.sh", "sort\n")
    put(folder, "workspace/numbers.txt", "3\n1\n")
    task = read(folder)
    assert task == Task(
        id="some-org/sort.it",
        instruction="Sort it.\n",
        origin=str(folder),
        digest=task.digest,
        workdir="/app/src",
        workspace=folder / "workspace",
        env={"MODE": "fast"},
        tests=folder / "tests",
        verify_env={"KEY": "${JUDGE_KEY}"},
        solution=folder / "solution",
        solution_env={"SEED": "1"},
        split="val",
        tags=("sorting", "git", "easy"),
        metadata={
            "difficulty": "hard",
            "written": "2024-05-01",
            "tags": ["git", "easy"],
            "split": "val",
            "anything": {"goes": {"here": 1}},
        },
        limits=TaskLimits(agent_sec=90, verify_sec=45.5, memory_mb=2048, storage_mb=10240),
    )


def test_what_harbor_has_no_key_for_is_read_from_the_metadata(folder: Path) -> None:
    whet = '[metadata.whet]\nallow = ["remote-media"]\nlimits = { turns = 20, agent_sec = 60, idle_sec = 30 }'
    put(folder, "task.toml", f"[agent]\ntimeout_sec = 90\n{whet}")
    task = read(folder)
    assert task.limits == TaskLimits(turns=20, agent_sec=60, idle_sec=30)
    assert (task.allow, task.warnings) == (("remote-media",), ())


def test_a_mistake_in_the_metadata_for_whet_is_an_error(folder: Path) -> None:
    put(folder, "task.toml", "[metadata.whet]\nlimits = { turn = 20 }")
    with pytest.raises(UserError, match=r"task\.toml: \[metadata\.whet\]: unknown key 'limits\.turn'; did you mean"):
        read(folder)


@pytest.mark.parametrize(("size", "megabytes"), [("4G", 4096), ("1.5g", 1536), (" 512M ", 512), ("2048K", 2)])
def test_sizes_in_the_older_form_become_megabytes(folder: Path, size: str, megabytes: int) -> None:
    put(folder, "task.toml", f'version = "1.0"\n[environment]\nmemory = "{size}"\nstorage = "{size}"')
    task = read(folder)
    assert (task.limits, task.warnings) == (TaskLimits(memory_mb=megabytes, storage_mb=megabytes), ())


def test_tags_and_split_of_other_kinds_stay_in_the_metadata_only(folder: Path) -> None:
    put(folder, "task.toml", '[metadata]\ntags = "easy"\nsplit = "holdout"')
    task = read(folder)
    assert (task.tags, task.split, task.metadata) == ((), None, {"tags": "easy", "split": "holdout"})


def test_unknown_keys_are_warnings_except_in_free_tables(folder: Path) -> None:
    put(
        folder,
        "task.toml",
        'schema_version = "1.9"\nauthor = "x"\n[metadata]\nfoo = 1\n[agent]\ntimeout = 5\n'
        '[[environment.mcp_servers]]\nname = "a"\nurl = "http://b"\nuri = 1',
    )
    assert [warning.replace(f"{folder}/", "") for warning in read(folder).warnings] == [
        "task.toml: key 'schema_version' is '1.9'; known: 1.0, 1.1, 1.2, 1.3, 1.4",
        (
            "task.toml: unknown key 'author'; known: agent, artifacts, environment, metadata, "
            "multi_step_reward_strategy, schema_version, solution, source, steps, task, verifier, version"
        ),
        (
            "task.toml: unknown key 'agent.timeout'; did you mean 'timeout_sec'? "
            "(known: allowed_hosts, network_mode, timeout_sec, user)"
        ),
        (
            "task.toml: unknown key 'environment.mcp_servers[0].uri'; did you mean 'url'? "
            "(known: args, command, headers, name, transport, url)"
        ),
    ]


@pytest.mark.parametrize(
    ("written", "read_as"),
    [
        ("<!-- CANARY 123 -->\n# canary: x\n\n \nSort it.\n", "Sort it.\n"),
        ("  <!-- my Canary -->\nSort it.\n# canary stays\n", "Sort it.\n# canary stays\n"),
        ("\n# canary after a blank line stays\n", "\n# canary after a blank line stays\n"),
        ("# Bird watching\n\ncanary\n", "# Bird watching\n\ncanary\n"),
    ],
)
def test_leading_canary_lines_are_not_part_of_the_instruction(folder: Path, written: str, read_as: str) -> None:
    put(folder, "instruction.md", written)
    assert read(folder).instruction == read_as


@pytest.mark.parametrize(
    ("toml", "files", "needs_image"),
    [
        ("", [], None),
        ("", ["environment/Dockerfile"], "a build of environment/Dockerfile"),
        ("", ["environment/docker-compose.yaml"], "the services of environment/docker-compose.yaml"),
        ("", ["environment/docker-compose.yml"], None),
        (
            '[environment]\ndocker_image = "python:3.12"',
            ["environment/Dockerfile"],
            "image 'python:3.12' from task.toml [environment].docker_image",
        ),
    ],
)
def test_a_task_says_which_image_it_needs(folder: Path, toml: str, files: list[str], needs_image: str | None) -> None:
    put(folder, "task.toml", toml)
    for file in files:
        put(folder, file)
    assert read(folder).needs_image == needs_image


def test_loose_files_of_the_environment_start_in_the_working_directory(folder: Path) -> None:
    put(folder, "environment/data/numbers.txt", "3")
    assert read(folder).workspace == folder / "environment"
    put(folder, "environment/Dockerfile")
    assert read(folder).workspace is None
    put(folder, "workspace/a.txt")
    assert read(folder).workspace == folder / "workspace"


STEPS = '[[steps]]\nname = "one"\nmin_reward = { reward = 0.5 }\n[[steps]]\nname = "two"\nmin_reward = 1'
TABLE = json.loads((Path(__file__).parent / "golden" / "harbor.json").read_text())
TOO_DEEP = ("a = " + "[" * 5000, "is nested too deeply; expected a task.toml")


@pytest.mark.parametrize(
    ("toml", "files", "unsupported"), TABLE["what is not supported: task.toml, other files, and its name"]
)
def test_what_would_silently_go_wrong_is_named(folder: Path, toml: str, files: list[str], unsupported: str) -> None:
    put(folder, "task.toml", toml)
    for file in files:
        put(folder, file, "Do it.")
    assert read(folder).unsupported == unsupported


def test_a_task_for_windows_has_its_own_script_and_is_unsupported(folder: Path) -> None:
    put(folder, "task.toml", '[environment]\nos = "Windows"')
    assert refusal(folder) == "sort: has no tests/test.bat; expected a script that writes the reward"
    put(folder, "tests/test.bat")
    assert read(folder).unsupported == "[environment].os 'windows'"


def test_tests_may_lie_in_the_image_of_the_verifier(folder: Path) -> None:
    put(folder, "task.toml", '[verifier.environment]\ndocker_image = "judge:1"')
    shutil.rmtree(folder / "tests")
    assert read(folder).tests is None


@pytest.mark.parametrize(("toml", "said"), [*TABLE["what is wrong: task.toml, and what is said of it"], TOO_DEEP])
def test_a_wrong_manifest_is_told_with_key_and_value(folder: Path, toml: str, said: str) -> None:
    put(folder, "task.toml", toml)
    assert refusal(folder) == f"sort/task.toml: {said}"


def test_all_problems_of_a_manifest_are_told(folder: Path) -> None:
    put(folder, "task.toml", "[agent]\ntimeout_sec = -1\n[environment]\nos = 'mac'")
    assert refusal(folder).splitlines() == [
        "sort/task.toml: key 'agent.timeout_sec' is -1; expected a number greater than 0",
        "sort/task.toml: key 'environment.os' is 'mac'; expected one of: linux, windows",
    ]


def test_missing_parts_are_named(folder: Path) -> None:
    (folder / "tests" / "test.sh").rename(folder / "tests" / "tests.sh")
    assert refusal(folder) == "sort: has no tests/test.sh; expected a script that writes the reward"
    put(folder, "tests/test.sh")
    put(folder, "instruction.md", "# canary\n\n")
    assert refusal(folder) == "sort/instruction.md: is empty; expected the instruction for the agent"
    (folder / "instruction.md").unlink()
    assert refusal(folder) == "sort: has no instruction.md; expected one beside task.toml"
    put(folder, "task.toml", STEPS)
    assert refusal(folder) == "sort/steps/one: has no instruction.md; expected one for every step of task.toml"


def test_text_that_is_not_utf_8_is_refused(folder: Path) -> None:
    (folder / "instruction.md").write_bytes(b"Sort \xff")
    assert refusal(folder) == "sort/instruction.md: byte 5 is not UTF-8; expected UTF-8 text"


def test_a_link_out_of_the_task_is_refused(folder: Path) -> None:
    put(folder, "workspace/a.txt")
    (folder / "workspace" / "b.txt").symlink_to("a.txt")
    assert read(folder).unsupported is None
    (folder / "workspace" / "c.txt").symlink_to("../../secret")
    assert refusal(folder) == (
        "sort/workspace/c.txt: the link leads to secret; expected links that stay inside the task folder"
    )


def test_a_link_that_breaks_when_its_folder_is_placed_is_named(folder: Path) -> None:
    put(folder, "workspace/a.txt")
    (folder / "tests" / "a.txt").symlink_to("../workspace/a.txt")
    (folder / "workspace" / "b.txt").symlink_to(folder / "workspace" / "a.txt")
    assert read(folder).unsupported == (
        "the link tests/a.txt to workspace/a.txt; the link workspace/b.txt to workspace/a.txt"
    )


@pytest.mark.parametrize("target", ["loop", "..", "."])
def test_a_link_in_a_circle_is_refused(folder: Path, target: str) -> None:
    put(folder, "workspace/a.txt")
    (folder / "workspace" / "loop").symlink_to(target)
    assert refusal(folder) == "sort/workspace/loop: the link leads back to itself; expected links without a cycle"


def test_a_pipe_in_a_task_is_refused_and_not_read(folder: Path) -> None:
    os.mkfifo(folder / "tests" / "pipe")
    assert refusal(folder) == ("sort/tests/pipe: is neither a file, a folder nor a link; expected only these in a task")


# Properties

in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
file_name = st.from_regex(r"[a-c]{1,2}(/[d-f]{1,2})?", fullmatch=True)
tree = st.dictionaries(file_name, st.tuples(st.binary(max_size=3), st.booleans()), max_size=3)


def build(folder: Path, files: dict[str, tuple[bytes, bool]]) -> str:
    shutil.rmtree(folder / "workspace", ignore_errors=True)
    for name, (content, executable) in files.items():
        file = folder / "workspace" / f"{name}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(0o755 if executable else 0o644)
    return read(folder).digest


@given(one=tree, other=tree)
@in_one_folder
def test_the_digest_changes_exactly_when_names_contents_or_executable_bits_do(
    one: dict[str, tuple[bytes, bool]], other: dict[str, tuple[bytes, bool]], tmp_path: Path
) -> None:
    for place in ("x", "y"):
        put(tmp_path / place, "task.toml")
        put(tmp_path / place, "instruction.md", "Do it.")
        put(tmp_path / place, "tests/test.sh")
    written_backwards = dict(reversed(one.items()))
    assert build(tmp_path / "x", one) == build(tmp_path / "y", written_backwards)
    assert (build(tmp_path / "x", one) == build(tmp_path / "y", other)) == (one == other)


def test_the_digest_covers_hidden_parts_but_not_the_papers_around_the_task(folder: Path) -> None:
    digest = read(folder).digest
    put(folder, "README.md", "About")
    put(folder, ".gitignore", "*.pyc")
    put(folder, ".git/HEAD", "ref")
    assert read(folder).digest == digest
    seen = {digest}
    for name in ("tests/README.md", "solution/solve.sh", "task.toml", "instruction.md"):
        put(folder, name, "# changed")
        seen.add(read(folder).digest)
    (folder / "tests" / "link").symlink_to("test.sh")
    seen.add(read(folder).digest)
    (folder / "tests" / "test.sh").chmod(0o755)
    seen.add(read(folder).digest)
    assert len(seen) == 7


def test_the_digest_is_the_same_on_every_machine(folder: Path) -> None:
    assert read(folder).digest == "cf64ee32d36607213ceb3ce74148f2ef"


toml_value = st.sampled_from(["1", "-1", "inf", "''", "'x'", "[]", "['a']", "[{}]", "{}", "{ a = 1 }", "true", "0xff"])
toml_key = st.sampled_from(
    [
        "version",
        "schema_version",
        "source",
        "artifacts",
        "metadata",
        "agent",
        "steps",
        "other.key",
        "task.name",
        "task.authors",
        "agent.timeout_sec",
        "agent.user",
        "agent.allowed_hosts",
        "solution.env",
        "verifier.env",
        "verifier.collect",
        "verifier.environment",
        "metadata.tags",
        "metadata.split",
        "environment.os",
        "environment.memory",
        "environment.memory_mb",
        "environment.tpu",
        "environment.env",
        "environment.workdir",
        "environment.healthcheck",
        "environment.mcp_servers",
    ]
)


@given(lines=st.lists(st.builds("{} = {}".format, toml_key, toml_value), max_size=4))
@in_one_folder
def test_any_manifest_gives_a_task_or_a_user_error(lines: list[str], folder: Path) -> None:
    check_bytes(folder, "task.toml", "\n".join(lines).encode())


@given(data=st.binary(max_size=40), name=st.sampled_from(["task.toml", "instruction.md", "tests/test.sh"]))
@in_one_folder
def test_any_task_folder_gives_a_task_or_an_error(data: bytes, name: str, folder: Path) -> None:
    check_bytes(folder, name, data)


def check_bytes(folder: Path, name: str, data: bytes) -> None:
    before = (folder / name).read_bytes()
    (folder / name).write_bytes(data)
    try:
        said = read(folder).model_dump_json()
    except UserError as error:
        said = str(error)
    (folder / name).write_bytes(before)
    assert str(folder) in said
