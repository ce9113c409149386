"""A worker whose handler the test controls by files in a directory: it writes ID.begun and ID.ended, and waits for
ID.release."""

import asyncio
import logging
import os
import signal
import sys

from fermata_worker import Ended, RetryAfter, Worker

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


async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    worker = Worker(
        os.environ["FERMATA_ADDRESS"].split(","), queues=["python"], slots=8,
        handlers={"hold": hold, "fail-once": fail_once},
    )
    return await worker.run(stop)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    sys.exit(0 if asyncio.run(main()) else 1)
