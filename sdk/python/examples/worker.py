"""Sends digests: runs the jobs of the queue mail whose handler is send-digest, as examples/worker does in Go.

    FERMATA_ADDRESS=127.0.0.1:7070 python3 examples/worker.py
    fermata jobs create digest --every 1m --queue mail --handler send-digest --payload ada@example.com
"""

import asyncio
import logging
import os

from fermata import Permanent, Task, Worker

log = logging.getLogger("digests")
worker = Worker(os.environ.get("FERMATA_ADDRESS", "127.0.0.1:7070"), queues=["mail"], slots=20)


@worker.handle("send-digest")
async def send_digest(task: Task) -> str:
    """Is called once for each attempt. Its exception makes the attempt fail; the job's policy decides what follows."""
    account = task.text()
    if not account:
        raise Permanent("no such account")  # another attempt would fail as well
    await send(account, task.token)  # the token only grows: a store can refuse what an older attempt writes
    return f"sent to {account}"  # kept with the run


async def send(account: str, token: int) -> None:
    """Stands for your own code."""
    log.info("digest sent to %s, token %d", account, token)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(worker.run())  # until SIGTERM, then finishes what runs
