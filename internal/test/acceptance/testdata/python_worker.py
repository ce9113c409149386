"""A worker whose handler the test controls by files in a directory: it writes ID.begun and ID.ended, and waits for
ID.release."""

import asyncio
import logging
import os

from fermata import Ended, RetryAfter, Worker

directory = os.environ["PYTHON_WORKER_DIR"]


def record(task, event):
    with open(os.path.join(directory, task.payload.decode() + "." + event), "a", encoding="utf-8") as f:
        f.write(f"{task.attempt} {task.cause}\n")


def hold(task):
    record(task, "begun")
    try:
        while not os.path.exists(os.path.join(directory, task.payload.decode() + ".release")):
            task.wait(0.02)
    except Ended:
        record(task, "ended")
        raise
    record(task, "ended")
    return "released"


def fail_once(task):
    if task.attempt == 1:
        raise RetryAfter(RuntimeError("busy"), 0.01)
    return f"attempt {task.attempt}, token {task.token}"


worker = Worker(os.environ["FERMATA_ADDRESS"], queues=["python"], slots=8)
worker.handle("hold", hold)
worker.handle("fail-once", fail_once)

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(worker.run())
