"""Lists failing jobs with the reason why each does not run, and pauses a queue."""

import asyncio
import os

from fermata import Fermata
from fermata.v1 import PauseQueueRequest


async def main() -> None:
    async with Fermata.connect(os.environ.get("FERMATA_ADDRESS", "127.0.0.1:7070")) as f:
        async for found in f.jobs.list("failing = true", order_by="consecutive_failures desc"):
            explanation = await f.jobs.explain(found.name)
            print(found.name, found.status.consecutive_failures, explanation.summary)
        # A method without a function of its own: call takes its request.
        settings = await f.call(PauseQueueRequest(name=f.parent + "/queues/idle"))
        print("paused", settings.name)


if __name__ == "__main__":
    asyncio.run(main())
