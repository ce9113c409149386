"""Registers jobs: one with a schedule, and many at once."""

import asyncio
import datetime
import os

from fermata import Fermata, FermataError, cron, errors, every, job, once


async def main() -> None:
    async with Fermata.connect(os.environ.get("FERMATA_ADDRESS", "127.0.0.1:7070")) as f:
        digest = await f.jobs.create(
            "digest", handler="send-digest", queue="mail", payload={"tenant": 7}, timeout=60,
            schedule=cron("0 7 * * MON-FRI", "Europe/Berlin"), retry_policy={"max_attempts": 3, "base_delay": 2})
        print("created", digest.name)

        tomorrow = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
        results = await f.jobs.create_many([
            ("poll-a", job(handler="poll", queue="polls", schedule=every(60))),
            ("remind", job(handler="remind", queue="mail", schedule=once(tomorrow))),
            ("bad", job(handler="", queue="polls")),
        ])
        for result in results:
            print("failed" if isinstance(result, FermataError) else "created", getattr(result, "name", result))

        try:
            await f.jobs.create("wrong", handler="poll", queue="two words")
        except errors.InvalidRequest as error:
            for violation in error.violations:
                print("invalid", violation.field)


if __name__ == "__main__":
    asyncio.run(main())
