"""`python -m whet` is `whet`."""

from whet.cli import main

if __name__ == "__main__":
    main()
