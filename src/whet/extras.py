"""Packages that few need. They are extras of whet, and whoever needs one is told how to install it."""

from importlib.util import find_spec

from whet.errors import UserError


def require_extra(module: str, extra: str, what: str) -> None:
    """UserError when this module is not installed.

    >>> require_extra("json", "parquet", "JSON files")
    >>> require_extra("no_such_module", "parquet", "Parquet files")
    Traceback (most recent call last):
    whet.errors.UserError: Parquet files need one more package: pip install 'whet[parquet]'
    """
    if find_spec(module) is None:
        raise UserError(f"{what} need one more package: pip install 'whet[{extra}]'")


def require_parquet() -> None:
    """UserError when Parquet files cannot be read and written."""
    require_extra("pyarrow", "parquet", "Parquet files and Arrow tables")
