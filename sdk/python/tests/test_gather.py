"""What waits before it is sent, and what starts at once."""

import asyncio
import logging
import os
import threading
import time

import grpc
import pytest
from support import Node, Running, eventually

from fermata import Worker, _gather, _session
from fermata._calls import Caller
from fermata._gather import RateMeter
from fermata._table import MAX_STARTS, Phase, Table
from fermata._threads import ThreadPool
from fermata._transport import TokenFile
from fermata.v1 import WatchEventsRequest
from fermata.v1 import worker_service_pb2 as pb


def test_rate():
    meter = RateMeter()

    def count(start, interval, n):
        for i in range(1, n + 1):
            meter.count(start + i * interval)

    assert meter.per_second == 0
    count(0.0, 0.001, 1000)
    assert meter.per_second == pytest.approx(1000, rel=0.02)
    count(1.0, 0.005, 200)
    assert meter.per_second == pytest.approx(200, rel=0.02)
    meter.count(60.0)
    assert meter.per_second < 10


class FakeSession(_session.Session):
    """A session that nobody carries. It notes whether the outbox is sent now or later."""

    def __init__(self, table):
        super().__init__(table, None, "a:1", 1.0)
        self.epoch, self.hello_at, self.lease_ttl = 1, time.monotonic(), 3600.0
        self.sent = []

    def wake(self):
        self.sent.append("now")

    def wake_within(self, seconds):
        assert seconds == _gather.GATHER_TIME
        self.sent.append("later")

    def take(self):
        """Empties the outbox, and returns when it was to be sent since the last call."""
        sent, self.sent = sorted(set(self.sent)), []
        self._take_messages()
        return sent


async def quick(task):
    pass


async def slow(task):
    await asyncio.sleep(3600)


async def fails(task):
    raise ValueError("broken")


class Bench:
    def __init__(self, slots=10):
        log = logging.LoggerAdapter(logging.getLogger("test"), {})
        self.table = Table(slots, {"quick": quick, "slow": slow, "fails": fails}, log, lambda _: None)
        self.session = FakeSession(self.table)
        self.table.attach(self.session)
        self.session.take()
        self.session.result_rate.count = lambda now: None
        self.session.result_rate.per_second = _gather.GATHER_RATE
        self.leases = 0

    async def lease(self, *handlers):
        for handler in handlers:
            self.leases += 1
            lease = pb.Lease(lease_id=str(self.leases), run="r", handler=handler, attempt=1)
            self.table.accept(self.session, [lease])
        for _ in range(5):
            await asyncio.sleep(0)
        return self.session.take()


@pytest.mark.parametrize("case", ["frequent", "rare", "failure", "half of the slots", "a waiting attempt",
                                  "worker drains", "node drains", "many"])
def test_results_are_gathered_only_where_nobody_waits(case):
    async def body():
        b = Bench()
        if case == "frequent":
            assert await b.lease("quick") == ["later"]
            assert await b.lease("slow") == ["later"]  # starts too
        elif case == "rare":
            b.session.result_rate.per_second = _gather.GATHER_RATE - 1
            assert await b.lease("quick") == ["now"]
        elif case == "failure":
            assert "now" in await b.lease("fails")
        elif case == "half of the slots":
            await b.lease(*["slow"] * 5)
            assert "now" in await b.lease("quick")
        elif case == "a waiting attempt":
            assert "now" in await b.lease(*["slow"] * 11)
        elif case == "worker drains":
            b.table.begin_drain()
            assert "now" in b.session.sent
        elif case == "node drains":
            b.table.leave_node(b.session)
            assert "now" in b.session.sent
        else:
            b = Bench(slots=1000)
            assert "now" in await b.lease(*["quick"] * _gather.MAX_GATHERED)
        b.table.close()

    asyncio.run(body())


def test_gathered_results_are_sent():
    async def body(node):
        w = Worker(node.address, slots=1000)
        w.handle("quick", quick)
        async with Running(w):
            s = await node.stream()
            session = await eventually(lambda: w._table and w._table.current)
            session.result_rate.count = lambda now: None
            session.result_rate.per_second = _gather.GATHER_RATE
            for i in range(20):
                s.lease(str(i), "quick")
                await s.result(str(i))

    async def run():
        async with Node() as node:
            await body(node)

    asyncio.run(run())


def test_many_handlers_leave_time_for_heartbeats():
    """The event loop reads and writes between a few handlers, which take time before their first await."""
    async def body():
        b = Bench(slots=10_000)
        loop = asyncio.get_running_loop()
        turn, starts = 0, []

        def next_turn():
            nonlocal turn
            turn += 1
            loop.call_soon(next_turn)

        async def count(task):
            starts.append(turn)

        b.table.handlers["count"] = count
        next_turn()
        b.table.accept(b.session, [pb.Lease(lease_id=str(i), run="r", handler="count", attempt=1)
                                   for i in range(10_000)])
        await eventually(lambda: len(starts) == 10_000)
        assert max(starts.count(t) for t in set(starts)) <= MAX_STARTS
        assert all(a.phase is Phase.ENDED for a in b.table.attempts.values())
        b.table.close()

    asyncio.run(body())


def test_many_returned_leases():
    async def body():
        b = Bench()
        for i in range(100_000):
            b.session.return_lease(str(i))
        assert len(b.session.unconfirmed_returns()) == 100_000
        b.session._returns[0] = (-1e9, "0")
        b.session.take()
        b.session.return_lease("last")
        assert b.session._returns[0][1] == "1"  # what is old is dropped from the front only
        b.table.close()

    asyncio.run(body())


def test_no_more_threads(monkeypatch):
    """A function for which the system has no thread waits for another one. Without any it does not run at all."""
    async def body():
        pool = ThreadPool(asyncio.get_running_loop())
        ran = []

        def refuse(self):
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="new thread"):
                pool.call(ran.append, 1)
        release = threading.Event()
        first = pool.call(release.wait)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            second = pool.call(ran.append, 2)
        assert not second.done()
        release.set()
        await first
        await second
        assert ran == [2]
        pool.close()

    asyncio.run(body())


def test_token_that_is_replaced_by_one_as_long(tmp_path):
    path = tmp_path / "token"
    path.write_text("one")
    token = TokenFile(path)
    stat = path.stat()
    other = tmp_path / "other"
    other.write_text("two")
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(path)
    assert token() == "two"
    path.write_text("")
    assert token() == "two"
    path.write_text("half a\ntoken")
    assert token() == "two"
    path.unlink()
    assert token() == "two"


class EndedCall:
    """A call that ends in the moment in which its reader is cancelled. grpc then raises the error of the call."""

    async def write(self, message):
        pass

    async def read(self):
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            metadata = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, metadata, metadata, details="refused") from None

    def cancel(self):
        pass


class EndedChannel:
    def stream_stream(self, *args, **options):
        return lambda *args, **options: EndedCall()

    unary_stream = stream_stream


def test_a_cancellation_is_not_taken_for_the_end_of_a_call():
    async def events():
        calls = Caller(["a:1"], None, None, 1, None)
        calls._channels["a:1"] = EndedChannel()
        async for _ in calls.stream(WatchEventsRequest()):
            pass

    async def hello():
        b = Bench()
        session = _session.Session(b.table, EndedChannel(), "a:1", 3600.0)
        await session.open(pb.Hello(), [])

    async def body():
        for call in (events, hello):
            task = asyncio.create_task(call())
            for _ in range(5):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(body())
