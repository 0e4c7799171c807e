"""Sums of invoice lines. A line is (name, count, price in cents)."""

from invoice import settings


def net(lines):
    """Cents before tax."""
    return sum(count * price for _, count, price in lines)


def tax(lines):
    """Cents of tax, rounded half up."""
    return (net(lines) * settings.TAX_PERCENT + 50) // 100


def gross(lines):
    """Cents to pay."""
    return net(lines) + tax(lines)
