"""The client: jobs, runs and events of a cluster.

    async with Fermata.connect(["10.0.0.1:7070", "10.0.0.2:7070"]) as f:
        await f.jobs.create("digest", handler="send-digest", queue="mail", schedule=cron("0 7 * * MON-FRI"))
        run = await f.jobs.run("digest", wait=True)
        async for event in f.events(kinds=["run.dead"]):
            page(event.job, event.error)
"""

import asyncio
import datetime
import difflib
import os
import uuid
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, TypedDict, Unpack

from google.protobuf import field_mask_pb2

from fermata._calls import METHODS, Caller, delay_after, names
from fermata._transport import TLS, Token, check_addresses, check_token_use, tls_of
from fermata._values import Seconds, duration, payload_of, seconds_of, timestamp
from fermata.errors import FermataError, NotFound, Unavailable, error_of_item
from fermata.v1 import access_service_pb2, event_service_pb2, job_pb2, job_service_pb2
from fermata.v1.event_service_pb2 import Event
from fermata.v1.job_pb2 import Job, Run

# Names for the class Jobs, whose method is called list.
JobResults = list[Job | FermataError]
RunList = list[Run]
UpcomingRuns = list[job_service_pb2.UpcomingRun]
Times = list[datetime.datetime]

FIRST_POLL_INTERVAL, MAX_POLL_INTERVAL = 0.05, 2.0
POLL_TIMEOUT = 10.0  # of one poll; the next one may reach another node
MAX_BATCH = 1000  # jobs of one call
MAX_BATCH_BYTES = 8 << 20

_RUN_BACKOFF = {
    "reset": job_service_pb2.RunJobRequest.BACKOFF_RESET, "keep": job_service_pb2.RunJobRequest.BACKOFF_KEEP,
    "reset_on_success": job_service_pb2.RunJobRequest.BACKOFF_RESET_ON_SUCCESS,
}


class JobFields(TypedDict, total=False):
    """The fields of a job; proto/fermata/v1/job.proto describes them. Durations are seconds or timedeltas. A payload is
    bytes, text, or a value that becomes JSON. None removes what was set. The values of enums may be given as texts,
    with or without their prefix: overlap_policy="BUFFER_ONE"."""

    queue: str | None
    priority: int | None
    handler: str
    payload: Any
    labels: Mapping[str, str] | None
    schedule: job_pb2.Schedule | None
    retry_policy: job_pb2.RetryPolicy | Mapping[str, Any] | None
    backoff_policy: job_pb2.BackoffPolicy | Mapping[str, Any] | None
    timeout: Seconds | None
    timeout_grace: Seconds | None
    history_limit: int | None
    retention: Seconds | None
    dead_letter_ttl: Seconds | None
    overlap_policy: str | int | None
    overlap_limit: int | None
    misfire_policy: job_pb2.MisfirePolicy | Mapping[str, Any] | None
    locks: Sequence[job_pb2.Lock | str] | None
    target: str | None
    pause_after_failures: int | None
    max_lag: Seconds | None


_DURATIONS = {"timeout", "timeout_grace", "retention", "dead_letter_ttl", "max_lag"}


def job(**fields: Unpack[JobFields]) -> Job:
    """Returns a job for create_many, or to send with call."""
    out = Job()
    for name, value in fields.items():
        if name not in JobFields.__annotations__:
            near = difflib.get_close_matches(name, JobFields.__annotations__, 1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"a job has no field {name!r} that can be set{hint}")
        if value is not None:
            _set_field(out, name, value)
    return out


def _set_field(out: Job, name: str, value: Any) -> None:
    if name == "payload":
        out.payload = payload_of(value)
    elif name == "labels":
        out.labels.update(value)
    elif name == "locks":
        out.locks.extend(job_pb2.Lock(key=v) if isinstance(v, str) else v for v in value)
    elif name == "overlap_policy":
        out.overlap_policy = _enum_value(job_pb2.OverlapPolicy, "OVERLAP_POLICY_", value)
    elif name in _DURATIONS:
        getattr(out, name).CopyFrom(duration(value))
    elif isinstance(value, Mapping):
        getattr(out, name).CopyFrom(_message_of(type(getattr(out, name)), value))
    elif out.DESCRIPTOR.fields_by_name[name].message_type:
        getattr(out, name).CopyFrom(value)
    else:
        setattr(out, name, value)


def _enum_value(kind: Any, prefix: str, value: str | int) -> Any:
    if not isinstance(value, str):
        return value
    name = value.upper()
    return kind.Value(name if name.startswith(prefix) else prefix + name)


def _message_of(kind: Any, fields: Mapping[str, Any]) -> Any:
    """Returns a message of a mapping, in which durations may be seconds or timedeltas."""
    out = kind()
    for name, value in fields.items():
        field = kind.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise TypeError(f"{kind.DESCRIPTOR.name} has no field {name!r}")
        if field.message_type is None:
            if field.enum_type is not None and isinstance(value, str):
                value = _enum_number(field.enum_type, value)
            setattr(out, name, value)
        elif field.message_type.full_name == "google.protobuf.Duration" and isinstance(
                value, (int, float, datetime.timedelta)):
            getattr(out, name).CopyFrom(duration(value))
        elif isinstance(value, Mapping) and not field.message_type.GetOptions().map_entry:
            getattr(out, name).CopyFrom(_message_of(field.message_type._concrete_class, value))
        elif isinstance(value, Mapping):
            getattr(out, name).update(value)
        else:
            getattr(out, name).CopyFrom(value)
    return out


def _enum_number(kind: Any, name: str) -> int:
    """Returns the number of a value of an enum by its name, which may lack the prefix."""
    for value in kind.values:
        if value.name == name.upper() or value.name.endswith("_" + name.upper()):
            return int(value.number)
    raise ValueError(f"{kind.name} has no value {name!r}")


class ResumeStore(Protocol):
    """Where an events iterator keeps its place."""

    def load(self) -> str: ...

    def save(self, token: str) -> None: ...


class FileToken:
    """Keeps the place of an events iterator in a file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)

    def load(self) -> str:
        try:
            with open(self._path, encoding="utf-8") as f:
                return f.read().strip()
        except FileNotFoundError:
            return ""

    def save(self, token: str) -> None:
        temporary = self._path + ".new"
        with open(temporary, "w", encoding="utf-8") as f:
            f.write(token + "\n")
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, self._path)


class EventStream:
    """Events until the loop is left. A broken stream is resumed, also at another node, without gaps and without
    duplicates. token resumes after the events that the loop has finished with."""

    def __init__(self, caller: Caller, request: event_service_pb2.WatchEventsRequest,
                 resume: "str | ResumeStore | None") -> None:
        self._caller, self._request = caller, request
        self._store = None if resume is None or isinstance(resume, str) else resume
        self.token = resume if isinstance(resume, str) else self._store.load() if self._store else ""
        if self.token:
            request.resume_token = self.token
            request.ClearField("start_time")

    async def __aiter__(self) -> AsyncIterator[Event]:
        started, attempt = False, 1
        while True:
            stream = self._caller.stream(self._request)
            try:
                async for response in stream:
                    started, attempt = True, 1  # each stream begins with a token
                    for event in response.events:
                        yield event
                    self._save(response.resume_token)
                return
            except FermataError as error:
                pause = delay_after(error, attempt)
                if pause is None or not started and attempt >= self._caller.attempts:
                    raise
            finally:
                await stream.aclose()  # type: ignore[attr-defined]
            attempt += 1
            await asyncio.sleep(pause)

    def _save(self, token: str) -> None:
        self._request.resume_token = token
        self._request.ClearField("start_time")
        if token != self.token:
            self.token = token
            if self._store:
                self._store.save(token)


def _check_wait(wait: bool | Seconds, timeout: Seconds | None) -> tuple[bool, Seconds | None]:
    """Returns whether to wait for a run, and how long at most."""
    if not isinstance(wait, bool):
        if timeout is not None:
            raise TypeError("wait is a duration already: leave wait_timeout out")
        wait, timeout = True, wait
    if timeout is not None:
        if not wait:
            raise TypeError("wait_timeout without wait=True")
        if not seconds_of(timeout) > 0:
            raise ValueError(f"{timeout} is no duration to wait: want more than 0, or wait=False")
    return wait, timeout


class _Group:
    def __init__(self, client: "Fermata") -> None:
        self._f = client


class Jobs(_Group):
    """Calls about jobs. A job is named by its id, or by its full name."""

    async def create(self, id: str = "", *, request_id: str = "", **fields: Unpack[JobFields]) -> Job:
        """Creates a job. Without an id the cluster generates one. Creating the same job twice succeeds; if another job
        has the id, it raises AlreadyExists."""
        if not id and not request_id:
            request_id = new_request_id()  # the cluster derives the id from it, so that a retry finds the job
        return await self._f.call(job_service_pb2.CreateJobRequest(
            parent=self._f.parent, job_id=id, job=job(**fields), request_id=request_id))

    async def create_many(self, jobs: Iterable[tuple[str, Job]]) -> JobResults:
        """Creates any number of jobs, pairs of an id ("": generated) and a job, in batches. Returns the job or the
        error of each."""
        out: JobResults = []
        batch: list[job_service_pb2.CreateJobRequest] = []
        size = 0
        for id, new in jobs:
            if batch and (len(batch) == MAX_BATCH or size + new.ByteSize() > MAX_BATCH_BYTES):
                out += await self._create_batch(batch)
                batch, size = [], 0
            batch.append(job_service_pb2.CreateJobRequest(
                job_id=id, job=new, request_id="" if id else new_request_id()))
            size += new.ByteSize()
        return out + (await self._create_batch(batch) if batch else [])

    async def _create_batch(self, batch: list[Any]) -> JobResults:
        answer = await self._f.call(
            job_service_pb2.BatchCreateJobsRequest(parent=self._f.parent, requests=batch))
        return [error_of_item(r.code, r.message, r.details) if r.code else r.job for r in answer.results]

    async def get(self, id: str) -> Job:
        """Returns a job with its definition and state."""
        return await self._f.call(job_service_pb2.GetJobRequest(name=self._f.job_name(id)))

    async def update(self, id: str, *, etag: str = "", request_id: str = "", **fields: Unpack[JobFields]) -> Job:
        """Changes the given fields of a job. With the etag of a job that was read, it raises Conflict if the job was
        changed since."""
        if not fields:
            raise TypeError("update needs a field")
        changed = job(**fields)
        changed.name, changed.etag = self._f.job_name(id), etag
        return await self._f.call(job_service_pb2.UpdateJobRequest(
            job=changed, update_mask=field_mask_pb2.FieldMask(paths=list(fields)),
            request_id=request_id or new_request_id()))

    async def delete(self, id: str, *, etag: str = "", allow_missing: bool = False) -> None:
        """Deletes a job. A live run finishes."""
        request = job_service_pb2.DeleteJobRequest(name=self._f.job_name(id), etag=etag, allow_missing=True)
        first = job_service_pb2.DeleteJobRequest(name=request.name, etag=etag, allow_missing=allow_missing)
        # A retry finds no job if the first attempt succeeded and its response was lost.
        await self._f.call(request, first=first)

    async def list(
        self, filter: str = "", *, queue: str = "", state: str | int = 0, id_prefix: str = "",
        labels: Mapping[str, str] | None = None, min_failures: int = 0, order_by: str = "",
        all_namespaces: bool = False, page_size: int = 0,
    ) -> AsyncIterator[Job]:
        """Yields jobs, page by page. filter is in the language of docs/how-to/find-jobs.md."""
        request = job_service_pb2.ListJobsRequest(
            parent="namespaces/-" if all_namespaces else self._f.parent, filter=filter, queue=queue,
            state=_enum_value(job_pb2.JobStatus.State, "STATE_", state), id_prefix=id_prefix, labels=labels,
            min_consecutive_failures=min_failures, order_by=order_by, page_size=page_size)
        while True:
            page = await self._f.call(request)
            for found in page.jobs:
                yield found
            request.page_token = page.next_page_token
            if not request.page_token:
                return

    async def pause(self, id: str, note: str = "") -> Job:
        """Pauses a job until resume. A live run continues."""
        return await self._f.call(job_service_pb2.PauseJobRequest(name=self._f.job_name(id), note=note))

    async def resume(self, id: str, *, catch_up: bool = False) -> Job:
        """Ends a pause. catch_up applies the misfire policy to the scheduled times that passed."""
        return await self._f.call(job_service_pb2.ResumeJobRequest(name=self._f.job_name(id), catch_up=catch_up))

    async def rename(self, id: str, new_id: str, *, etag: str = "", request_id: str = "") -> Job:
        """Gives a job another id in its namespace. The job keeps its state, history, dead letters and revisions. If
        another job has the id, it raises AlreadyExists."""
        return await self._f.call(job_service_pb2.RenameJobRequest(
            name=self._f.job_name(id), new_id=new_id, etag=etag, request_id=request_id or new_request_id()))

    async def run(
        self, id: str, *, payload: Any = None, wait: bool | Seconds = False, wait_timeout: Seconds | None = None,
        backoff: str | None = None, request_id: str = "", ignore_exclusions: bool = False,
    ) -> Run:
        """Requests a manual run.

        payload: of this run alone, as that of create; None: that of the job. Such a run joins no other, and does not
        count for the backoff of the job.
        wait: True waits for the end of the run, with all attempts. A duration does so too, and raises TimeoutError when
        it has passed; wait_timeout is the same for wait=True.
        backoff: what the run does to the failure count of its job: "reset" (the default), "keep" or "reset_on_success".
        request_id: makes the call idempotent also after a restart of the program."""
        wait, limit = _check_wait(wait, wait_timeout)
        if payload is not None and backoff is not None:
            raise TypeError("a run with a payload of its own does not count for the backoff: leave one of them out")
        if backoff is not None and backoff not in _RUN_BACKOFF:
            raise ValueError(f"backoff {backoff!r}: want one of {', '.join(_RUN_BACKOFF)}")
        name, request_id = self._f.job_name(id), request_id or new_request_id()
        run: Run
        if payload is not None:
            run = await self._f.call(job_service_pb2.RunJobWithPayloadRequest(
                name=name, request_id=request_id, payload=payload_of(payload), ignore_exclusions=ignore_exclusions))
        else:
            run = (await self._f.call(job_service_pb2.RunJobRequest(
                name=name, request_id=request_id, backoff=_RUN_BACKOFF[backoff or "reset"],
                ignore_exclusions=ignore_exclusions))).run
        return await self._f.runs.wait(run.name, limit) if wait else run

    async def runs(self, id: str) -> RunList:
        """Returns the current run first, then finished ones, newest first, then dead letters."""
        answer = await self._f.call(job_service_pb2.ListRunsRequest(parent=self._f.job_name(id)))
        return [*answer.runs]

    async def explain(self, id: str) -> job_service_pb2.ExplainJobResponse:
        """Explains why the job does not run now, and what it waits for."""
        return await self._f.call(job_service_pb2.ExplainJobRequest(name=self._f.job_name(id)))

    async def hint(self, id: str, *, next_run: datetime.datetime | None = None, interval: Seconds | None = None,
                   reason: str = "") -> Job:
        """Overrides for a while when the job runs next, or how often. Without both, the current hint is removed."""
        request = job_service_pb2.HintJobRequest(name=self._f.job_name(id))
        if next_run is not None:
            request.hint.next_run_time.CopyFrom(timestamp(next_run))
        if interval is not None:
            request.hint.interval.CopyFrom(duration(interval))
        if request.HasField("hint"):
            request.hint.reason = reason
        return await self._f.call(request)

    async def upcoming(self, filter: str = "", *, limit: int = 20, all_namespaces: bool = False,
                       exclude_held: bool = False) -> UpcomingRuns:
        """Returns the planned runs that are due next."""
        request = job_service_pb2.ListUpcomingJobsRequest(
            parent="namespaces/-" if all_namespaces else self._f.parent, filter=filter, exclude_held=exclude_held)
        found: UpcomingRuns = []
        while len(found) < limit:
            request.page_size = min(limit - len(found), 1000)
            page = await self._f.call(request)
            found += page.runs
            request.page_token = page.next_page_token
            if not request.page_token:
                break
        return found

    async def preview(self, schedule: job_pb2.Schedule, *, count: int = 10) -> Times:
        """Returns the next scheduled times of a schedule, in UTC."""
        answer = await self._f.call(job_service_pb2.PreviewScheduleRequest(schedule=schedule, count=count))
        return [t.ToDatetime(tzinfo=datetime.timezone.utc) for t in answer.due_times]


class Runs(_Group):
    """Calls about runs. A run is named by its full name, as in Run.name."""

    async def get(self, name: str) -> Run:
        """Returns a run."""
        return await self._f.call(job_service_pb2.GetRunRequest(name=name))

    async def cancel(self, name: str) -> Run:
        """Cancels a run. A waiting run ends at once, a live one when its handler returns."""
        return await self._f.call(job_service_pb2.CancelRunRequest(name=name))

    async def wait(self, name: str, timeout: Seconds | None = None) -> Run:
        """Waits until a run has ended, with all its attempts, also while nodes do not answer. Raises TimeoutError. If
        the job keeps no history, it raises NotFound after the end of the run."""
        async with asyncio.timeout(None if timeout is None else seconds_of(timeout)):
            pause = FIRST_POLL_INTERVAL
            while True:
                try:
                    async with asyncio.timeout(POLL_TIMEOUT):
                        run = await self.get(name)
                    if run.state == Run.STATE_FINISHED:
                        return run
                except (Unavailable, TimeoutError):
                    pass
                except FermataError as error:
                    if error.code != "DEADLINE_EXCEEDED":
                        raise
                await asyncio.sleep(pause)
                pause = min(pause * 1.25, MAX_POLL_INTERVAL)

    async def ended(
        self, *, since: datetime.datetime | None = None, until: datetime.datetime | None = None,
        outcomes: Sequence[str | int] = (), queue: str = "", filter: str = "", all_namespaces: bool = False,
    ) -> AsyncIterator[Run]:
        """Yields runs of all jobs that ended without success, or with the given outcomes, newest first."""
        request = job_service_pb2.ListRunsRequest(
            parent=("namespaces/-" if all_namespaces else self._f.parent) + "/jobs/-", queue=queue, filter=filter,
            outcomes=[_enum_value(job_pb2.Outcome, "OUTCOME_", o) for o in outcomes])
        if since:
            request.start_time.CopyFrom(timestamp(since))
        if until:
            request.end_time.CopyFrom(timestamp(until))
        while True:
            page = await self._f.call(request)
            for run in page.runs:
                yield run
            request.page_token = page.next_page_token
            if not request.page_token:
                return


class Fermata:
    """A client of a cluster, for one namespace. Not for several event loops."""

    def __init__(self, caller: Caller, namespace: str) -> None:
        self._caller, self.namespace = caller, namespace
        self.jobs, self.runs = Jobs(self), Runs(self)

    @classmethod
    def connect(
        cls, addresses: Sequence[str] | str, *, tls: TLS | bool | None = None, token: Token | None = None,
        namespace: str = "default", attempts: int = 5, timeout: Seconds | None = 30.0,
    ) -> "Connecting":
        """Returns a client, to be awaited or used with async with. Calls connect, to one of the nodes, and go to
        another one when that cannot be reached. timeout is that of a call with all its attempts."""
        listed, secured = check_addresses(addresses), tls_of(tls)
        check_token_use(listed, secured, token)
        if not 1 <= attempts <= 20:
            raise ValueError(f"{attempts} attempts: want 1 to 20")
        limit = None if timeout is None else seconds_of(timeout)
        return Connecting(lambda: cls(Caller(listed, secured, token, attempts, limit), namespace))

    async def close(self) -> None:
        """Closes the connections, also those of clients that in_namespace has returned."""
        await self._caller.close()

    async def __aenter__(self) -> "Fermata":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.close()

    def in_namespace(self, namespace: str) -> "Fermata":
        """Returns a client for another namespace that shares the connections."""
        return Fermata(self._caller, namespace)

    @property
    def parent(self) -> str:
        """The full name of the namespace."""
        return "namespaces/" + self.namespace

    def job_name(self, id: str) -> str:
        """Returns the full name of a job. A full name is returned unchanged."""
        return id if id.startswith("namespaces/") else f"{self.parent}/jobs/{id}"

    async def call(self, request: Any, *, first: Any = None) -> Any:
        """Calls the method of a request of fermata.v1, with failover and retry. Every method without a stream has a
        request of its own: call(PauseQueueRequest(name=...)) calls PauseQueue. A request that changes something and has
        a request_id should have one, because a retry repeats the call. first replaces the request of the first
        attempt."""
        name = request.DESCRIPTOR.full_name
        if name not in METHODS:
            raise TypeError(f"{name} is no request of the API")
        return await self._caller.call(request, first=first)

    async def whoami(self) -> access_service_pb2.WhoAmIResponse:
        """Returns the identity that the cluster assigns to the client, and its permissions."""
        return await self.call(access_service_pb2.WhoAmIRequest())

    def events(
        self, *, kinds: Sequence[str] = (), queues: Sequence[str] = (), jobs: Sequence[str] = (),
        labels: Mapping[str, str] | None = None, resume: "str | ResumeStore | None" = None,
        since: datetime.datetime | None = None, all_namespaces: bool = False, stop_at_end: bool = False,
    ) -> EventStream:
        """Returns an iterator over events: new ones, those since an instant, or those after a place (resume). resume is
        a token, or a store of tokens such as FileToken, which is written when the loop has finished with events, so
        that each comes at least once. Raises EventsGone if the place is no longer kept."""
        request = event_service_pb2.WatchEventsRequest(
            parent="" if all_namespaces else self.parent, kinds=names(kinds), queues=names(queues),
            job_ids=names(jobs), labels=labels, stop_at_end=stop_at_end)
        if since is not None:
            request.start_time.CopyFrom(timestamp(since))
        return EventStream(self._caller, request, resume)


class Connecting:
    """A client that is not open yet: await it, or use it with async with."""

    def __init__(self, open: Any) -> None:
        self._open = open
        self._client: Fermata | None = None

    def __await__(self) -> "Generator[Any, None, Fermata]":
        return self._start().__await__()

    async def _start(self) -> Fermata:
        client: Fermata = self._open()
        return client

    async def __aenter__(self) -> Fermata:
        self._client = await self
        return self._client

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        if self._client:
            await self._client.close()


def new_request_id() -> str:
    """Returns a random id that makes a call idempotent."""
    return str(uuid.uuid4())


__all__ = ["Connecting", "Event", "EventStream", "Fermata", "FileToken", "Job", "JobFields", "Jobs", "NotFound",
           "ResumeStore", "Run", "Runs", "job", "new_request_id"]
