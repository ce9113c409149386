"""The program that `fermata worker check` starts: a worker with the handlers that the kit asks for.

    fermata worker check -- python3 sdk/python/conformance/worker.py
"""

import asyncio
import logging
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

from fermata import TLS, Permanent, RetryAfter, Task, TokenFile, Worker  # noqa: E402

JOURNAL = os.environ.get("FERMATA_CHECK_JOURNAL", os.devnull)


def record(event: str, task: Task) -> None:
    line = f"{event} {task.token}\n".encode()
    journal = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(journal, line)
    finally:
        os.close(journal)


async def journal(task, call):
    record("start", task)
    try:
        return await call(task)
    finally:
        record("end", task)


async def succeed(task):
    return task.payload


def fail(task):
    raise ValueError(task.text())


async def permanent(task):
    raise Permanent(task.text())


def retry_after(task):
    raise RetryAfter("busy", int(task.text()) / 1000)


async def sleep(task):
    await asyncio.sleep(int(task.text()) / 1000)
    return "slept"


def panic(task):
    sys.exit("the handler exits")


def worker() -> Worker:
    """Returns the worker that the environment describes."""
    env = os.environ
    tls = None
    if env.get("FERMATA_TLS_CA"):
        tls = TLS(ca=env["FERMATA_TLS_CA"], cert=env.get("FERMATA_TLS_CERT"), key=env.get("FERMATA_TLS_KEY"))
    timeout = env.get("FERMATA_DRAIN_TIMEOUT", "30000ms")
    w = Worker(
        env.get("FERMATA_ADDRESS", "127.0.0.1:7070"), queues=env.get("FERMATA_QUEUES", "default").split(","),
        slots=int(env.get("FERMATA_SLOTS", "16")), namespace=env.get("FERMATA_NAMESPACE", "default"),
        prefetch=int(env.get("FERMATA_PREFETCH", "1000")), drain_timeout=int(timeout.removesuffix("ms")) / 1000,
        tls=tls, token=TokenFile(env["FERMATA_TOKEN_FILE"]) if env.get("FERMATA_TOKEN_FILE") else None)
    w.use(journal)
    for name, handler in {"succeed": succeed, "fail": fail, "permanent": permanent, "retry_after": retry_after,
                          "sleep": sleep, "panic": panic}.items():
        w.handle("check." + name, handler)
    return w


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(worker().run())
