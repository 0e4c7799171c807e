"""Why a call failed is said with the address and the provider's own message, in one short line without secrets."""

from dataclasses import replace

import pytest

from support.trace_world import asked, exchange, said
from whet.exchange import CallError, Exchange
from whet.gateway.call_failures import LONGEST_MESSAGE, describe_failure
from whet.gateway.dialects import DIALECTS
from whet.gateway.dialects.neutral import Text


def failed(response: bytes, **changes: object) -> Exchange:
    whole = exchange(0, [asked("Go.")], said(Text("-")))
    given = {"response": response, "status": 404, "error": CallError.STATUS, "upstream": "http://a:1/v1/x?key=1"}
    return replace(whole, **{**given, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
def test_the_message_of_each_dialect_is_found(dialect: object) -> None:
    body = dialect.error_body(404, "No model\n`small-2`.")  # type: ignore[attr-defined]
    assert describe_failure(failed(body)) == "status 404 from http://a:1/v1/x: No model `small-2`"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": "model \'m\' not found"}', ": model 'm' not found"),
        (b'{"detail": "Not Found"}', ": Not Found"),
        (b'[{"error": {"message": "no"}}]', ": no"),
        (b"upstream is gone", ": upstream is gone"),
        (b"<html>Bad gateway</html>", ""),
        (b'{"error": {"message": 5}}', ""),
        (b"", ""),
    ],
)
def test_other_bodies_say_what_they_can(body: bytes, message: str) -> None:
    assert describe_failure(failed(body)) == f"status 404 from http://a:1/v1/x{message}"


def test_a_long_message_is_cut() -> None:
    assert len(describe_failure(failed(b"x" * 9999))) < LONGEST_MESSAGE + 50


def test_credentials_in_an_address_are_not_told() -> None:
    lost = failed(b"", error=CallError.REFUSED, status=None, upstream="http://me:secret@a:1/v1")
    assert describe_failure(lost) == "no connection to http://a:1/v1"


def test_an_error_in_a_stream_that_had_begun_is_told() -> None:
    stream = b'data: {"x": 1}\n\nevent: error\ndata: {"type": "error", "error": {"message": "Overloaded"}}\n\n'
    headers = (("Content-Type", "text/event-stream"),)
    cut = failed(stream, error=CallError.CUT, status=200, response_headers=headers)
    assert describe_failure(cut) == "the reply of http://a:1/v1/x is incomplete: Overloaded"
