"""Says when a stretch of time from now will be over: python3 countdown.py 1h 30m"""

import datetime as dt
import sys

from durations import parse_duration


def main():
    try:
        seconds = parse_duration(" ".join(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"countdown: {error}")
    print(dt.datetime.now().astimezone() + dt.timedelta(seconds=seconds))


if __name__ == "__main__":
    main()
