"""The acceptance worker in Python: it is configured like the one in Go, and appends the same records to its file."""

import asyncio
import datetime
import json
import logging
import os
import sys
import time

from fermata import Task, Worker

EPOCH = datetime.datetime.fromtimestamp(0, datetime.timezone.utc)

config = json.loads(os.environ["FERMATA_ACCEPTANCE_CONFIG"])
evidence = os.open(config["evidence"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def milliseconds(at: datetime.datetime | None) -> int:
    return (at - EPOCH) // datetime.timedelta(milliseconds=1) if at else 0


def record(kind: str, task: Task, outcome: str = "") -> None:
    """Appends an event by one write, so that a killed process leaves whole lines."""
    event = {
        "at": time.time_ns(), "kind": kind, "worker": config["id"], "job": task.job, "run": task.run,
        "attempt": task.attempt, "token": task.token, "nominal": milliseconds(task.nominal_time),
        "due": milliseconds(task.due_time), "outcome": outcome,
    }
    os.write(evidence, (json.dumps(event) + "\n").encode())


async def do(sleep: int = 0, fail: bool = False, fail_attempts: int = 0, attempt: int = 1) -> None:
    """Does what a payload says. It does not know all fields that the worker in Go knows: others are errors."""
    if sleep:
        await asyncio.sleep(sleep / 1e9)
    if fail or attempt <= fail_attempts:
        raise RuntimeError("the payload demands a failure")


async def handle(task: Task) -> None:
    record("start", task)
    try:
        await do(**task.json(), attempt=task.attempt)
    except asyncio.CancelledError:
        record("told", task)
        record("end", task, "cancelled")
        raise
    except BaseException:
        record("end", task, "failed")
        raise
    record("end", task, "ok")


async def main() -> None:
    worker = Worker(config["addresses"], queues=config["queues"], slots=config["slots"], id=config["id"],
                    drain_timeout=10)
    worker.handle("acceptance", handle)
    print(json.dumps({"msg": "acceptance worker is up"}), file=sys.stderr, flush=True)
    await worker.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
