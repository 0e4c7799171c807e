"""The paths of Gemini's calls: here they name the model, the method and the form of a stream."""

import re
from urllib.parse import parse_qs, unquote

import msgspec

UNARY = "generatecontent"
STREAM = "streamgeneratecontent"
COUNT = "counttokens"

_PATH = re.compile(r"(?:/v\d\w*)*/models/(?P<model>[^?]+):(?P<method>[a-zA-Z]+)(?:\?(?P<query>.*))?")


class Target(msgspec.Struct, frozen=True):
    """What the path of a call says."""

    model: str
    method: str
    """In lower case, for clients do not agree on its spelling."""
    as_events: bool
    """Whether a stream is to be server-sent events; else it is an array."""


def target(path: str) -> Target | None:
    """What a path says, with or without version and query; None when it is not one of a model's methods.

    >>> target("/v1beta/models/gemini-x:streamGenerateContent?alt=sse")
    Target(model='gemini-x', method='streamgeneratecontent', as_events=True)
    """
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    forms = parse_qs(match["query"] or "").get("alt", [])
    return Target(unquote(match["model"]), match["method"].lower(), any(form.lower() == "sse" for form in forms))
