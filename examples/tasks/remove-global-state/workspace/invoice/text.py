"""An invoice as text."""

from invoice import settings, totals

WIDTH = 40


def amount(cents):
    """A sum of money, such as `12.30 EUR`."""
    return f"{cents // 100}.{cents % 100:02} {settings.CURRENCY}"


def row(label, cents):
    """A label on the left and a sum on the right."""
    return f"{label}{amount(cents):>{WIDTH - len(label)}}"


def render(lines):
    """The whole invoice, with a line break at its end."""
    rows = [row(f"{count} x {name}", count * price) for name, count, price in lines]
    rows.append("-" * WIDTH)
    rows.append(row("net", totals.net(lines)))
    rows.append(row(f"tax {settings.TAX_PERCENT}%", totals.tax(lines)))
    rows.append(row("to pay", totals.gross(lines)))
    return "\n".join(rows) + "\n"
