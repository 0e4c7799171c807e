"""Settings that all modules share."""

CURRENCY = "EUR"
TAX_PERCENT = 19


def configure(currency=None, tax_percent=None):
    """Change the settings for all that follows."""
    global CURRENCY, TAX_PERCENT
    if currency is not None:
        CURRENCY = currency
    if tax_percent is not None:
        TAX_PERCENT = tax_percent
