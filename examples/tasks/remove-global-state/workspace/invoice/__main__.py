"""The command line: python3 -m invoice [--currency C] [--tax-percent N] NAME;COUNT;PRICE ..."""

import argparse
import sys
from decimal import Decimal

from invoice import settings, text


def line(argument):
    """(name, count, price in cents) of an argument such as `Chair;2;49.50`."""
    name, count, price = argument.split(";")
    return name, int(count), int(Decimal(price) * 100)


def main():
    parser = argparse.ArgumentParser(prog="invoice")
    parser.add_argument("--currency", help=f"default: {settings.CURRENCY}")
    parser.add_argument("--tax-percent", type=int, help=f"default: {settings.TAX_PERCENT}")
    parser.add_argument("lines", nargs="+", type=line, metavar="NAME;COUNT;PRICE")
    arguments = parser.parse_args()
    settings.configure(arguments.currency, arguments.tax_percent)
    sys.stdout.write(text.render(arguments.lines))


if __name__ == "__main__":
    main()
