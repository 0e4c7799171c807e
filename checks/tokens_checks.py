"""What `make check-tokens` holds exported rows against: what went over the wire, what the engine says, what the oracle
says. Each check returns its complaints."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

TOLERANCE = 1e-3
END = "<|im_end|>"
HALF_CHARACTER = "\ufffd"
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Wire:
    """One model call as it was recorded."""

    sent: Mapping[str, Any]
    prompt: list[int]
    """What the engine makes of the same request when it is asked again."""
    sampled: list[int]
    said: dict[str, Any]
    """The message of the reply."""


@dataclass(frozen=True, slots=True)
class Oracle:
    """What transformers says of a row."""

    logprobs: list[float]
    ranks: list[int]
    texts: list[str]
    """Of its sampled spans."""
    text: str
    rendered: str
    """The template's text of its last request."""


@dataclass(frozen=True, slots=True)
class Row:
    """One exported row with all that is known of it."""

    exported: Mapping[str, Any]
    oracle: Oracle
    wires: Mapping[str, Wire]
    """The calls of its rollout."""

    @property
    def sampled(self) -> list[Mapping[str, Any]]:
        return sampled(self.exported)

    @property
    def trained_logprobs(self) -> list[float]:
        return [self.exported["logprobs"][at] for at in trained(self.exported)]

    @property
    def differences(self) -> list[float]:
        return [abs(a - b) for a, b in zip(self.trained_logprobs, self.oracle.logprobs, strict=True)]


def sampled(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The spans of a row that its model sampled."""
    return [span for span in row["spans"] if span["kind"] == "sampled"]


def trained(row: Mapping[str, Any]) -> list[int]:
    """The positions that the mask has on."""
    return [at for at, one in enumerate(row["loss_mask"]) if one]


def masks(row: Row) -> list[str]:
    """The mask is 1 exactly on sampled ids that are trained here, and a log-probability stands nowhere else."""
    exported = row.exported
    expected = [0] * len(exported["tokens"])
    for span in row.sampled:
        if span["trained"]:
            expected[span["start"] : span["end"]] = [1] * len(row.wires[span["call_id"]].sampled)
    complaints = [] if exported["loss_mask"] == expected else ["the mask is not that of the sampled ids"]
    if any(value and not one for value, one in zip(exported["logprobs"], expected, strict=True)):
        complaints.append("there is a log-probability where nothing was sampled")
    return complaints


def ids(row: Row) -> list[str]:
    """The ids before each reply are the engine's own of that request, and the reply's are those that it sent."""
    complaints = []
    for span in row.sampled:
        wire, tokens = row.wires[span["call_id"]], row.exported["tokens"]
        if tokens[: span["start"]] != wire.prompt:
            complaints.append(f"the prompt of call {span['call_id']} is not what the engine makes of the request")
        if tokens[span["start"] : span["end"]] != wire.sampled:
            complaints.append(f"the reply of call {span['call_id']} is not what the engine sent")
    return complaints


def texts(row: Row) -> list[str]:
    """Replies decode to what was said on the wire, and the whole row to the last request and its reply."""
    complaints = [
        f"the reply of call {span['call_id']} decodes to {text!r}"
        for span, text in zip(row.sampled, row.oracle.texts, strict=True)
        if not _says(text, row.wires[span["call_id"]].said)
    ]
    last = row.wires[row.sampled[-1]["call_id"]]
    text, rendered = row.oracle.text, row.oracle.rendered
    if not text.startswith(rendered) or not _says(text.removeprefix(rendered), last.said):
        complaints.append("the row does not decode to what was on the wire")
    return complaints


def _says(text: str, message: Mapping[str, Any]) -> bool:
    # A reply that ends at its limit may end within a character, which is not sent.
    text = text.removesuffix(END).rstrip(HALF_CHARACTER)
    calls = [call["function"] for call in message.get("tool_calls") or []]
    if not calls:
        return text == (message["content"] or "").rstrip(HALF_CHARACTER)
    made = [{"name": call["name"], "arguments": json.loads(call["arguments"])} for call in calls]
    try:
        return [json.loads(call) for call in _CALL.findall(text)] == made and not _CALL.sub("", text)
    except ValueError:
        return False


def logprobs(row: Row) -> list[str]:
    """Transformers gives the same log-probabilities for the same ids."""
    largest = max(row.differences)
    return [] if largest <= TOLERANCE else [f"a log-probability is off by {largest:.2g}"]


Check = Callable[[Row], list[str]]
CHECKS: tuple[Check, ...] = (masks, ids, texts, logprobs)


def once(rows: Iterable[Row], trained_calls: int) -> list[str]:
    """Every reply is trained in one row, and as many as the manifest says."""
    times = Counter(
        (row.exported["rollout_id"], span["call_id"]) for row in rows for span in row.sampled if span["trained"]
    )
    if set(times.values()) == {1} and len(times) == trained_calls:
        return []
    return [
        f"{len(times)} replies are trained, {max(times.values(), default=0)} times; the manifest has {trained_calls}"
    ]


def same_as_trace(rows: Iterable[Row], traces: Iterable[Mapping[str, Any]]) -> list[str]:
    """The turns of the TrainingTrace are the replies that the rows train, with the same ids and log-probabilities."""
    of_rows = {
        f"{row.exported['rollout_id']}-{span['call_id']}": (
            row.exported["tokens"][: span["start"]],
            row.exported["tokens"][span["start"] : span["end"]],
            row.exported["logprobs"][span["start"] : span["end"]],
        )
        for row in rows
        for span in row.sampled
        if span["trained"]
    }
    of_traces = {
        turn["node_id"]: (turn["prompt_token_ids"], turn["completion_token_ids"], turn["per_token_logps"])
        for trace in traces
        for turn in trace["turns"]
    }
    return [] if of_rows == of_traces else ["rows and traces hold different calls"]


def spread(values: Iterable[float]) -> float:
    """Standard deviation."""
    found = list(values)
    mean = math.fsum(found) / len(found)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in found) / len(found))
