"""Judges report.py: the reward is the share of the rules that hold on shops that the workspace does not show."""

import csv
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

REWARD = Path("/logs/verifier/reward.txt")
START = time.monotonic()
# For each rule: products (sku, category, price), orders (sku, quantity, note), expected rows, expected skipped orders.
RULES = {
    "sums by category": (
        [("a", "tea", 250), ("b", "tea", 1000), ("c", "milk", 99)],
        [("a", 3, ""), ("b", 1, ""), ("c", 2, ""), ("a", 1, "")],
        ["tea,5,20.00", "milk,2,1.98"], 0,
    ),
    "commas, quotes and line breaks in notes": (
        [("a", "tea", 100), ("b", "milk", 70)],
        [("a", 1, 'a,b,7\n9,b,5,"x"'), ("b", 1, '"\r\n,'), ("a", 2, ",,,")],
        ["tea,3,3.00", "milk,1,0.70"], 0,
    ),
    "a category that sold nothing": (
        [("a", "tea", 100), ("b", "milk", 70), ("c", "cake", 400)], [("b", 2, "")],
        ["milk,2,1.40", "cake,0,0.00", "tea,0,0.00"], 0,
    ),
    "returns count against the sales": (
        [("a", "tea", 305), ("b", "milk", 70)], [("a", 2, ""), ("b", 1, ""), ("a", -1, "")],
        ["tea,1,3.05", "milk,1,0.70"], 0,
    ),
    "more returns than sales": (
        [("a", "tea", 305), ("b", "milk", 5)], [("a", -1, ""), ("b", -1, "")],
        ["milk,-1,-0.05", "tea,-1,-3.05"], 0,
    ),
    "equal revenues in order of name": (
        [("a", "tea", 50), ("b", "bread", 100), ("c", "milk", 100)], [("a", 2, ""), ("c", 1, ""), ("b", 1, "")],
        ["bread,1,1.00", "milk,1,1.00", "tea,2,1.00"], 0,
    ),
    "numbers are not sorted as text": (
        [("a", "tea", 900), ("b", "milk", 1000)], [("a", 1, ""), ("b", 1, "")],
        ["milk,1,10.00", "tea,1,9.00"], 0,
    ),
    "unknown products are skipped and counted": (
        [("a", "tea", 100)], [("a", 1, ""), ("x", 5, ""), ("A", 1, ""), ("x", 1, "")],
        ["tea,1,1.00"], 3,
    ),
    "large sums are exact": (
        [("a", "tea", 9007199254740993)], [("a", 1, ""), ("a", 2, "")],
        ["tea,3,270215977642229.79"], 0,
    ),
}  # fmt: skip


def stop(reason: str) -> NoReturn:
    print("FAIL", reason)
    REWARD.write_text("0\n")
    sys.exit()


def run(*command: str) -> tuple[str, str]:
    """What the work under test prints. It runs apart, where it can reach neither this judge nor its files."""
    argv = ["whet-untrusted", "--time", "20", "--", *command]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode == 124 or time.monotonic() - START > 90:
        stop("the work takes too long")
    return (done.stdout, done.stderr) if done.returncode == 0 else ("", "")


verdicts = []
for rule, (products, orders, rows, skipped) in RULES.items():
    folder = Path(tempfile.mkdtemp(dir=os.environ["WHET_SCRATCH"]))
    with sqlite3.connect(folder / "hidden.db") as database:
        database.execute("CREATE TABLE products (sku TEXT, name TEXT, category TEXT, price_cents INTEGER)")
        database.executemany("INSERT INTO products VALUES (?, 'name', ?, ?)", products)
    database.close()
    with (folder / "hidden.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["order_id", "sku", "quantity", "note"])
        writer.writerows((number, *order) for number, order in enumerate(orders, start=1))
    stdout, stderr = run("python3", "-B", "report.py", str(folder / "hidden.db"), str(folder / "hidden.csv"))
    counted = stderr.splitlines()[-1:] == [f"skipped: {skipped}"] if skipped else "skipped" not in stderr
    verdicts.append(stdout.splitlines() == ["category,units,revenue", *rows] and counted)
    print("ok  " if verdicts[-1] else "FAIL", rule)

REWARD.write_text(f"{sum(verdicts) / len(verdicts):.4f}\n")
