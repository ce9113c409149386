"""Values, schedules, jobs, tokens and errors: what needs no node."""

import datetime
import decimal
import uuid
from zoneinfo import ZoneInfo

import pytest

import fermata
from fermata import _transport, _values, errors, job, trace
from fermata._task import Cause, Permanent, RetryAfter, Task, ending_of, failure_of
from fermata.client import FileToken
from fermata.v1 import Job, JobStatus, Lock


@pytest.mark.parametrize("value, want", [
    (b"\x00\xff", b"\x00\xff"), ("hé", "hé".encode()), ({"a": [1, None]}, b'{"a":[1,null]}'), (7, b"7"),
])
def test_payloads(value, want):
    assert _values.payload_of(value) == want


def test_outputs_fit():
    assert _values.output_of("é" * 3000) == ("é" * 2048).encode()
    assert _values.output_of(b"\xff" * 5000) == b"\xff" * 4096
    assert _values.output_of({"at": datetime.date(2026, 1, 2)}) == b'{"at":"2026-01-02"}'
    assert _values.output_of(None) == b""
    assert _values.output_of("\ud800") == b"?"
    assert _values.output_of([uuid.UUID(int=1), decimal.Decimal("1.50")]) == (
        b'["00000000-0000-0000-0000-000000000001","1.50"]')


@pytest.mark.parametrize("value", [object(), {"a": object()}, {1, 2}, float("nan"), {(1, 2): 3}, {"a": b"b"}])
def test_outputs_that_are_not_json(value):
    with pytest.raises(TypeError, match="the output is neither bytes, text nor JSON: "):
        _values.output_of(value)
    ending = ending_of(Task(run="r"), value)
    assert (ending.outcome, ending.output) == (2, b"")
    assert ending.error.startswith("TypeError: the output is neither") and ".py" not in ending.error


@pytest.mark.parametrize("payload, want", [
    (b"", "payload: empty, want JSON"), (b"plain", "payload: not JSON: Expecting value"),
    (b"\xff\xfe\xfd", "payload: not JSON: "), (b"[" * 200_000, "payload: not JSON: "),
])
def test_payloads_that_are_not_json(payload, want):
    with pytest.raises(ValueError) as raised:
        Task(run="r", payload=payload).json()
    ending = failed(raised.value)
    assert ending.outcome == 3 and ending.error.startswith(want) and not ending.stack


def test_payload_that_is_no_text():
    with pytest.raises(Permanent, match="^payload: not UTF-8: .* at byte 1$"):
        Task(run="r", payload=b"a\xff").text()


def test_durations_and_times():
    assert _values.duration(1.5).ToNanoseconds() == 1_500_000_000
    assert _values.duration(datetime.timedelta(days=2)).seconds == 172_800
    with pytest.raises(ValueError):
        _values.duration(float("inf"))
    with pytest.raises(ValueError, match="time zone"):
        fermata.once(datetime.datetime(2026, 1, 1))
    berlin = datetime.datetime(2026, 7, 1, 9, tzinfo=ZoneInfo("Europe/Berlin"))
    assert fermata.once(berlin).once.ToJsonString() == "2026-07-01T07:00:00Z"


def test_schedules():
    s = fermata.cron("0 7 * * *", "Europe/Berlin", jitter=5, max_runs=3)
    assert (list(s.cron.expressions), s.cron.time_zone) == (["0 7 * * *"], "Europe/Berlin")
    assert (s.jitter.seconds, s.max_runs) == (5, 3)
    assert fermata.every(datetime.timedelta(minutes=1)).interval.every.seconds == 60
    assert fermata.fixed_delay(10).interval.fixed_delay
    assert list(fermata.every_week(["MON"], ["09:00"], every=2).calendar.weekdays) == ["MON"]
    assert list(fermata.every_month([1, -1], ["09:00"]).calendar.month_days) == [1, -1]
    assert fermata.every_day(["09:00"]).calendar.every == 1
    with pytest.raises(TypeError, match="jiter"):
        fermata.every(60, jiter=5)


def test_fields_of_jobs():
    j = job(handler="h", payload={"a": 1}, timeout=2.5, locks=["l", Lock(key="m", limit=2)],
            overlap_policy="buffer_one", retry_policy={"strategy": "linear", "base_delay": 3, "jitter": {"kind": "FULL"}}, priority=0)
    assert j.payload == b'{"a":1}' and j.timeout.ToNanoseconds() == 2_500_000_000 and j.HasField("priority")
    assert [(k.key, k.limit) for k in j.locks] == [("l", 0), ("m", 2)]
    assert (j.overlap_policy, j.retry_policy.strategy, j.retry_policy.base_delay.seconds) == (2, 2, 3)
    assert j.retry_policy.jitter.kind == 5
    assert job(queue=None) == Job()
    for wrong in ({"name": "x"}, {"retry_policy": {"tries": 3}}):
        with pytest.raises(TypeError):
            job(**wrong)
    with pytest.raises(ValueError):
        job(overlap_policy="sometimes")
    assert JobStatus.STATE_PAUSED == 3


@pytest.mark.parametrize("address, local", [
    ("127.0.0.1:7070", True), ("localhost:7070", True), ("[::1]:7070", True), ("unix:///run/fermata", True),
    ("dns:///127.0.0.1:7", True), ("127.0.0.1.evil.example:7070", False), ("127.evil.example:7", False),
    ("10.0.0.1:7070", False), ("dns://8.8.8.8/localhost:7", False), ("localhost", False), ("127.0.0.2:1", True),
])
def test_loopback(address, local):
    assert _transport.is_loopback(address) is local


def test_tokens_stay_off_open_networks():
    for refused in (lambda a: fermata.Worker(a, token="t"), lambda a: fermata.Fermata.connect(a, token="t")):
        with pytest.raises(ValueError, match="without TLS"):
            refused(["127.0.0.1:1", "node.example:7070"])
    fermata.Worker(["node.example:7070"], token="t", tls=True)


def test_empty_authorities(tmp_path):
    """An empty file of authorities is refused: it does not mean those of the system."""
    path = tmp_path / "ca.crt"
    for text in ("", "\n"):
        path.write_text(text)
        with pytest.raises(ValueError, match="is empty"):
            fermata.TLS(ca=path).credentials()


def test_token_file(tmp_path):
    path = tmp_path / "token"
    with pytest.raises(OSError):
        fermata.TokenFile(path)
    path.write_text(" one\n")
    token = fermata.TokenFile(path)
    assert token() == "one"
    path.write_text("another\n")
    assert token() == "another"
    path.write_text("two words\n")  # no token: the last one stays
    assert token() == "another"
    path.unlink()
    assert token() == "another"


def test_addresses():
    assert _transport.check_addresses("a:1, b:2,a:1") == ["a:1", "b:2"]
    for wrong in ("", "host", "host:port", []):
        with pytest.raises(ValueError):
            _transport.check_addresses(wrong)
    targets = ["dns:///a:1", "unix:///run/f", "unix:f", "ipv4://10.0.0.1:1", "xds:///a"]
    assert _transport.check_addresses(targets) == targets
    hosts = [_transport.host_of(a) for a in ("[::1]:70", "a.b:70", "dns:///c:70", "dns://x/d:1")]
    assert hosts == ["::1", "a.b", "c", "d"]
    assert not any(map(_transport.is_plain, ["dns:///a:1", "a:0", "a:65536", "a b:1", "-a:1", ""]))


@pytest.mark.parametrize("address, want", [
    ("http://127.0.0.1:7070", "is not host:port, but a URL: write '127.0.0.1:7070'$"),
    ("https://node.example:7070/v1", "write 'node.example:7070', and set tls$"),
    ("HTTP://[::1]:7070", r"write '\[::1\]:7070'$"), ("grpc://a:1", "write 'a:1'$"), ("http://a", "but a URL$"),
    ("http://", "is not host:port$"), ("dns://", "is not host:port$"), ("a:1/", "is not host:port$"),
])
def test_addresses_are_not_urls(address, want):
    for refuse in (fermata.Worker, fermata.Fermata.connect):
        with pytest.raises(ValueError, match=want):
            refuse(address)
        with pytest.raises(ValueError, match=want):
            refuse(["127.0.0.1:1", address])


def failed(error: BaseException, cause: Cause | None = None):
    task = Task(run="r")
    if cause:
        task.end(cause)
    try:
        raise error
    except BaseException as e:
        ending = failure_of(task, e)
    return ending


def test_errors_of_handlers():
    e = failed(ValueError("x\ud800" + "y" * 5000))
    assert e.error.startswith("ValueError: x?yyy") and len(e.error.encode()) <= 512
    assert " at failed (test_values.py:" in e.error and e.stack
    assert failed(KeyboardInterrupt()).error.startswith("KeyboardInterrupt at ")
    assert failed(Permanent()).error == "Permanent"
    retry = failed(RetryAfter("busy", datetime.timedelta(seconds=3)))
    assert (retry.error, retry.retry_after, retry.stack) == ("busy", 3.0, "")
    assert failed(RetryAfter("busy", -1)).retry_after == 0
    group = failed(ExceptionGroup("several", [OSError("o"), Permanent("p")]))
    assert (group.outcome, group.error) == (3, "p")
    assert failed(ExceptionGroup("several", [OSError("o")])).error.startswith("several (1 sub-exception): OSError: o")

    class Unprintable(Exception):
        def __str__(self) -> str:
            raise SystemExit("no text")

    assert failed(Unprintable()).error.startswith("Unprintable")


def test_outcomes_by_cause():
    assert failed(OSError(), Cause.TIMED_OUT).outcome == 4
    assert failed(OSError(), Cause.CANCELLED).outcome == 5
    assert failed(Permanent("p"), Cause.CANCELLED).outcome == 3


def test_trace():
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert trace.headers() == {}
    with trace.use(parent, "a=b"):
        assert trace.headers() == {"traceparent": parent, "tracestate": "a=b"}
    for wrong in ("", parent[:-1], parent.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32), "ff" + parent[2:],
                  parent + "-x", parent.upper()):
        with trace.use(wrong):
            assert trace.headers() == {}
    assert trace.is_valid("01" + parent[2:] + "-later")


def test_error_details_of_other_packages():
    assert isinstance(errors.make_error("NOT_FOUND", "x"), errors.NotFound)
    assert type(errors.make_error("DATA_LOSS", "x")) is errors.FermataError


def test_file_token(tmp_path):
    place = FileToken(tmp_path / "place")
    assert place.load() == ""
    place.save("t1")
    place.save("t2")
    assert place.load() == "t2" and [p.name for p in tmp_path.iterdir()] == ["place"]


def test_what_is_cut_off_an_output_is_not_encoded():
    endless = ["é" * 3000, *([1] * 3000), object()]
    assert _values.output_of(endless) == ('["' + "é" * 2047).encode()
    with pytest.raises(TypeError, match="neither bytes, text nor JSON"):
        _values.output_of([object()])
    assert _values.output_of(bytearray(5000)) == bytes(4096)
    assert _values.output_of(memoryview(bytes(5000))) == bytes(4096)
    ending = failure_of(Task(run="r"), ValueError("x" * 100_000))
    assert ending.stack == "" and ending.error.startswith("ValueError: xxx")


def test_misspelt_field_of_a_job():
    with pytest.raises(TypeError, match=r"'handlr' that can be set, did you mean 'handler'\?"):
        fermata.client.job(handlr="x")
    with pytest.raises(TypeError, match=r"'colour' that can be set$"):
        fermata.client.job(colour="red")
