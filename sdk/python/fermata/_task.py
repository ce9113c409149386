"""What a handler sees: its task, and the errors that it may raise."""

import asyncio
import datetime
import enum
import json
import os
import threading
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from google.protobuf import timestamp_pb2

from fermata._values import MAX_ERROR, Seconds, clip, datetime_of, output_of, seconds_of
from fermata.v1 import worker_service_pb2 as pb


class Cause(enum.StrEnum):
    """Why an attempt has to end."""

    TIMED_OUT = "timed out"  # the timeout of the job has passed
    CANCELLED = "cancelled"  # the run was cancelled
    LEASE_LOST = "lease lost"  # another worker may run the next attempt: write nothing more
    STOPPED = "worker stops"  # the attempt is leased again, uncounted


_CAUSE_TEXTS = {
    Cause.TIMED_OUT: "the attempt's timeout has passed",
    Cause.CANCELLED: "the run was cancelled",
    Cause.LEASE_LOST: "the lease is lost",
    Cause.STOPPED: "the worker stops",
}


class Permanent(Exception):
    """An error that a retry will not fix: the run ends without further attempts."""


class InvalidPayload(Permanent, ValueError):
    """The payload cannot be decoded. The next attempt would have the same payload."""


class RetryAfter(Exception):
    """An error whose next attempt should start no earlier than after a delay, within the bounds of the job's policy."""

    def __init__(self, error: object, delay: Seconds) -> None:
        super().__init__(error)
        self.delay = max(0.0, seconds_of(delay))

    def __str__(self) -> str:
        return str(self.args[0])


class Ended(Exception):
    """The attempt has to end; raised by Task.wait and Task.check. Task.cause says why."""


class NotTrusted(Ended):
    """The process was suspended between the start of an attempt and that of its thread."""


class Task:
    """One attempt of a run."""

    __slots__ = ("run", "queue", "handler", "payload", "labels", "attempt", "max_attempts", "timeout", "token",
                 "correlation_id", "traceparent", "tracestate", "stopped", "cause", "_nominal", "_due", "_output",
                 "_attempt")

    def __init__(
        self, *, run: str, queue: str = "default", handler: str = "", payload: bytes = b"",
        labels: Mapping[str, str] | None = None, attempt: int = 1, max_attempts: int = 0,
        nominal_time: timestamp_pb2.Timestamp | None = None, due_time: timestamp_pb2.Timestamp | None = None,
        timeout: float | None = None, token: int = 0, correlation_id: str = "", traceparent: str = "",
        tracestate: str = "",
    ) -> None:
        self.run = run  # namespaces/{n}/jobs/{j}/runs/{r}, the same for all attempts: an idempotency key
        self.queue = queue
        self.handler = handler
        self.payload = payload
        self.labels: dict[str, str] = dict(labels or {})
        self.attempt = attempt  # from 1
        self.max_attempts = max_attempts  # 0: no limit
        self.timeout = timeout  # seconds that the handler may run; None: no limit
        self.token = token  # grows with each lease of the job: a store can refuse smaller ones
        self.correlation_id = correlation_id
        self.traceparent = traceparent  # "": the run is not traced
        self.tracestate = tracestate
        self.stopped = threading.Event()  # set when the attempt has to end
        self.cause: Cause | None = None  # why it has to end
        self._nominal, self._due = nominal_time, due_time
        self._output: Any = None
        self._attempt: Any = None  # of the worker

    @property
    def namespace(self) -> str:
        """The namespace of the job."""
        return self._part("namespaces")

    @property
    def job(self) -> str:
        """The id of the job."""
        return self._part("jobs")

    @property
    def run_id(self) -> str:
        """The id of the run, unique in its job."""
        return self._part("runs")

    def _part(self, kind: str) -> str:
        parts = self.run.split("/")
        return parts[parts.index(kind) + 1] if kind in parts[:-1] else ""

    @property
    def nominal_time(self) -> datetime.datetime | None:
        """The scheduled time, in UTC."""
        return datetime_of(self._nominal) if self._nominal is not None else None

    @property
    def due_time(self) -> datetime.datetime | None:
        """The scheduled time after jitter and backoff, in UTC."""
        return datetime_of(self._due) if self._due is not None else None

    @property
    def last_attempt(self) -> bool:
        """Whether a failure of this attempt ends the run."""
        return 0 < self.max_attempts <= self.attempt

    def text(self) -> str:
        """Returns the payload as text. If it is not UTF-8, raises a Permanent that is also a ValueError."""
        try:
            return self.payload.decode()
        except UnicodeDecodeError as error:
            raise InvalidPayload(f"payload: not UTF-8: {error.reason} at byte {error.start}") from error

    def json(self) -> Any:
        """Returns the payload as a JSON value. If it is not JSON, raises a Permanent that is also a ValueError."""
        if not self.payload:
            raise InvalidPayload("payload: empty, want JSON")
        try:
            return json.loads(self.payload)
        except (ValueError, RecursionError) as error:
            raise InvalidPayload(f"payload: not JSON: {error}") from error

    @property
    def cancelled(self) -> bool:
        """Whether the attempt has to end, for any cause."""
        return self.cause is not None

    def check(self) -> None:
        """Raises Ended if the attempt has to end. For handlers that run in a thread."""
        if self.stopped.is_set():
            raise Ended(_CAUSE_TEXTS[self.cause] if self.cause else "")

    def wait(self, seconds: Seconds) -> None:
        """Waits, and raises Ended as soon as the attempt has to end. For handlers that run in a thread."""
        self.stopped.wait(seconds_of(seconds))
        self.check()

    def set_output(self, value: Any) -> None:
        """Sets the output to keep with the run, also if it fails. What a handler returns replaces it."""
        self._output = output_of(value)

    def end(self, cause: Cause) -> None:
        """Makes the attempt end, as the worker does. The first cause counts. For tests of handlers."""
        if self.cause is None:
            self.cause = cause
            self.stopped.set()

    def __repr__(self) -> str:
        return f"<Task {self.run} attempt {self.attempt}>"


# A handler is async, or a function that runs in a thread.
Handler = Callable[[Task], Any]
AsyncHandler = Callable[[Task], Awaitable[Any]]
Middleware = Callable[[Task, AsyncHandler], Awaitable[Any]]

Outcome = pb.Result.Outcome


class Ending:
    """How a handler ended."""

    __slots__ = ("outcome", "error", "output", "retry_after", "stack")

    def __init__(self, outcome: Any, error: str = "", output: bytes = b"", retry_after: float = 0.0,
                 stack: str = "") -> None:
        self.outcome, self.error, self.output = outcome, error, output
        self.retry_after = retry_after
        self.stack = stack  # of an exception that is none of this package

    @property
    def failed(self) -> bool:
        return bool(self.outcome != pb.Result.OUTCOME_SUCCEEDED)


def ending_of(task: Task, value: Any) -> Ending:
    """Returns the ending of a handler that has returned."""
    try:
        output = output_of(value) if value is not None else task._output or b""
        return Ending(pb.Result.OUTCOME_SUCCEEDED, output=output)
    except BaseException as error:  # a value that is not JSON; the calls that found it are those of this package
        return failure_of(task, error.with_traceback(None))


def failure_of(task: Task, error: BaseException) -> Ending:
    """Returns the ending of a handler that has raised an exception, whichever."""
    permanent = _find(error, Permanent)
    hint = _find(error, RetryAfter)
    known = permanent or hint or (error if isinstance(error, Ended) else None)
    outcome = pb.Result.OUTCOME_FAILED
    if permanent:
        outcome = pb.Result.OUTCOME_FAILED_PERMANENTLY
    elif task.cause is Cause.TIMED_OUT:
        outcome = pb.Result.OUTCOME_TIMED_OUT
    elif task.cause is Cause.CANCELLED:
        outcome = pb.Result.OUTCOME_CANCELLED
    stack = ""
    if known is not None:
        text = _text_of(known) or type(known).__name__
    elif task.cause is not None and _is_cancellation(error):
        text = _CAUSE_TEXTS[task.cause]
    else:
        text, stack = _describe(error), _stack_of(error)
    return Ending(outcome, clip(text, MAX_ERROR), task._output or b"",
                  hint.delay if isinstance(hint, RetryAfter) else 0.0, stack)


def _find(error: BaseException, kind: type[Exception]) -> Exception | None:
    """Returns the error if it is of a kind, or the first of that kind in a group, as asyncio.TaskGroup raises it."""
    if isinstance(error, kind):
        return error
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            found = _find(part, kind)
            if found:
                return found
    return None


def _is_cancellation(error: BaseException) -> bool:
    return isinstance(error, asyncio.CancelledError)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # of the handler's own class, whatever it is
        return ""


_WORKER_FILES = {os.path.join(os.path.dirname(__file__), name) for name in ("_table.py", "_threads.py", "worker.py")}
_MAX_FRAMES = 8
_MAX_STACK = 8 << 10


def _describe(error: BaseException) -> str:
    """Returns type, text and the innermost calls of an exception, so that they fit in a stored error."""
    if isinstance(error, BaseExceptionGroup) and error.exceptions:
        return clip(f"{_text_of(error)}: {_describe(error.exceptions[0])}", MAX_ERROR)
    text = _text_of(error)
    out = clip(f"{type(error).__name__}: {text}" if text else type(error).__name__, MAX_ERROR // 2)
    separator = " at "
    for frame in reversed(_frames(error)[-_MAX_FRAMES:]):
        call = f"{separator}{frame.name} ({os.path.basename(frame.filename)}:{frame.lineno})"
        if len((out + call).encode("utf-8", "replace")) > MAX_ERROR:
            break
        out += call
        separator = " < "
    return out


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Returns the calls of an exception without those of the worker itself."""
    try:
        return [f for f in traceback.extract_tb(error.__traceback__) if f.filename not in _WORKER_FILES]
    except BaseException:
        return []


def _stack_of(error: BaseException) -> str:
    try:
        if len(_text_of(error)) > _MAX_STACK:  # whose formatting would block the event loop
            return ""
        shown = traceback.TracebackException.from_exception(error)
        shown.stack = traceback.StackSummary.from_list(_frames(error))
        return clip("".join(shown.format()), _MAX_STACK)
    except BaseException:
        return ""


def task_of(lease: pb.Lease) -> Task:
    """Returns the task of a lease."""
    timeout = lease.timeout.ToNanoseconds() / 1e9 if lease.HasField("timeout") else 0.0
    return Task(
        run=lease.run, queue=lease.queue, handler=lease.handler, payload=lease.payload, labels=lease.labels,
        attempt=lease.attempt, max_attempts=lease.max_attempts,
        nominal_time=lease.nominal_time if lease.HasField("nominal_time") else None,
        due_time=lease.due_time if lease.HasField("due_time") else None, timeout=timeout if timeout > 0 else None,
        token=lease.token, correlation_id=lease.correlation_id, traceparent=lease.trace_context.traceparent,
        tracestate=lease.trace_context.tracestate,
    )
