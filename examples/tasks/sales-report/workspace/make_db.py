"""Builds shop.db from shop.sql."""

import sqlite3
from pathlib import Path

Path("shop.db").unlink(missing_ok=True)
connection = sqlite3.connect("shop.db")
connection.executescript(Path("shop.sql").read_text(encoding="utf-8"))
connection.close()
