"""Field types that tasks and judges share."""

from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator


def _inside(path: str) -> str:
    pure = PurePosixPath(path)
    outside = pure.is_absolute() or ".." in pure.parts or pure == PurePosixPath(".")
    if outside or path.endswith("/") or "\0" in path:
        raise ValueError("expected a relative path of a file that stays inside the working directory")
    return path


def _shallow(value: Any, levels: int = 50) -> Any:
    # A store cannot hold deeper values.
    if levels == 0:
        raise ValueError("is nested too deeply; expected at most 50 levels")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _shallow(item, levels - 1)
    return value


RelativePath = Annotated[str, AfterValidator(_inside)]
Table = Annotated[dict[str, Any], AfterValidator(_shallow)]
Value = Annotated[Any, AfterValidator(_shallow)]
"""Anything that JSON can hold."""
