"""Model calls as the gateway records them."""

from whet.exchange import CallError, Exchange


def call(error: CallError | None, status: int | None) -> Exchange:
    return Exchange(
        session="1",
        index=0,
        dialect="chat",
        path="/v1/chat/completions",
        request_headers=(),
        request=b"",
        upstream="",
        status=status,
        response_headers=(),
        response=b"",
        attempts=1,
        error=error,
        started=0.0,
        first_byte=None,
        ended=0.0,
        usage=None,
    )
