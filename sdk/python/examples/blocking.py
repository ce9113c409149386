"""A handler that blocks: written without async, it runs in a thread.

It waits with task.wait, or looks at task.stopped, so that it ends soon when the run is cancelled or its time is over.
"""

import asyncio
import logging
import os

from fermata import RetryAfter, Task, Worker

worker = Worker(os.environ.get("FERMATA_ADDRESS", "127.0.0.1:7070"), queues=["reports"], slots=4)


@worker.handle("build-report")
def build_report(task: Task) -> dict[str, int]:
    rows = 0
    for _ in range(task.json()["pages"]):
        task.wait(0.01)  # stands for work; raises Ended when the attempt has to end
        rows += 100
    return {"rows": rows}  # an output that is no text becomes JSON


@worker.handle("call-partner")
def call_partner(task: Task) -> str:
    if task.attempt == 1:
        raise RetryAfter("the partner is busy", 0.05)  # seconds; the job's policy bounds it
    return f"done at attempt {task.attempt}"


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(worker.run())
