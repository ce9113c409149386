"""Runs a job now and waits for its end: FERMATA_ADDRESS=127.0.0.1:7070 python3 examples/run_job.py JOB"""

import asyncio
import os
import sys

from fermata import Fermata
from fermata.v1 import Outcome


async def main(id: str) -> int:
    async with Fermata.connect(os.environ.get("FERMATA_ADDRESS", "127.0.0.1:7070")) as f:
        run = await f.jobs.run(id, backoff="keep", wait=60)
        print(Outcome.Name(run.outcome), run.output_text, run.error)
        return 0 if run.outcome == Outcome.OUTCOME_SUCCEEDED else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} JOB")
    sys.exit(asyncio.run(main(sys.argv[1])))
