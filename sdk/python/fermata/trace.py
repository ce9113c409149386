"""W3C trace context. No tracing library is needed.

A handler of a traced run finds the headers in ``task.traceparent`` and ``task.tracestate``, and calls of the client
that it makes send them along. Elsewhere, ``use`` sets the headers for the calls inside its block:

    with fermata.trace.use(request.headers["traceparent"]):
        await f.jobs.run("digest")
"""

import contextlib
import contextvars
import re
from collections.abc import Iterator

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
_headers: contextvars.ContextVar[dict[str, str]] = contextvars.ContextVar("fermata.trace")


def is_valid(traceparent: str) -> bool:
    """Reports whether a value of the header traceparent is valid."""
    match = _PARENT.fullmatch(traceparent)
    if not match or match[1] == "ff" or (match[1] == "00" and match[4]):
        return False
    return match[2].strip("0") != "" and match[3].strip("0") != ""


def headers() -> dict[str, str]:
    """Returns the trace headers of the current context, for other protocols. Empty: there is no trace."""
    return dict(_headers.get({}))


@contextlib.contextmanager
def use(traceparent: str, tracestate: str = "") -> Iterator[None]:
    """Sets the trace headers inside a block. Invalid ones are ignored, as the recommendation demands."""
    new: dict[str, str] = {}
    if is_valid(traceparent):
        new["traceparent"] = traceparent
        if tracestate.isascii() and tracestate.isprintable() and tracestate:
            new["tracestate"] = tracestate
    before = _headers.set(new)
    try:
        yield
    finally:
        _headers.reset(before)
