"""`make check-sleep`, secrets: how many planted secrets are left in redacted sessions, how much benign text is masked,
and how fast it is. The secrets are new with every seed; the benign text is this repository and packages it uses."""

import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from sleep_planted import KINDS, Planted, plant
from whet.sleep.redaction import Redaction
from whet.sleep.session import Origin, Session, Speaker, Step, Turn

LEAST_RECALL = 0.95
FORMS = 10
MOST_FALSE = 5.0
"""False masks per MB of benign text."""
ROOT = Path(__file__).parent.parent
MASK = re.compile(r"\[redacted:(?!mail:)([a-z0-9-]+):\d+\]")


def session_of(steps: Sequence[Step], said: str = "go on", answer: str = "") -> Session:
    turn = Turn(number=1, text=said, said_by=Speaker.PERSON, steps=tuple(steps), answer=answer)
    return Session(
        cli="codex",
        version=None,
        id="planted",
        origin=Origin.INTERACTIVE,
        cwd="/srv/shop",
        started=None,
        ended=None,
        complete=True,
        turns=(turn,),
        digest="",
    )


def hide(planted: Planted, number: int) -> Session:
    """A session with the secret in one field, by turns in every field and form."""
    text = planted.text
    fields: list[Session] = [
        session_of([Step(tool="Bash", command=text)]),
        session_of([Step(tool="Bash", command="run", output=f"ok 1\n{text}\nok 2\n")]),
        session_of([Step(tool="Bash", command="run", output=json.dumps({"log": [text], "n": 1}))]),
        session_of([Step(tool="Bash", command="run", output=json.dumps(json.dumps({"log": text})))]),
        session_of([Step(tool="Edit", path="a.py", before=f"# {number}\n{text}\n", after="# none\n")]),
        session_of([Step(tool="Write", path="b.txt", after=f"head\n{text}\ntail\n")]),
        session_of([], said=f"Please look at this.\n\n{text}\n\nThen stop."),
        session_of([], answer=f"I found it:\n\n```\n{text}\n```\n"),
        session_of(_split(text, planted.value)),
        session_of([Step(tool="Bash", command=f"echo {planted.value[-24:]}", output=text)], answer=planted.value),
    ]
    return fields[number % FORMS]


def _split(text: str, value: str) -> list[Step]:
    """The text in two outputs, cut in the middle of the secret."""
    at = text.find(value[:12]) + len(value) // 2
    return [Step(tool="Bash", command="tail", output=text[:at]), Step(tool="Bash", command="tail", output=text[at:])]


def find_left(planted: Sequence[Planted], start: int = 0) -> list[tuple[int, Planted]]:
    """The secrets that a redacted session still holds, with their numbers."""
    left = []
    for number, one in enumerate(planted, start):
        masked = Redaction({}, Path("/home/dev")).redact_session(hide(one, number))
        if one.is_in(" ".join(_texts(masked.model_dump()))):
            left.append((number, one))
    return left


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for item in value.values():
                yield from _texts(item)
        case list() | tuple():
            for item in value:
                yield from _texts(item)


def read_benign() -> list[str]:
    """Text as transcripts hold it: sources, documents, lock files, lists of hashes, the history of a repository."""
    files = [
        *ROOT.glob("src/**/*.py"),
        *ROOT.glob("src/**/*.json"),
        *ROOT.glob("docs/**/*.md"),
        ROOT / "constraints.txt",
    ]
    packages = [Path(place) for place in sys.path if place.endswith("site-packages")]
    files += [
        file for place in packages for name in ("METADATA", "RECORD") for file in place.glob(f"*.dist-info/{name}")
    ]
    history = subprocess.run(
        ["git", "-C", ROOT, "log", "-n", "2000", "--stat"], capture_output=True, check=False
    ).stdout
    texts = [file.read_text(errors="replace") for file in sorted(files) if file.stat().st_size < 1 << 20]
    return [*texts, history.decode(errors="replace")]


def count_masks(texts: Sequence[str]) -> Counter[str]:
    return Counter(found[1] for text in texts for found in MASK.finditer(text))


def main() -> None:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.SystemRandom().randrange(10**6)
    planted = plant(seed)
    left = find_left(planted, seed)
    for number, one in left:
        print(f"  left: {one.kind.name} in form {number % FORMS}: {one.text[:40]!r} ...")
    with_rule = [one for _, one in left if one.kind.has_form]
    recall = 1 - len(left) / len(planted)

    benign = read_benign()
    size = sum(len(text.encode()) for text in benign) / 1e6
    redaction, started = Redaction({}, Path("/home/dev")), time.process_time()
    masked = [redaction.redact_text(text) for text in benign]
    seconds = time.process_time() - started
    false = count_masks(masked)
    false.subtract(count_masks(benign))  # documents show masks
    per_mb = false.total() / size

    print(f"seed {seed}: {len(planted)} planted secrets of {len(KINDS)} kinds; {len(left)} left, recall {recall:.3f}")
    print(f"left of kinds with a rule: {len(with_rule)}")
    print(f"false masks in {size:.1f} MB of benign text: {false.total()}, {per_mb:.2f} per MB ({dict(+false)})")
    print(f"{size / seconds:.1f} MB for each second of processor time")
    if recall < LEAST_RECALL or with_rule or per_mb > MOST_FALSE:
        sys.exit(
            f"expected recall >= {LEAST_RECALL}, none left of kinds with a rule, <= {MOST_FALSE} false masks per MB"
        )


if __name__ == "__main__":
    main()
