"""A playground for the tests: `scheduler dev`, from FERMATA_SCHEDULER_BIN or bin/scheduler."""

import os
import pathlib
import queue
import subprocess
import threading

import pytest

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(scope="session")
def address():
    """The address of a node."""
    binary = os.environ.get("FERMATA_SCHEDULER_BIN", str(ROOT / "bin" / "scheduler"))
    if not os.path.exists(binary):
        pytest.fail(f"{binary} is missing: run make sdk-python")
    process = subprocess.Popen(
        [binary, "dev", "--plain", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--rest-addr",
         "127.0.0.1:0"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        assert process.stdout
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        while True:
            line = lines.get(timeout=60)
            if not line:
                pytest.fail("scheduler dev has ended")
            if line.startswith("gRPC "):
                yield line.split()[1]
                return
    finally:
        process.terminate()
        process.wait(30)
        reader.join(30)
        process.stdout.close()
