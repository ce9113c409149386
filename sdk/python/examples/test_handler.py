"""A test of a handler: no worker and no node is needed. Run it with pytest, or alone."""

import asyncio

from fermata import Cause, testing
from worker import send_digest  # of this directory


def test_unknown_account_is_not_retried() -> None:
    result = asyncio.run(testing.run(send_digest, testing.task(payload="")))
    assert result.permanent and result.error == "no such account"


def test_output() -> None:
    result = asyncio.run(testing.run(send_digest, testing.task(payload="ada@example.com", attempt=2)))
    assert result.succeeded and result.output == b"sent to ada@example.com"


def test_cancellation() -> None:
    async def forever(task: object) -> None:
        await asyncio.sleep(3600)

    async def cancelled() -> testing.Result:
        task = testing.task()
        asyncio.get_running_loop().call_later(0.01, task.end, Cause.CANCELLED)
        return await testing.run(forever, task)

    assert asyncio.run(cancelled()).outcome == "CANCELLED"


if __name__ == "__main__":
    test_unknown_account_is_not_retried()
    test_output()
    test_cancellation()
    print("ok")
