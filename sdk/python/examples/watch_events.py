"""Prints the dead runs, and continues after a restart where it was: python3 examples/watch_events.py PLACE [COUNT]"""

import asyncio
import os
import sys

from fermata import Fermata, FileToken


async def main(place: str, count: int) -> None:
    async with Fermata.connect(os.environ.get("FERMATA_ADDRESS", "127.0.0.1:7070")) as f:
        async for event in f.events(kinds=["run.dead", "run.succeeded"], queues=["mail"], resume=FileToken(place)):
            print(event.kind, event.job, event.error, flush=True)
            count -= 1
            if count == 0:
                return


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else -1))
