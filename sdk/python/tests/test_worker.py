"""The worker, at a scripted node. `fermata worker check` tests the protocol; these are the sides that it cannot see."""

import asyncio
import threading
import time

import pytest
from support import Node, Running, eventually

import fermata
from fermata import Cause, CutOff, Permanent, Worker, trace
from fermata.v1 import worker_service_pb2 as pb

Outcome = pb.Result.Outcome


def run_with_node(body, **ttl):
    async def run():
        async with Node(**ttl) as node:
            await body(node)

    asyncio.run(run())


def test_kinds_of_handlers():
    async def body(node):
        w = Worker(node.address)

        @w.handle("async")
        async def _(task):
            return {"attempt": task.attempt}

        w.handle("thread", lambda task: threading.current_thread().name)

        class Callable:
            async def __call__(self, task):
                return task.job

        w.handle("callable", Callable())
        w.handle("awaitable", lambda task: asyncio.sleep(0, "later"))
        async with Running(w):
            s = await node.stream()
            for name in ("async", "thread", "callable", "awaitable", "missing"):
                s.lease(name, name)
            assert (await s.result("async")).output == b'{"attempt":1}'
            assert (await s.result("thread")).output.startswith(b"fermata-handler-")
            assert (await s.result("callable")).output == b"callable"
            assert (await s.result("awaitable")).output == b"later"
            missing = await s.result("missing")
            assert (missing.outcome, missing.error) == (Outcome.OUTCOME_FAILED, "no handler 'missing' on this worker")

    run_with_node(body)


def test_proxies_of_the_environment_are_not_used(monkeypatch):
    async def body(node):
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "grpc_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        async with Running(one_handler(node)):
            await node.stream()

    run_with_node(body)


def one_handler(node):
    w = Worker(node.address)
    w.handle("fine", lambda task: "fine")
    return w


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), StopIteration("x"), GeneratorExit(), ValueError("ü" * 4000)])
def test_no_exception_ends_the_worker(error):
    async def body(node):
        w = Worker(node.address)

        def thread(task):
            raise error

        async def loop(task):
            raise error

        w.handle("thread", thread)
        w.handle("loop", loop)
        w.handle("fine", lambda task: "fine")
        async with Running(w):
            s = await node.stream()
            s.lease("1", "thread")
            s.lease("2", "loop")
            for id in "12":
                result = await s.result(id)
                assert result.outcome == Outcome.OUTCOME_FAILED and len(result.error.encode()) <= 512
                assert result.error.startswith((type(error).__name__, "RuntimeError")), result.error
            s.lease("3", "fine")
            assert (await s.result("3")).output == b"fine"

    run_with_node(body)


def test_output_of_a_failed_attempt():
    async def body(node):
        w = Worker(node.address)

        async def fails(task):
            task.set_output("half")
            raise Permanent("no")

        w.handle("fails", fails)
        w.handle("circular", lambda task: (a := [], a.append(a))[0])
        async with Running(w):
            s = await node.stream()
            s.lease("1", "fails")
            s.lease("2", "circular")
            result = await s.result("1")
            assert (result.outcome, result.output, result.error) == (Outcome.OUTCOME_FAILED_PERMANENTLY, b"half", "no")
            assert "Circular" in (await s.result("2")).error

    run_with_node(body)


def test_timeout_and_cancellation():
    async def body(node):
        w = Worker(node.address)
        causes = {}

        async def loop(task):
            try:
                await asyncio.sleep(3600)
            finally:
                causes[task.job] = task.cause

        def thread(task):
            try:
                task.wait(3600)
            finally:
                causes[task.job] = task.cause

        async def stubborn(task):
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                return "finished nevertheless"

        w.handle("loop", loop)
        w.handle("thread", thread)
        w.handle("stubborn", stubborn)
        async with Running(w):
            s = await node.stream()
            brief = {"nanos": 20_000_000}
            for id, name in (("l1", "loop"), ("t1", "thread"), ("s1", "stubborn")):
                s.lease(id, name, timeout=brief)
            for id, name in (("l2", "loop"), ("t2", "thread")):
                s.lease(id, name)
            for id in ("l1", "t1"):
                result = await s.result(id)
                assert (result.outcome, result.error) == (Outcome.OUTCOME_TIMED_OUT, "the attempt's timeout has passed")
            assert (await s.result("s1")).outcome == Outcome.OUTCOME_SUCCEEDED
            await eventually(lambda: {"l2", "t2"} <= set(s.ids("started")))
            s.send(cancel=pb.Cancel(lease_ids=["l2", "t2"], reason="REASON_REQUESTED"))
            for id in ("l2", "t2"):
                assert (await s.result(id)).outcome == Outcome.OUTCOME_CANCELLED
            assert causes == {"l1": Cause.TIMED_OUT, "t1": "timed out", "l2": Cause.CANCELLED, "t2": Cause.CANCELLED}

    run_with_node(body)


def test_thread_that_ignores_its_end_keeps_its_slot():
    async def body(node):
        release = threading.Event()
        w = Worker(node.address, slots=1)
        w.handle("deaf", lambda task: release.wait(60))
        w.handle("next", lambda task: None)
        async with Running(w):
            s = await node.stream()
            s.lease("1", "deaf")
            await eventually(lambda: "1" in s.ids("started"))
            s.send(cancel=pb.Cancel(lease_ids=["1"], reason="REASON_REQUESTED"))
            s.lease("2", "next")
            await eventually(lambda: "2" in s.ids("returned"))  # it has waited for the slot for 50 ms
            assert not s.results()
            release.set()
            assert (await s.result("1")).outcome == Outcome.OUTCOME_SUCCEEDED
            s.lease("3", "next")
            await s.result("3")

    run_with_node(body)


def test_middleware_order_and_trace():
    async def body(node):
        w, calls = Worker(node.address), []

        def layer(name):
            async def around(task, call):
                calls.append(name)
                try:
                    return await call(task)
                except OSError:
                    return "mended by " + name
            return around

        w.use(layer("outer"))
        w.use(layer("inner"))

        @w.handle("traced")
        def traced(task):
            calls.append(trace.headers().get("traceparent"))
            raise OSError()

        with pytest.raises(RuntimeError, match="use after handle"):
            w.use(layer("late"))
        with pytest.raises(ValueError, match="twice"):
            w.handle("traced", traced)
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        async with Running(w):
            s = await node.stream()
            s.lease("1", "traced", trace_context=pb.TraceContext(traceparent=parent))
            assert (await s.result("1")).output == b"mended by inner"
        assert calls == ["outer", "inner", parent] and trace.headers() == {}

    run_with_node(body)


def test_results_of_one_round_share_a_message():
    async def body(node):
        w = Worker(node.address, slots=200)

        async def nothing(task):
            return None

        w.handle("nothing", nothing)
        async with Running(w):
            s = await node.stream()
            s.send(leases=pb.Leases(leases=[pb.Lease(lease_id=str(i), handler="nothing") for i in range(200)]))
            await eventually(lambda: len(s.results()) == 200)
            assert sum(bool(m.results.results) for m in s.messages) < 10
            assert not s.ids("started")  # each went out with its result
            s.send(result_acks=pb.ResultAcks(acks=[pb.ResultAck(lease_id=str(i)) for i in range(200)]))

    run_with_node(body)


def test_drain_finishes_and_second_abort_cuts_off():
    async def body(node):
        w = Worker(node.address, drain_timeout=60)

        async def forever(task):
            await asyncio.sleep(3600)

        w.handle("forever", forever)
        task = asyncio.create_task(w.run(signals=()))
        s = await node.stream()
        s.lease("1", "forever")
        await eventually(lambda: "1" in s.ids("started"))
        assert w.ready()
        w.stop()
        await eventually(lambda: any(m.HasField("draining") for m in s.messages))
        assert not w.ready() and not task.done()
        w.abort()
        with pytest.raises(CutOff) as raised:
            await task
        assert raised.value.attempts == 1 and not s.results()
        await eventually(lambda: "1" in s.ids("lost"))

    run_with_node(body)


def test_stop_after_a_move_returns_what_came_too_late():
    async def body(node):
        async with Node() as other:
            w = Worker(node.address)
            w.handle("sleep", lambda task: time.sleep(60))
            task = asyncio.create_task(w.run(signals=()))
            before = await node.stream()
            before.lingers = True
            before.send(relocate=pb.Relocate(addresses=[other.address]))
            s = await other.stream()
            await eventually(lambda: before.closed)
            before.lease("late", "sleep")
            w.stop()
            await eventually(s.was_notified_of_stop)
            before.end()
            await task
            await eventually(lambda: s.closed)
            assert s.ids("returned") == ["late"]

    run_with_node(body)


def test_stop_while_another_node_is_asked_is_told_to_that_one():
    async def body(node):
        async with Node() as other:
            w, released = Worker(node.address), asyncio.Event()

            async def hold(task):
                await released.wait()

            w.handle("hold", hold)
            task = asyncio.create_task(w.run(signals=()))
            before = await node.stream()
            before.lease("1", "hold")
            await eventually(lambda: "1" in before.ids("started"))
            other.welcomes.clear()
            before.send(relocate=pb.Relocate(addresses=[other.address]))
            await eventually(lambda: other.hellos)
            w.stop()
            await eventually(lambda: not w.ready())
            other.welcomes.set()
            s = await other.stream()
            await eventually(s.was_notified_of_stop)
            released.set()
            await s.result("1")
            await task
            await eventually(lambda: before.closed)
            # It would return the lease that the other node has taken over, if it did not know of its start.
            assert not before.was_notified_of_stop()

    run_with_node(body)


def test_cancelled_run_stops_soon():
    async def body(node):
        w, ended = Worker(node.address), []

        async def forever(task):
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append(task.cause)

        w.handle("forever", forever)
        task = asyncio.create_task(w.run(signals=()))
        s = await node.stream()
        s.lease("1", "forever")
        await eventually(lambda: "1" in s.ids("started"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [Cause.STOPPED]

    run_with_node(body)


def test_blocked_loop_is_reported(caplog):
    async def body(node):
        w = Worker(node.address)

        async def blocks(task):
            time.sleep(0.6)

        w.handle("blocks", blocks)
        async with Running(w):
            s = await node.stream()
            await eventually(lambda: any(m.HasField("heartbeat") for m in s.messages))
            s.lease("1", "blocks")
            await s.result("1")
            await eventually(lambda: "event loop was blocked" in caplog.text)

    run_with_node(body, session_ttl=1.6)


def test_two_million_bytes_of_payload():
    async def body(node):
        w = Worker(node.address)

        async def measure(task):
            return len(task.payload)

        w.handle("measure", measure)
        async with Running(w):
            s = await node.stream()
            s.send(leases=pb.Leases(leases=[pb.Lease(lease_id=str(i), handler="measure", payload=bytes(1 << 20))
                                            for i in range(6)]))
            for i in range(6):
                assert (await s.result(str(i))).output == b"1048576"

    run_with_node(body)


def test_options_are_checked():
    for wrong in ({"addresses": []}, {"queues": []}, {"slots": 0}, {"id": "a b"}, {"drain_timeout": -1}):
        with pytest.raises(ValueError):
            Worker(**{"addresses": "127.0.0.1:1", **wrong})
    with pytest.raises(ValueError, match="cert and key"):
        fermata.TLS(cert=b"x")
    with pytest.raises(RuntimeError, match="no handler"):
        asyncio.run(Worker("127.0.0.1:1").run())


def test_stop_before_a_node_was_found():
    w = Worker("127.0.0.1:1")
    w.handle("x", lambda task: None)

    async def run():
        task = asyncio.create_task(w.run(signals=()))
        await asyncio.sleep(0)
        w.stop()
        await task

    asyncio.run(run())
