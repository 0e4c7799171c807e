#!/bin/bash
sed -i \
  -e '/^from invoice import settings$/,+1 d' \
  -e 's/def tax(lines)/def tax(lines, tax_percent)/' \
  -e 's/def gross(lines)/def gross(lines, tax_percent)/' \
  -e 's/ + tax(lines)/ + tax(lines, tax_percent)/' \
  -e 's/settings\.TAX_PERCENT/tax_percent/' \
  invoice/totals.py
sed -i \
  -e 's/import settings, totals/import totals/' \
  -e 's/def amount(cents)/def amount(cents, currency)/' \
  -e 's/settings\.CURRENCY/currency/' \
  -e 's/def row(label, cents)/def row(label, cents, currency)/' \
  -e 's/{amount(cents):/{amount(cents, currency):/' \
  -e 's/def render(lines)/def render(lines, *, currency, tax_percent)/' \
  -e 's/count \* price) for/count * price, currency) for/' \
  -e 's/totals\.net(lines))/totals.net(lines), currency)/' \
  -e 's/totals\.tax(lines))/totals.tax(lines, tax_percent), currency)/' \
  -e 's/totals\.gross(lines))/totals.gross(lines, tax_percent), currency)/' \
  -e 's/settings\.TAX_PERCENT/tax_percent/' \
  invoice/text.py
sed -i \
  -e 's/import settings, text/import text/' \
  -e 's/"--currency", .*/"--currency", default="EUR", help="default: EUR")/' \
  -e 's/"--tax-percent", .*/"--tax-percent", type=int, default=19, help="default: 19")/' \
  -e '/settings\.configure/ d' \
  -e 's/text\.render(arguments\.lines)/text.render(arguments.lines, currency=arguments.currency, tax_percent=arguments.tax_percent)/' \
  invoice/__main__.py
rm invoice/settings.py
