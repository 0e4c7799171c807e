"""The addresses of all pages: one function each. Nothing else builds an address.

An address here is logical, such as `/runs/quiz/rollouts?page=2`. What stands in a page is made of it by `href`: the
server puts its root path before it, the static export turns it into a file.
"""

from collections.abc import Mapping
from urllib.parse import quote, quote_plus

Query = Mapping[str, object]
"""Parameters of an address. None and empty texts are left out; lists are repeated."""


def encode_name(name: str) -> str:
    """A name as one segment of a path. Servers decode %2F too early, so a slash is written in another way.

    >>> encode_name("demo/exam"), encode_name("a~b c")
    ('demo~1exam', 'a~0b%20c')
    """
    return quote(name.replace("~", "~0").replace("/", "~1"), safe="~")


def decode_name(segment: str) -> str:
    """The name that a segment of a path, already percent-decoded, stands for.

    >>> decode_name("demo~1exam"), decode_name("a~0b c")
    ('demo/exam', 'a~b c')
    """
    return segment.replace("~1", "/").replace("~0", "~")


def encode_query(query: Query) -> str:
    """Parameters as they stand in an address.

    >>> encode_query({"q": "a b", "page": None, "layers": "calls,results", "id": ["x", "y"]})
    'q=a+b&layers=calls,results&id=x&id=y'
    """
    given = [(name, value) for name, value in query.items() if value is not None and value not in ("", [], ())]
    pairs = [(name, one) for name, value in given for one in (value if isinstance(value, list | tuple) else (value,))]
    return "&".join([f"{quote_plus(name)}={quote_plus(str(value), safe=',')}" for name, value in pairs])


def _join(path: str, query: Query) -> str:
    encoded = encode_query(query)
    return f"{path}?{encoded}" if encoded else path


def runs(**query: object) -> str:
    """All runs."""
    return _join("/", query)


def run(name: str) -> str:
    """One run."""
    return f"/runs/{encode_name(name)}"


def summary_file(name: str) -> str:
    """The summary of a run as a file."""
    return f"{run(name)}/summary.json"


def rollouts(name: str, **query: object) -> str:
    """The table of a run's rollouts."""
    return _join(f"{run(name)}/rollouts", query)


def rollout(name: str, rollout_id: str, **query: object) -> str:
    """One rollout."""
    return _join(f"{run(name)}/rollouts/{encode_name(rollout_id)}", query)


def attempt(name: str, rollout_id: str, number: int, **query: object) -> str:
    """An earlier attempt at a rollout."""
    return _join(f"{rollout(name, rollout_id)}/attempts/{number}", query)


def labels(name: str, **query: object) -> str:
    """What people say of the rollouts of a run. Labels of many rollouts are sent there too."""
    return _join(f"{run(name)}/labels", query)


def rollout_labels(name: str, rollout_id: str) -> str:
    """Where labels of a rollout are sent."""
    return f"{rollout(name, rollout_id)}/labels"


def trace(name: str, rollout_id: str, step: int | None = None, *, anchor: str = "", **query: object) -> str:
    """What an agent did; at one of its steps. An anchor names the step even if steps are added before it."""
    address = _join(f"{rollout(name, rollout_id)}/trace", {**query, "at": anchor or step})
    return address if step is None else f"{address}#s{step}"


def same_trace(**query: object) -> str:
    """The beginning of the addresses of the steps of the trace that the page shows already, relative to it: an outline
    has a thousand of them. The number of a step follows, and its place in the page.

    >>> same_trace(layers="none") + "7#s7", same_trace() + "7#s7"
    ('?layers=none&at=7#s7', '?at=7#s7')
    """
    kept = _join("", query)
    return f"{kept}&at=" if kept else "?at="


def steps(name: str, rollout_id: str, **query: object) -> str:
    """Some steps of a trace, without the frame of the page."""
    return _join(f"{rollout(name, rollout_id)}/trace/steps", query)


def block(name: str, rollout_id: str, step: int, number: int, **query: object) -> str:
    """One long text of a step, whole."""
    return _join(f"{rollout(name, rollout_id)}/trace/steps/{step}/blocks/{number}", query)


def find(name: str, rollout_id: str, **query: object) -> str:
    """The steps of a trace that hold a text."""
    return _join(f"{rollout(name, rollout_id)}/trace/find", query)


def calls(name: str, rollout_id: str, **query: object) -> str:
    """The model calls of a rollout."""
    return _join(f"{rollout(name, rollout_id)}/calls", query)


def call(name: str, rollout_id: str, index: int, **query: object) -> str:
    """One model call."""
    return _join(f"{calls(name, rollout_id)}/{index}", query)


def call_bytes(name: str, rollout_id: str, index: int, body: str, **query: object) -> str:
    """The bytes of a model call, as a file."""
    return _join(f"{calls(name, rollout_id)}/{index}/{body}.bin", query)


def call_row(name: str, rollout_id: str, index: int, **query: object) -> str:
    """What training makes of a model call."""
    return _join(f"{calls(name, rollout_id)}/{index}/row", query)


def diff(name: str, rollout_id: str, **query: object) -> str:
    """What a rollout changed in its workspace."""
    return _join(f"{rollout(name, rollout_id)}/diff", query)


def judges(name: str, rollout_id: str, **query: object) -> str:
    """How a rollout was judged."""
    return _join(f"{rollout(name, rollout_id)}/judges", query)


def logs(name: str, rollout_id: str, **query: object) -> str:
    """The logs of a rollout."""
    return _join(f"{rollout(name, rollout_id)}/logs", query)


def log(name: str, rollout_id: str, log_name: str, **query: object) -> str:
    """One log of a rollout."""
    return _join(f"{rollout(name, rollout_id)}/logs", {"name": log_name, **query})


def image(name: str, rollout_id: str, step: int, number: int, **query: object) -> str:
    """An image of a step."""
    return _join(f"{rollout(name, rollout_id)}/trace/steps/{step}/images/{number}", query)


def export(name: str, **query: object) -> str:
    """The form that exports a run."""
    return _join(f"{run(name)}/export", query)


def export_file(name: str, **query: object) -> str:
    """A run, exported."""
    return _join(f"{run(name)}/export/file", query)


def report(name: str) -> str:
    """The report of a run of sharpening."""
    return f"{run(name)}/report"


def compare(a: str | None = None, b: str | None = None, **query: object) -> str:
    """Two runs or arms, compared."""
    return _join("/compare", {"a": a, "b": b, **query})


def compare_traces(a: tuple[str, str], b: tuple[str, str], **query: object) -> str:
    """Two traces side by side, at the first difference. Each is a run and a rollout."""
    sides = {"a": "/".join(map(encode_name, a)), "b": "/".join(map(encode_name, b))}
    return f"{_join('/compare/traces', {**sides, **query})}#first-difference"


def skills() -> str:
    """All runs with skills that were sharpened."""
    return "/skills"


def lineage(name: str) -> str:
    """How the skill of a run came to be."""
    return f"/skills/{encode_name(name)}"


def version(name: str, digest: str) -> str:
    """One version of a skill."""
    return f"{lineage(name)}/versions/{encode_name(digest)}"


def skill_diff(name: str, a: str | None = None, b: str | None = None) -> str:
    """The difference between two versions of a skill."""
    return _join(f"{lineage(name)}/diff", {"a": a, "b": b})


def certificate(
    name: str, exam: int | str | None = None, *, stop: int | None = None, start: int | None = None, check: bool = False
) -> str:
    """The certificate of a run, computed again; at one of its exams, as that stood after a pair, or at a pair. With
    `check`, all of its folder is read, however large it is."""
    places = {name: f"{exam}.{pair}" for name, pair in (("stop", stop), ("from", start)) if pair is not None}
    address = _join(f"{lineage(name)}/certificate", {**places, "check": "folder" if check else None})
    return address if exam is None else f"{address}#exam-{exam}"


def certificate_file(name: str) -> str:
    """The certificate of a run as a file."""
    return f"{lineage(name)}/certificate.json"


def any_certificate() -> str:
    """The form that checks a certificate from a file."""
    return "/certificate"


def inbox(**query: object) -> str:
    """What `whet sleep` proposes."""
    return _join("/inbox", query)


def proposal(name: str) -> str:
    """One proposal of `whet sleep`."""
    return f"/inbox/{encode_name(name)}"


def decision(name: str, action: str) -> str:
    """Where a form about a proposal is sent: adopt, reject or rollback."""
    return f"{proposal(name)}/{action}"


def search(**query: object) -> str:
    """Search in everything."""
    return _join("/search", query)


def help_page() -> str:
    """How to use the pages."""
    return "/help"


def events(**query: object) -> str:
    """What happens in all runs, as a stream."""
    return _join("/events", query)


def run_events(name: str, **query: object) -> str:
    """What happens in a run, as a stream."""
    return _join(f"{run(name)}/events", query)


def rollout_events(name: str, rollout_id: str, **query: object) -> str:
    """What happens in a rollout, as a stream."""
    return _join(f"{rollout(name, rollout_id)}/events", query)
