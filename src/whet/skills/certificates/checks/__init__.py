"""The checks of `whet certify --check`. `all_checks.py` runs them in order."""
