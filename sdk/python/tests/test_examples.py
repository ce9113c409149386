"""Every example runs, at a playground."""

import asyncio
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import uuid

from support import PATIENCE

import fermata
from fermata import Fermata
from fermata.v1 import Outcome, UpdateQueueSettingsRequest

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
tried: set[str] = set()


def environment(address):
    return os.environ | {"FERMATA_ADDRESS": address, "PYTHONPATH": str(EXAMPLES.parent), "PYTHONDONTWRITEBYTECODE": "1"}


def program(name, *arguments):
    tried.add(name)
    return [sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning", str(EXAMPLES / name), *arguments]


def output_of(address, name, *arguments, status=0):
    done = subprocess.run(program(name, *arguments), env=environment(address), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE * 2)
    assert done.returncode == status, done.stderr
    return done.stdout


@contextlib.contextmanager
def worker(address, name, want_log=""):
    """Runs a worker inside a block. It has to end with 0 after SIGTERM."""
    process = subprocess.Popen(program(name), env=environment(address), stdin=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    try:
        yield
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, log
        assert want_log in log
    finally:
        process.kill()
        process.wait()


def run_jobs(address, *jobs):
    """Creates jobs, runs them, and returns their runs."""
    async def run():
        async with Fermata.connect(address) as f:
            created = [await f.jobs.create(f"example-{uuid.uuid4().hex[:8]}", **fields) for fields in jobs]
            return [await f.jobs.run(j.name, wait=True, wait_timeout=PATIENCE) for j in created]

    return asyncio.run(run())


def test_worker_and_run_job(address):
    with worker(address, "worker.py", "digest sent to ada@example.com"):
        sent, refused = run_jobs(
            address, {"handler": "send-digest", "queue": "mail", "payload": "ada@example.com"},
            {"handler": "send-digest", "queue": "mail"})
        assert (sent.outcome, sent.output_text) == (Outcome.OUTCOME_SUCCEEDED, "sent to ada@example.com")
        assert (refused.outcome, refused.attempts, refused.error) == (Outcome.OUTCOME_DEAD, 1, "no such account")
        name = sent.name.split("/")[3]
        assert "OUTCOME_SUCCEEDED sent to ada@example.com" in output_of(address, "run_job.py", name)


def test_blocking(address):
    with worker(address, "blocking.py", "outcome=cancelled"):
        report, partner = run_jobs(
            address, {"handler": "build-report", "queue": "reports", "payload": {"pages": 3}},
            {"handler": "call-partner", "queue": "reports", "retry_policy": {"max_attempts": 3, "base_delay": 0.01}})
        assert json.loads(report.output) == {"rows": 300}
        assert partner.output_text == "done at attempt 2"

        async def cancel():
            async with Fermata.connect(address) as f:
                long = await f.jobs.create(handler="build-report", queue="reports", payload={"pages": 10**6})
                run = await f.jobs.run(long.name)
                while (await f.runs.get(run.name)).state != run.STATE_RUNNING:
                    await asyncio.sleep(0.01)
                await f.runs.cancel(run.name)
                return await f.runs.wait(run.name, PATIENCE)

        assert asyncio.run(cancel()).outcome == Outcome.OUTCOME_CANCELLED


def test_middleware(address):
    with worker(address, "middleware.py", "handler=call run="):
        assert run_jobs(address, {"handler": "call", "queue": "calls"})[0].output == b"{}"


def test_create_jobs(address):
    lines = output_of(address, "create_jobs.py").splitlines()
    assert lines == [
        "created namespaces/default/jobs/digest", "created namespaces/default/jobs/poll-a",
        "created namespaces/default/jobs/remind", "failed " + lines[3].removeprefix("failed "), "invalid job.queue"]
    assert "INVALID_ARGUMENT" in lines[3]


def test_watch_events(address, tmp_path):
    place = str(tmp_path / "place")
    fermata.FileToken(place).save(asyncio.run(token_now(address)))
    with worker(address, "worker.py"):
        run_jobs(address, {"handler": "send-digest", "queue": "mail"},
                 {"handler": "send-digest", "queue": "mail", "payload": "ada@example.com"})
    lines = output_of(address, "watch_events.py", place, "2").splitlines()
    assert [line.split()[0] for line in lines] == ["run.dead", "run.succeeded"]


async def token_now(address):
    async with Fermata.connect(address) as f:
        stream = f.events(stop_at_end=True, kinds=["job.created"])
        async for _ in stream:
            pass
        return stream.token


def test_find_jobs(address):
    async def resume():
        async with Fermata.connect(address) as f:
            settings = {"name": f.parent + "/queues/idle", "paused": False}
            assert not (await f.call(UpdateQueueSettingsRequest(settings=settings))).paused

    assert "paused namespaces/default/queues/idle" in output_of(address, "find_jobs.py")
    asyncio.run(resume())


def test_test_handler():
    assert output_of("127.0.0.1:1", "test_handler.py") == "ok\n"


def test_stub_written_by_hand(address, tmp_path):
    """The code in docs/how-to/worker-in-your-language.md gets a Welcome."""
    page = (EXAMPLES.parents[2] / "docs/how-to/worker-in-your-language.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    assert "127.0.0.1:7070" in code and "    print(message)" in code
    script = tmp_path / "stub.py"
    script.write_text(code.replace("127.0.0.1:7070", address) + "    break\n")
    done = subprocess.run([sys.executable, str(script)], env=environment(address), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE * 2)
    assert done.returncode == 0 and done.stdout.startswith("welcome {"), done.stderr


def test_every_example_was_tried():
    assert tried == {p.name for p in EXAMPLES.glob("*.py")}
