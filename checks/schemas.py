"""Holds a folder of exports against the types of their readers, as published. Runs in the readers' environment.

Those packages bring torch, Ray and more for what is a handful of types; only the types are loaded.
"""

import ast
import json
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import distribution, version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Optional, TypedDict, Union

import duckdb
import numpy as np
import pandas as pd
import polars as pl
from harbor.models.trajectories import Trajectory
from pydantic import BaseModel, ConfigDict, TypeAdapter

Json = dict[str, Any]


def main(folder: Path) -> int:
    checks: dict[str, Callable[[Path], int]] = {
        f"TrainingTrace of openenv {version('openenv')}": training_traces,
        f"AgentLoopOutput of verl {version('verl')}": verl,
        f"GeneratorOutput and validator of skyrl {version('skyrl')}": skyrl,
        "TrainingSample of prime-rl (fields only: no package is published)": prime_rl,
        f"Trajectory of harbor {version('harbor')}": atif,
        f"duckdb {duckdb.__version__}, pandas {pd.__version__}, polars {pl.__version__}": tables,
    }
    for name, check in checks.items():
        count = check(folder)
        assert count > 0, f"{name}: there was nothing to check"
        print(f"{name}: {count} accepted")
    return 0


def lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def training_traces(folder: Path) -> int:
    """openenv's own validation, then a copy with one positive log-probability, which it must refuse."""
    around = ("openenv", "openenv.core", "openenv.core.harness", "openenv.core.harness.capture")
    model = without_packages("openenv.core.harness.training", around).TrainingTrace
    found = lines(folder / "trl-trace")
    for trace in found:
        model.model_validate(trace)
    found[0]["turns"][0]["per_token_logps"][0] = 0.5
    refuse(lambda: model.model_validate(found[0]))
    return len(found)


def verl(folder: Path) -> int:
    world = {"BaseModel": BaseModel, "ConfigDict": ConfigDict, "Any": Any, "Optional": Optional}
    file = "verl/experimental/agent_loop/agent_loop.py"
    model = published("verl", file, ("AgentLoopMetrics", "AgentLoopOutput"), world)["AgentLoopOutput"]
    found = lines(folder / "verl")
    for record in found:
        output = model.model_validate(record)
        assert set(record) <= set(model.model_fields), set(record) - set(model.model_fields)
        assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs)
    refuse(lambda: model.model_validate(found[0] | {"response_ids": None}))
    return len(found)


def skyrl(folder: Path) -> int:
    world: Json = {"Any": Any, "Dict": dict, "List": list, "Optional": Optional, "TypedDict": TypedDict, "Union": Union}
    world |= {"dataclass": dataclass, "torch": SimpleNamespace(Tensor=object), "np": np}
    world["logger"] = logging.getLogger("skyrl")
    world = published("skyrl", "skyrl/train/generators/base.py", ("TrajectoryID", "GeneratorOutput"), world)
    checks = ("validate_generator_output", "_validate_step_wise_fields")
    world = published("skyrl", "skyrl/train/utils/trainer_utils.py", checks, world)
    types = world["GeneratorOutput"].__annotations__
    found = lines(folder / "skyrl")
    for output in found:
        for name, value in output.items():
            TypeAdapter(types[name]).validate_python(value, strict=name != "trajectory_ids")
        output["trajectory_ids"] = [world["TrajectoryID"](**one) for one in output["trajectory_ids"]]
        world["validate_generator_output"](1, output, step_wise=True)
    refuse(lambda: world["validate_generator_output"](1, found[0] | {"is_last_step": [False]}, step_wise=True))
    return len(found)


def prime_rl(folder: Path) -> int:
    new, old = lines(folder / "prime-rl"), lines(folder / "prime-rl-split")
    for sample in new:
        sizes = {len(sample[name]) for name in ("token_ids", "mask", "logprobs", "temperatures", "advantages")}
        assert len(sizes) == 1
        assert all(type(one) is bool for one in sample["mask"])
    for sample in old:
        assert len(sample["prompt_ids"]) == len(sample["prompt_mask"])
        sizes = {len(sample[f"completion_{name}"]) for name in ("ids", "mask", "logprobs")}
        assert len(sizes) == 1
    return len(new) + len(old)


def atif(folder: Path) -> int:
    found = [json.loads(path.read_text()) for path in sorted((folder / "atif").glob("*.json"))]
    for document in found:
        Trajectory.model_validate(document)
    assert any(document.get("subagent_trajectories") for document in found)
    refuse(lambda: Trajectory.model_validate(found[0] | {"steps": []}))
    return len(found)


def tables(folder: Path) -> int:
    """Three readers find the same in the same files."""
    rollouts, exchanges = (folder / "parquet" / f"{name}.parquet" for name in ("rollouts", "exchanges"))
    query = "select count(*), avg(score), (select count(*) from read_parquet(?) as e) from read_parquet(?) as r"
    by_duckdb = duckdb.execute(query, [str(exchanges), str(rollouts)]).fetchone()
    pandas, other = pd.read_parquet(rollouts), pd.read_parquet(exchanges)
    polars, third = pl.read_parquet(rollouts), pl.read_parquet(exchanges)
    by_pandas = (len(pandas), pandas["score"].mean(), len(other))
    by_polars = (polars.height, polars["score"].mean(), third.height)
    assert by_duckdb == by_pandas == by_polars, (by_duckdb, by_pandas, by_polars)
    return len(pandas) + len(other)


def refuse(validate: Callable[[], object]) -> None:
    """A reader that takes anything would prove nothing."""
    try:
        validate()
    except (ValueError, AssertionError):
        return
    raise SystemExit("a record that is wrong on purpose was accepted")


def published(package: str, file: str, names: tuple[str, ...], world: Json) -> Json:
    """Some definitions of a package's file, run in a world that holds what they refer to."""
    source = Path(str(distribution(package).locate_file(file)))
    tree = ast.parse(source.read_text())
    tree.body = [node for node in tree.body if getattr(node, "name", None) in names]
    assert len(tree.body) == len(names), f"{source}: not all of {names} are there"
    exec(compile(tree, source, "exec"), world)
    return world


def without_packages(name: str, packages: tuple[str, ...]) -> Any:
    """A module, without running the packages around it and all that they import."""
    for package in packages:
        empty = ModuleType(package)
        empty.__path__ = [str(distribution(packages[0]).locate_file(package.replace(".", "/")))]
        sys.modules[package] = empty
    return import_module(name)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
