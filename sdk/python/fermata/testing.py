"""Tests of handlers without a worker and without a node.

    result = await fermata.testing.run(send_digest, fermata.testing.task(payload={"to": "nobody"}))
    assert result.permanent
"""

import asyncio
import dataclasses
import datetime
import inspect
from collections.abc import Mapping
from typing import Any

from fermata._task import Cause, Handler, Outcome, Task, ending_of, failure_of
from fermata._values import Seconds, payload_of, seconds_of, timestamp


def task(
    payload: Any = b"", *, job: str = "test", run: str = "1", namespace: str = "default", queue: str = "default",
    handler: str = "test", attempt: int = 1, max_attempts: int = 0, labels: Mapping[str, str] | None = None,
    token: int = 1, timeout: Seconds | None = None, nominal_time: datetime.datetime | None = None,
    due_time: datetime.datetime | None = None, correlation_id: str = "test", traceparent: str = "",
    tracestate: str = "",
) -> Task:
    """Returns a task. task.end(Cause.CANCELLED) ends it as a worker does."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return Task(
        run=f"namespaces/{namespace}/jobs/{job}/runs/{run}", queue=queue, handler=handler, payload=payload_of(payload),
        labels=labels, attempt=attempt, max_attempts=max_attempts, token=token,
        timeout=None if timeout is None else seconds_of(timeout), nominal_time=timestamp(nominal_time or now),
        due_time=timestamp(due_time or nominal_time or now), correlation_id=correlation_id, traceparent=traceparent,
        tracestate=tracestate)


@dataclasses.dataclass(frozen=True)
class Result:
    """What a worker would report. outcome is SUCCEEDED, FAILED, FAILED_PERMANENTLY, TIMED_OUT or CANCELLED."""

    outcome: str
    error: str
    output: bytes
    retry_after: float  # seconds; 0: no delay was asked for

    @property
    def succeeded(self) -> bool:
        return self.outcome == "SUCCEEDED"

    @property
    def permanent(self) -> bool:
        return self.outcome == "FAILED_PERMANENTLY"


async def run(handler: Handler, of: Task) -> Result:
    """Calls a handler as a worker does: an async one in the loop, any other in a thread, each with its timeout."""
    call = asyncio.ensure_future(_call(handler, of))
    timer = asyncio.get_running_loop().call_later(of.timeout, of.end, Cause.TIMED_OUT) if of.timeout else None
    ended = asyncio.ensure_future(_until_ended(of))
    try:
        await asyncio.wait([call, ended], return_when=asyncio.FIRST_COMPLETED)
        if not call.done() and inspect.iscoroutinefunction(handler):
            call.cancel()
        try:
            ending = ending_of(of, await call)
        except BaseException as error:
            ending = failure_of(of, error)
    finally:
        ended.cancel()
        if timer:
            timer.cancel()
    return Result(Outcome.Name(ending.outcome).removeprefix("OUTCOME_"), ending.error, ending.output,
                  ending.retry_after)


async def _call(handler: Handler, of: Task) -> Any:
    if inspect.iscoroutinefunction(handler):
        return await handler(of)
    return await asyncio.to_thread(handler, of)


async def _until_ended(of: Task) -> None:
    while of.cause is None:
        await asyncio.sleep(0.002)
