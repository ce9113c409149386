"""Sends digests: runs the jobs of the queue mail whose handler is send-digest, as examples/worker does in Go.

    FERMATA_ADDRESS=127.0.0.1:7070 python3 examples/python/worker.py
    fermata jobs create digest --every 1m --queue mail --handler send-digest --payload ada@example.com
"""

import asyncio
import logging
import os
import signal
import sys

from fermata_worker import Permanent, Worker

log = logging.getLogger("digests")


def send_digest(task):
    """Is called once for each attempt. Its exception makes the attempt fail; the job's policy decides what follows."""
    account = task.payload.decode()
    if not account:
        raise Permanent("no such account")  # another attempt would fail as well
    send(account, task.token)  # the token only grows: a store can refuse what an older attempt writes
    return f"sent to {account}"  # kept with the run


def send(account, token):
    """Stands for your own code."""
    log.info("digest sent to %s, token %d", account, token)


async def main():
    stop = asyncio.Event()
    for sig in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sig, stop.set)
    worker = Worker(
        os.environ.get("FERMATA_ADDRESS", "127.0.0.1:7070").split(","),  # of any nodes
        handlers={"send-digest": send_digest}, queues=["mail"], slots=20,
    )
    return await worker.run(stop)  # finishes what runs


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    sys.exit(0 if asyncio.run(main()) else 1)
