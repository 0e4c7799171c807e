#!/bin/bash
cat > report.py <<'PY'
"""Prints units and revenue of each product category: python3 report.py DATABASE ORDERS"""

import csv
import sqlite3
import sys
from decimal import Decimal


def main(database, orders):
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    products = {sku: (category, price) for sku, category, price in
                connection.execute("SELECT sku, category, price_cents FROM products")}
    units = {category: 0 for category, _ in products.values()}
    cents = dict(units)
    skipped = 0
    with open(orders, newline="", encoding="utf-8") as lines:
        for order in csv.DictReader(lines):
            if order["sku"] not in products:
                skipped += 1
                continue
            category, price = products[order["sku"]]
            quantity = int(order["quantity"])
            units[category] += quantity
            cents[category] += quantity * price
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["category", "units", "revenue"])
    for category in sorted(units, key=lambda name: (-cents[name], name)):
        writer.writerow([category, units[category], f"{Decimal(cents[category]) / 100:.2f}"])
    if skipped:
        print(f"skipped: {skipped}", file=sys.stderr)


main(*sys.argv[1:])
PY
