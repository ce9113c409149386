"""The client, at scripted nodes and at a playground."""

import asyncio
import datetime
import subprocess
import uuid

import grpc
import pytest
import support
from google.protobuf import any_pb2
from support import Calls, serve

import fermata
from fermata import Fermata, FileToken, errors, trace
from fermata.v1 import (
    Event, Job, JobStatus, ListLocksRequest, Outcome, Run, RunJobResponse, WatchEventsResponse)


async def answer_job(request, context):
    return Job(name="namespaces/default/jobs/x")


async def locks_of(f):
    """Returns the locks of the client's namespace. A page may be empty while there is a next one."""
    request, found = ListLocksRequest(parent=f.parent), []
    while True:
        page = await f.call(request)
        found += page.locks
        request.page_token = page.next_page_token
        if not request.page_token:
            return found


async def refuse(request, context):
    await context.abort(grpc.StatusCode.UNAVAILABLE, "this node stops")


def details(code, *messages):
    """Returns the trailing metadata of an error with details."""
    status = errors._DETAILS["Status"](code=code, message="m")
    for name, message in messages:
        status.details.add(type_url="type.googleapis.com/google.rpc." + name, value=message.SerializeToString())
    return (("grpc-status-details-bin", status.SerializeToString()),)


def test_failover_over_addresses():
    async def run():
        calls = Calls(GetJob=answer_job)
        up, address = await serve(calls)
        stopping, stopping_address = await serve(Calls(GetJob=refuse))
        dead, dead_address = await serve(calls)
        await dead.stop(0)
        for _ in range(4):  # the order is random
            async with Fermata.connect([dead_address, stopping_address, address]) as f:
                assert (await f.jobs.get("x")).name.endswith("/x")
        await up.stop(0)
        await stopping.stop(0)

    support.run(run())


def test_repeated_calls_have_the_same_request_id():
    async def run():
        failures = iter([grpc.StatusCode.UNAVAILABLE, None] * 3)

        async def flaky(request, context):
            code = next(failures)
            if code:
                await context.abort(code, "the answer is lost")
            return RunJobResponse(run=Run(name="r")) if "RunJob" in type(request).__name__ else Job()

        calls = Calls(CreateJob=flaky, RunJob=flaky, UpdateJob=flaky)
        server, address = await serve(calls)
        async with Fermata.connect(address) as f:
            await f.jobs.create(handler="h")
            await f.jobs.run("x")
            await f.jobs.update("x", timeout=3, payload=None)
        await server.stop(0)
        ids = [q.request_id for q in calls.requests]
        assert len(ids) == 6 and all(map(uuid.UUID, ids))
        assert ids[0] == ids[1] != ids[2] == ids[3] != ids[4] == ids[5]
        assert list(calls.requests[5].update_mask.paths) == ["timeout", "payload"]

    support.run(run())


def test_run_with_another_payload_and_rename():
    async def run():
        failures = iter([grpc.StatusCode.UNAVAILABLE, None] * 2)

        async def flaky(request, context):
            code = next(failures)
            if code:
                await context.abort(code, "the answer is lost")
            return Run(name="r") if "RunJob" in type(request).__name__ else Job(name="j")

        calls = Calls(RunJobWithPayload=flaky, RenameJob=flaky)
        server, address = await serve(calls)
        async with Fermata.connect(address) as f:
            assert (await f.jobs.run("x", payload={"a": 1}, ignore_exclusions=True)).name == "r"
            assert (await f.jobs.rename("x", "y", etag="e")).name == "j"
            with pytest.raises(TypeError, match="backoff"):
                await f.jobs.run("x", payload="p", backoff="keep")
        await server.stop(0)
        one, again, rename, repeated = calls.requests
        assert one == again and rename == repeated and uuid.UUID(one.request_id) != uuid.UUID(rename.request_id)
        assert (one.name, one.payload, one.ignore_exclusions) == ("namespaces/default/jobs/x", b'{"a":1}', True)
        assert (rename.name, rename.new_id, rename.etag) == ("namespaces/default/jobs/x", "y", "e")

    support.run(run())


def test_wait_for_a_run():
    async def run():
        async def request(request, context):
            return RunJobResponse(run=Run(name="namespaces/default/jobs/x/runs/1"))

        async def unfinished(request, context):
            await asyncio.sleep(3600)

        calls = Calls(RunJob=request, GetRun=unfinished)
        server, address = await serve(calls)
        async with Fermata.connect(address) as f:
            for options in ({"wait": 0.05}, {"wait": datetime.timedelta(milliseconds=50)},
                            {"wait": True, "wait_timeout": 0.05}):
                with pytest.raises(TimeoutError):
                    await f.jobs.run("x", **options)
            calls.requests.clear()
            for wrong in ({"wait": 0}, {"wait": -1.0}, {"wait": 1, "wait_timeout": 1}, {"wait_timeout": 1},
                          {"wait": True, "wait_timeout": 0}, {"wait": float("nan")}):
                with pytest.raises((TypeError, ValueError)):
                    await f.jobs.run("x", **wrong)
            assert not calls.requests
        await server.stop(0)

    support.run(run())


def test_deletion_whose_answer_is_lost():
    async def run():
        async def delete(request, context):
            if not request.allow_missing:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer is lost")
            from google.protobuf import empty_pb2
            return empty_pb2.Empty()

        calls = Calls(DeleteJob=delete)
        server, address = await serve(calls)
        async with Fermata.connect(address) as f:
            await f.jobs.delete("x", etag="e")
        await server.stop(0)
        assert [(q.allow_missing, q.etag) for q in calls.requests] == [(False, "e"), (True, "e")]

    support.run(run())


def test_errors_that_are_not_repeated():
    async def run():
        bad = errors._DETAILS["BadRequest"]()
        bad.field_violations.add(field="job.queue", description="is wrong")
        info = errors._DETAILS["ErrorInfo"](reason="EXCLUDED_TIME")
        delay = errors._DETAILS["RetryInfo"]()
        delay.retry_delay.nanos = 1_000_000
        script = {
            "invalid": (grpc.StatusCode.INVALID_ARGUMENT, details(3, ("BadRequest", bad))),
            "excluded": (grpc.StatusCode.FAILED_PRECONDITION, details(9, ("ErrorInfo", info))),
            "conflict": (grpc.StatusCode.ABORTED, ()),
            "busy": (grpc.StatusCode.ABORTED, details(10, ("RetryInfo", delay))),
            "garbage": (grpc.StatusCode.INTERNAL, (("grpc-status-details-bin", b"\xff\xff"),)),
        }

        async def fail(request, context):
            code, trailing = script[request.name.rpartition("/")[2]]
            await context.abort(code, "m", trailing)

        calls = Calls(GetJob=fail)
        server, address = await serve(calls)
        async with Fermata.connect(address, attempts=3) as f:
            for name, kind, tries in (("invalid", errors.InvalidRequest, 1), ("excluded", errors.FailedPrecondition, 1),
                                      ("conflict", errors.Conflict, 1), ("busy", errors.Conflict, 3),
                                      ("garbage", fermata.FermataError, 1)):
                calls.requests.clear()
                with pytest.raises(kind) as raised:
                    await f.jobs.get(name)
                assert len(calls.requests) == tries, name
                if name == "invalid":
                    assert raised.value.violations == (fermata.Violation("job.queue", "is wrong"),)
                if name == "excluded":
                    assert raised.value.reason == "EXCLUDED_TIME"
        await server.stop(0)

    support.run(run())


def test_timeout_covers_all_attempts():
    async def run():
        async def hang(request, context):
            await asyncio.sleep(3600)

        server, address = await serve(Calls(GetJob=hang))
        async with Fermata.connect(address, timeout=0.05) as f:
            with pytest.raises(errors.DeadlineExceeded):
                await f.jobs.get("x")
        await server.stop(0)

    support.run(run())


def test_token_and_trace_are_sent():
    async def run():
        calls = Calls(GetJob=answer_job)
        server, address = await serve(calls)
        tokens = iter(["one", "two"])

        async def token():
            return next(tokens)

        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        async with Fermata.connect(address, token=token) as f:
            await f.jobs.get("x")
            with trace.use(parent, "k=v"):
                await f.in_namespace("shop").jobs.get("x")
        await server.stop(0)
        assert [m["authorization"] for m in calls.metadata] == ["Bearer one", "Bearer two"]
        assert "traceparent" not in calls.metadata[0]
        assert (calls.metadata[1]["traceparent"], calls.metadata[1]["tracestate"]) == (parent, "k=v")
        assert calls.requests[1].name == "namespaces/shop/jobs/x"

    support.run(run())


def test_events_resume_by_token(tmp_path):
    async def run():
        async def watch(request, context):
            place = int(request.resume_token or 0)
            yield WatchEventsResponse(resume_token=str(place))
            events = [Event(id=f"e{place}"), Event(id=f"f{place}")]
            yield WatchEventsResponse(events=events, resume_token=str(place + 1))
            if place < 2:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "this node stops")

        calls = Calls(WatchEvents=watch)
        server, address = await serve(calls)
        store = FileToken(tmp_path / "place")
        async with Fermata.connect(address) as f:
            stream = f.events(kinds="run.dead", resume=store,
                              since=datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc))
            seen = [e.id async for e in stream]
            assert seen == ["e0", "f0", "e1", "f1", "e2", "f2"] and stream.token == store.load() == "3"
            assert [q.HasField("start_time") for q in calls.requests] == [True, False, False]
            async for event in f.events(resume=store):  # left in a batch: all of it comes again
                assert event.id == "e3"
                break
            assert store.load() == "3" and calls.requests[-1].resume_token == "3"
        await server.stop(0)

    support.run(run())


def certificate(directory, name):
    """Makes a certificate that signs itself, for a host."""
    kind = "IP" if name[0].isdigit() else "DNS"
    files = [str(directory / f"{name}.{end}") for end in ("pem", "key")]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=" + name, "-addext", f"subjectAltName={kind}:{name}", "-out", files[0], "-keyout", files[1]],
        check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return files


def test_tls(tmp_path):
    async def run():
        for name, server_name in (("127.0.0.1", None), ("node.example", "node.example")):
            pem, key = certificate(tmp_path, name)
            other, _ = certificate(tmp_path, "other.example")
            calls = Calls(GetJob=answer_job)
            with open(key, "rb") as k, open(pem, "rb") as c:
                pair = (k.read(), c.read())
            server, address = await serve(calls, grpc.ssl_server_credentials([pair]))
            async with Fermata.connect(address, tls=fermata.TLS(ca=pem, server_name=server_name), token="secret") as f:
                await f.jobs.get("x")
            assert calls.metadata[0]["authorization"] == "Bearer secret"
            for wrong in (fermata.TLS(ca=other, server_name=server_name),
                          fermata.TLS(ca=pem, server_name="wrong.example"), True):
                async with Fermata.connect(address, tls=wrong, attempts=1) as f:
                    with pytest.raises(errors.Unavailable):
                        await f.jobs.get("x")
            await server.stop(0)

    support.run(run())


def test_closed_client():
    async def run():
        f = await Fermata.connect("127.0.0.1:1")
        await f.close()
        with pytest.raises(RuntimeError, match="closed"):
            await f.jobs.get("x")
        with pytest.raises(TypeError, match="no request"):
            await f.call(any_pb2.Any())

    support.run(run())


def test_life_of_a_job(address):
    async def run():
        async with Fermata.connect(address) as f:
            id = "life-" + uuid.uuid4().hex[:8]
            created = await f.jobs.create(id, handler="nobody", queue="life", payload="hé", labels={"of": id},
                                          schedule=fermata.cron("0 7 * * *", "Europe/Berlin"), locks=[id])
            assert created.payload.decode() == "hé" and (await f.jobs.create(
                id, handler="nobody", queue="life", payload="hé", labels={"of": id},
                schedule=fermata.cron("0 7 * * *", "Europe/Berlin"), locks=[id])).etag == created.etag
            with pytest.raises(errors.AlreadyExists):
                await f.jobs.create(id, handler="other")
            with pytest.raises(errors.InvalidRequest) as raised:
                await f.jobs.create(id + "b", handler="h", queue="two words")
            assert raised.value.violations[0].field == "job.queue"
            updated = await f.jobs.update(id, etag=created.etag, timeout=9, labels={"of": id, "x": "y"})
            assert updated.timeout.seconds == 9
            with pytest.raises(errors.Conflict):
                await f.jobs.update(id, etag=created.etag, timeout=10)
            assert [j.name async for j in f.jobs.list(f"labels.of = {id}")] == [created.name]
            found = f.jobs.list(labels={"of": id}, state="scheduled", page_size=1)
            assert [j.name async for j in found] == [created.name]
            assert (await f.jobs.pause(id, "why")).status.state == JobStatus.STATE_PAUSED
            assert (await f.jobs.explain(id)).summary
            assert (await f.jobs.resume(id)).status.state == JobStatus.STATE_SCHEDULED
            assert created.name + "/runs/" in (await f.jobs.upcoming(f"labels.of = {id}"))[0].name
            run = await f.jobs.run(id, request_id="once", backoff="keep")
            assert (await f.jobs.run(id, request_id="once")).name == run.name
            with pytest.raises(TimeoutError):
                await f.runs.wait(run.name, 0.1)
            await f.runs.cancel(run.name)
            other = await f.jobs.run(id, payload={"to": "bob"})
            assert (await f.runs.get(other.name)).name == other.name != run.name
            await f.runs.cancel(other.name)
            assert (await f.runs.wait(run.name)).outcome == Outcome.OUTCOME_CANCELLED
            assert run.name in [r.name for r in await f.jobs.runs(id)]
            assert (await f.jobs.preview(fermata.every(60), count=3))[2].tzinfo
            results = await f.jobs.create_many(
                [("", fermata.job(handler="h", queue="life")), (id, fermata.job(handler="x"))])
            assert isinstance(results[0], Job) and isinstance(results[1], errors.AlreadyExists)
            assert (await f.whoami()).identity == "anonymous"
            assert [lock.jobs for lock in await locks_of(f) if lock.key == id] == [1]
            kinds = [e.kind async for e in f.events(
                jobs=[id], since=datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1),
                stop_at_end=True)]
            assert kinds[0] == "job.created" and "job.paused" in kinds
            assert (await f.jobs.rename(id, id + "-renamed")).name == created.name + "-renamed"
            await f.jobs.rename(id + "-renamed", id)
            await f.jobs.delete(id)
            with pytest.raises(errors.NotFound):
                await f.jobs.get(id)
            with pytest.raises(errors.NotFound):
                await f.jobs.delete(id)
            await f.jobs.delete(id, allow_missing=True)

    support.run(run())
