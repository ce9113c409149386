"""Middleware: a function around every handler. This one measures, and passes the run's trace on."""

import asyncio
import logging
import os
import time
from typing import Any

import fermata
from fermata import Task, Worker

log = logging.getLogger("calls")
worker = Worker(os.environ.get("FERMATA_ADDRESS", "127.0.0.1:7070"), queues=["calls"], slots=8)


@worker.use
async def measure(task: Task, call: Any) -> Any:
    began = time.monotonic()
    try:
        return await call(task)
    finally:
        log.info("handler=%s run=%s ms=%d", task.handler, task.run_id, (time.monotonic() - began) * 1000)


@worker.handle("call")
async def call(task: Task) -> dict[str, str]:
    return fermata.trace.headers()  # for the requests that the handler makes; empty if the run is not traced


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(worker.run())
