"""Runs handlers of Fermata's jobs: the worker protocol of docs/workers.md on grpc.aio.

    worker = Worker(["127.0.0.1:7070"], queues=["mail"], slots=20, handlers={"send-digest": send_digest})
    asyncio.run(worker.run(stop))

A handler is a function that takes a Task and runs in a thread. What it returns (bytes, str or None) is kept as the
output of the run. An exception fails the attempt; Permanent ends the run; RetryAfter asks for a delay. A handler that
runs for long waits by task.wait or calls task.check: both notice that the attempt has to end.

The state of the protocol belongs to the event loop. Threads only run handlers.

For each lease there is one Attempt, until its result is acknowledged. A Session is one stream to one node. The worker
opens the next session when the current one ends, and before it closes the current one when that node drains or does
not acknowledge heartbeats. Leases are trusted until self.trusted_until, which acknowledged heartbeats move on. After
that, handlers are cancelled and none starts before the next Welcome.

This worker accepts no leases before they are due and none beyond its free slots, which are options of the protocol.
"""

import asyncio
import concurrent.futures
import logging
import os
import random
import socket
import threading
import time
import uuid

import grpc

import worker_service_pb2 as pb

log = logging.getLogger("fermata")

TIMED_OUT, CANCELLED, LEASE_LOST, STOPPED = "timed out", "cancelled", "lease lost", "worker stops"

WORK = "/fermata.v1.WorkerService/Work"
DIAL_TIMEOUT = 2.0  # for the connection, and again for the Welcome
STOP_GRACE = 5.0  # for handlers that were cancelled because the worker stops
RETURN_REPEAT = 15.0  # how long a dead stream may go unnoticed
CHANNEL_OPTIONS = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own for each channel
    ("grpc.enable_retries", 0),
]


class Permanent(Exception):
    """An error that a retry will not fix: the run ends without further attempts."""


class RetryAfter(Exception):
    """An error whose next attempt should start no earlier than after a delay in seconds."""

    def __init__(self, error, seconds):
        super().__init__(str(error))
        self.seconds = seconds


class Ended(Exception):
    """The attempt has to end: it timed out, was cancelled, lost its lease, or the worker stops."""


class Task:
    """One attempt of a run, as a handler sees it."""

    def __init__(self, lease):
        self.run = lease.run  # the same for all attempts of a run: an idempotency key
        self.queue = lease.queue
        self.handler = lease.handler
        self.payload = lease.payload
        self.labels = dict(lease.labels)
        self.attempt = lease.attempt  # from 1
        self.max_attempts = lease.max_attempts  # 0: no limit
        self.token = lease.token  # grows with each lease of the job: a store can refuse smaller ones
        self.correlation_id = lease.correlation_id
        self.cause = None  # why the attempt has to end
        self._ended = threading.Event()

    def wait(self, seconds):
        """Waits, and raises Ended if the attempt has to end."""
        if self._ended.wait(seconds):
            raise Ended(self.cause)

    def check(self):
        """Raises Ended if the attempt has to end."""
        self.wait(0)

    def end(self, cause):
        """Makes the handler end. The first cause counts."""
        if not self._ended.is_set():
            self.cause = cause
            self._ended.set()


class Attempt:
    def __init__(self, lease, epoch):
        self.id = lease.lease_id
        self.lease = lease
        self.task = Task(lease)
        self.known_epoch = epoch  # of the latest session whose node has this lease
        self.running = False
        self.returned = False  # before it started
        self.future = None  # of the thread
        self.timer = None  # of its timeout
        self.lost_at = None  # when the lease was given up
        self.lost_epoch = 0  # of the session whose node took the lease away
        self.result = None


class Session:
    """One stream to one node, from its Hello on."""

    def __init__(self, channel, address, epoch):
        self.channel, self.address, self.epoch = channel, address, epoch
        self.outbox = asyncio.Queue()
        self.hello_at = 0.0
        self.lease_ttl = self.session_ttl = 0.0
        self.call = None
        self.confirmed = True  # the node has confirmed all leases that Hello named
        self.acked_at = 0.0  # when the latest acknowledged heartbeat was sent
        self.sent = {}  # when heartbeats were sent that are not acknowledged, by seq
        self.drained = False
        self.superseded = False  # another node was sent a Hello
        self.returned = []  # (time, lease id)
        self.tasks = []
        self.replace = asyncio.Event()  # set: look for another node
        self.ended = asyncio.Event()
        self.clean = False  # the node ended the stream without an error

    def send(self, **message):
        self.outbox.put_nowait(pb.WorkRequest(**message))

    def give_back(self, *ids):
        """Returns leases whose handler has not started."""
        self.send(returned=pb.Returned(lease_ids=ids))
        self.returned += [(time.monotonic(), i) for i in ids]

    def close(self):
        """Ends the worker's side of the stream after what waits to be sent."""
        self.outbox.put_nowait(None)

    async def requests(self):
        while True:
            message = await self.outbox.get()
            if message is None:
                return
            yield message

    def stop_margin(self):
        return min((self.session_ttl or self.lease_ttl) / 6, 2.0)

    def trust_period(self):
        """How long leases can be trusted after a confirmation."""
        if self.session_ttl and not self.drained:
            return self.session_ttl - self.stop_margin()
        return self.lease_ttl * 2 / 3 - min(self.lease_ttl / 6, 2.0)


class Worker:
    def __init__(self, addresses, handlers, queues=("default",), slots=16, namespace="default", drain_timeout=30.0,
                 credentials=None, token=None, labels=None):
        """credentials are for TLS, from grpc.ssl_channel_credentials. token is a function that returns a bearer
        token, which is sent over TLS or to loopback addresses only."""
        self.id = f"{socket.gethostname()[:80]}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self.configured, self.advertised, self.preferred = list(addresses), [], []
        self.handlers, self.queues, self.slots, self.namespace = dict(handlers), list(queues), slots, namespace
        self.drain_timeout, self.credentials, self.token = drain_timeout, credentials, token
        self.labels = labels or {}
        if token and not credentials and not all(map(is_loopback, addresses)):
            raise ValueError("a token needs TLS, except to loopback addresses")
        self.attempts = {}  # by lease id
        self.lost = []  # lease ids to report until they are acknowledged
        self.pending_returns = []  # lease ids to return on the next session
        self.epoch = 0
        self.session = None
        self.welcomed = False
        self.trusted_until = 0.0
        self.margin = 0.0
        self.draining = False
        self.threads = concurrent.futures.ThreadPoolExecutor(slots, "handler")

    async def run(self, stop):
        """Works until the event stop is set, then drains: takes no further leases, waits up to drain_timeout for
        running handlers and the acknowledgement of their results, and cancels what still runs. Returns whether all
        attempts have ended by themselves."""
        self.loop = asyncio.get_running_loop()
        self.idle = asyncio.Event()
        link = asyncio.create_task(self._keep_session())
        trust = asyncio.create_task(self._watch_trust())
        try:
            await stop.wait()
            return await self._drain()
        finally:
            await cancel(trust, link)
            await self._finish()
            self.threads.shutdown(wait=False, cancel_futures=True)

    # Sessions

    async def _keep_session(self):
        while True:
            session = await self._open_session()
            await first(session.ended.wait(), session.replace.wait())
            if session.ended.is_set():
                await asyncio.sleep(random.uniform(0.05, 0.1))  # many workers may have lost this node

    async def _open_session(self):
        """Opens a session to any node and makes it the current one. Tries until that succeeds."""
        since = time.monotonic()
        while True:
            dials = [asyncio.create_task(self._dial(a)) for a in self._candidates(self.session)]
            session = None
            try:
                for dialed in asyncio.as_completed(dials):
                    address, channel = await dialed
                    session = channel and await self._hello(address, channel)
                    if session:
                        return session
            finally:
                for dialed in await cancel(*dials):
                    if isinstance(dialed, tuple) and dialed[1] and not (session and session.channel is dialed[1]):
                        await dialed[1].close()
            pause = min(max((time.monotonic() - since) / 4, 0.1), 5.0)
            await asyncio.sleep(random.uniform(pause / 2, pause))

    def _candidates(self, before):
        """Addresses in the order of their promise, that of the node to leave last."""
        addresses = list(dict.fromkeys(self.preferred + self.configured + self.advertised))
        if before and not before.ended.is_set() and len(addresses) > 1:
            addresses = [a for a in addresses if a != before.address] + [before.address]
        if len(addresses) > 4:  # a random one of the others takes part in each try, so that none is left out for ever
            addresses = addresses[:3] + [random.choice(addresses[3:])]
        return addresses

    async def _dial(self, address):
        """Returns the address with a ready channel, or with None."""
        if self.credentials:
            options = list(CHANNEL_OPTIONS)
            if address not in self.configured:  # the certificate has to be for a configured host
                options.append(("grpc.ssl_target_name_override", host_of(self.configured[0])))
            channel = grpc.aio.secure_channel(address, self.credentials, options=options)
        else:
            channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        try:
            await asyncio.wait_for(channel.channel_ready(), DIAL_TIMEOUT)
            return address, channel
        except asyncio.TimeoutError:
            await channel.close()
            return address, None
        except asyncio.CancelledError:
            await channel.close()
            raise

    async def _hello(self, address, channel):
        """Exchanges Hello and Welcome, and attaches the session. Returns None if the node refuses."""
        if time.monotonic() >= self.trusted_until:
            self._end_trust()
        stopping = [a.future for a in self.attempts.values() if a.lost_at is not None and not a.result and a.future]
        if stopping and self.margin:  # another worker may have their leases after the Hello
            await asyncio.wait(stopping, timeout=self.margin)
        for a in [a for a in self.attempts.values() if not a.running and a.result is None]:
            del self.attempts[a.id]  # has not started, and would count as started if Hello named it
            a.returned = True
            self.pending_returns.append(a.id)
        self.epoch += 1
        session = Session(channel, address, self.epoch)
        before = self.session
        if before:
            before.superseded = True
        live = [a for a in self.attempts.values() if self._is_live(a)]
        session.confirmed = not any(a.result is None and a.lost_at is None for a in live)
        for a in live:
            a.known_epoch = session.epoch
        session.hello_at = time.monotonic()
        session.send(hello=pb.Hello(
            worker_id=self.id, namespace=self.namespace, queues=self.queues, slots=self.slots,
            session_epoch=session.epoch, live_lease_ids=[a.id for a in live], supports_heartbeats=True, labels=self.labels))
        metadata = None
        if self.token and (self.credentials or is_loopback(address)):
            metadata = [("authorization", "Bearer " + self.token())]
        session.call = channel.stream_stream(
            WORK, request_serializer=pb.WorkRequest.SerializeToString,
            response_deserializer=pb.WorkResponse.FromString)(session.requests(), metadata=metadata)
        try:
            answer = await asyncio.wait_for(session.call.read(), DIAL_TIMEOUT)
            if answer is grpc.aio.EOF or not answer.HasField("welcome"):
                raise ConnectionError("the first message is no Welcome")
        except (grpc.aio.AioRpcError, asyncio.TimeoutError, ConnectionError) as error:
            log.warning("failed to connect to %s: %s", address, describe(error))
            session.call.cancel()
            if before:
                self._undo_hello(before, session)
            return None
        self._attach(session, answer.welcome)
        return session

    def _is_live(self, a):
        """Whether the next node has to take this lease over. That is also so for a lost lease which has certainly
        ended and whose handler still takes a slot."""
        if a.result is not None:
            return True
        if not a.running:
            return False
        session = self.session
        ttl = session.lease_ttl if session else 30.0
        return a.lost_at is None or a.lost_epoch > 0 or time.monotonic() - a.lost_at >= ttl

    def _undo_hello(self, before, refused):
        before.superseded = False
        for a in self.attempts.values():
            if a.known_epoch == refused.epoch:
                a.known_epoch = before.epoch
        if not before.ended.is_set():
            self._send_results(before)

    def _attach(self, session, welcome):
        before, self.session, self.welcomed = self.session, session, True
        session.lease_ttl = welcome.lease_ttl.ToNanoseconds() / 1e9 or 30.0
        session.session_ttl = welcome.session_ttl.ToNanoseconds() / 1e9
        self.margin = session.stop_margin()
        self.advertised, self.preferred = list(welcome.addresses), []
        until = session.hello_at + session.trust_period()
        if session.confirmed or not session.session_ttl:
            self.trusted_until = until
        else:  # until the node has confirmed the leases, the previous session counts
            self.trusted_until = min(self.trusted_until, until)
        log.info("connected to node %s at %s, epoch %d", welcome.node, session.address, session.epoch)
        if self.draining:
            session.send(draining=pb.Draining())
        if self.pending_returns:
            session.give_back(*self.pending_returns)
            self.pending_returns = []
        if self.lost:
            session.send(lost=pb.Lost(lease_ids=self.lost))
        self._send_results(session)
        session.tasks = [asyncio.create_task(self._receive(session)), asyncio.create_task(self._beat(session))]
        if before and not before.ended.is_set():
            before.close()
            self.loop.call_later(2.0, before.call.cancel)

    def _send_results(self, session):
        results = [a.result for a in self.attempts.values() if a.result is not None]
        for i in range(0, len(results), 5):  # with their outputs, a message stays small
            session.send(results=pb.Results(results=results[i:i + 5]))

    async def _receive(self, session):
        try:
            while True:
                message = await session.call.read()
                if message is grpc.aio.EOF:
                    session.clean = await session.call.code() == grpc.StatusCode.OK
                    break
                self._handle(session, message)
        except grpc.aio.AioRpcError as error:
            if session is self.session and not session.drained:
                log.warning("stream to %s ended: %s", session.address, describe(error))
        finally:
            self._detach(session)

    def _detach(self, session):
        session.tasks[1].cancel()
        session.call.cancel()
        session.ended.set()
        asyncio.ensure_future(session.channel.close())
        if not session.clean:  # the node may not have read these
            now = time.monotonic()
            ids = [i for at, i in session.returned if now - at < RETURN_REPEAT]
            if self.session is session or not self.session:
                self.pending_returns += ids
            elif ids:
                self.session.give_back(*ids)
        if self.session is session:
            self.session = None

    def _handle(self, session, message):
        kind = message.WhichOneof("message")
        if kind == "leases":
            for lease in message.leases.leases:
                self._accept(session, lease)
        elif kind == "result_acks":
            self._acknowledge(session, message.result_acks.acks)
        elif kind == "cancel":
            for lease_id in message.cancel.lease_ids:
                self._cancel(session, lease_id, message.cancel.reason)
        elif kind == "heartbeat_ack":
            self._confirm(session, message.heartbeat_ack)
        elif kind == "addresses":
            self.advertised = list(message.addresses.addresses)
        elif kind == "drain":
            session.drained = True
            self.preferred = list(message.drain.addresses)
            if session is self.session and session.confirmed and session.acked_at \
                    and time.monotonic() < self.trusted_until:
                self.trusted_until = session.acked_at + session.trust_period()
            session.replace.set()
        # Other messages are of later versions.

    # Trust

    async def _beat(self, session):
        """Sends heartbeats, and looks for another node when their acknowledgement is late."""
        if not session.session_ttl:  # that the process runs is all that can be observed
            while True:
                now = time.monotonic()
                if now < self.trusted_until:
                    self.trusted_until = now + session.trust_period()
                await asyncio.sleep(session.trust_period() / 4)
        seq = ticks = 0
        while True:
            now = time.monotonic()
            if ticks % 2 == 0:
                seq += 1
                session.sent[seq] = now
                session.send(heartbeat=pb.Heartbeat(seq=seq))
            if any(now - at > session.session_ttl / 3 for at in session.sent.values()):
                session.replace.set()
            ticks += 1
            await asyncio.sleep(session.session_ttl / 8)

    def _confirm(self, session, ack):
        at = session.sent.get(ack.seq) or (session.acked_at if ack.confirmed else None)
        session.sent = {seq: t for seq, t in session.sent.items() if seq > ack.seq}
        session.confirmed = session.confirmed or ack.confirmed
        if at is None:
            return
        session.acked_at = at
        if session is self.session and session.confirmed and time.monotonic() < self.trusted_until:
            self.trusted_until = at + session.trust_period()

    async def _watch_trust(self):
        while True:
            left = self.trusted_until - time.monotonic()
            if self.welcomed and left <= 0:
                self._end_trust()
            await asyncio.sleep(max(left, 0.05) if self.welcomed else 0.05)

    def _end_trust(self):
        """Gives all leases up: other workers may have them soon."""
        now = time.monotonic()
        given_up = [a for a in self.attempts.values() if a.result is None and a.lost_at is None]
        for a in given_up:
            a.lost_at = now
            a.task.end(LEASE_LOST)
        if given_up:
            log.warning("failed to confirm leases in time, %d leases lost", len(given_up))
        if self.welcomed and self.session:
            self.session.call.cancel()
            self.session = None

    # Attempts

    def _accept(self, session, lease):
        if lease.lease_id in self.attempts:
            return
        if self.draining or session.superseded or session.drained or session is not self.session:
            session.give_back(lease.lease_id)
            return
        a = Attempt(lease, session.epoch)
        self.attempts[a.id] = a
        a.future = self.loop.run_in_executor(self.threads, self._run_handler, a)
        a.future.add_done_callback(lambda _: self._check_idle())

    def _run_handler(self, a):
        """Runs in a thread."""
        started = concurrent.futures.Future()
        self.loop.call_soon_threadsafe(self._start, a, started)
        if not started.result():
            return
        begin, outcome, error, output, retry = time.monotonic(), pb.Result.OUTCOME_SUCCEEDED, "", b"", None
        try:
            handler = self.handlers.get(a.task.handler)
            if handler is None:
                raise LookupError(f"no handler {a.task.handler!r} on this worker")
            value = handler(a.task)
            output = value.encode() if isinstance(value, str) else bytes(value or b"")
        except BaseException as e:  # whatever it is, it is the attempt's error
            outcome, error = pb.Result.OUTCOME_FAILED, str(e) or type(e).__name__
            if isinstance(e, Permanent):
                outcome = pb.Result.OUTCOME_FAILED_PERMANENTLY
            elif a.task.cause == TIMED_OUT:
                outcome = pb.Result.OUTCOME_TIMED_OUT
            elif a.task.cause == CANCELLED:
                outcome = pb.Result.OUTCOME_CANCELLED
            if isinstance(e, RetryAfter):
                retry = e.seconds
        result = pb.Result(lease_id=a.id, outcome=outcome, error=error[:512], output=output[:4096])
        result.duration.FromNanoseconds(int((time.monotonic() - begin) * 1e9))
        if retry and retry > 0:
            result.retry_after.FromNanoseconds(int(retry * 1e9))
        self.loop.call_soon_threadsafe(self._end_attempt, a, result)

    def _start(self, a, started):
        """Decides whether the handler may start, and reports that it does."""
        if a.returned:
            started.set_result(False)
            return
        if self.draining or a.task.cause or time.monotonic() >= self.trusted_until:
            self.attempts.pop(a.id, None)
            if a.task.cause == TIMED_OUT:
                self._report(pb.WorkRequest(results=pb.Results(results=[
                    pb.Result(lease_id=a.id, outcome=pb.Result.OUTCOME_TIMED_OUT, error="timed out before it started")])))
            elif self.session:
                self.session.give_back(a.id)
            else:
                self.pending_returns.append(a.id)
            if a.lost_at is not None:
                self._report_lost(a.id)
            started.set_result(False)
            self._check_idle()
            return
        a.running = True
        if self.session and not self.session.superseded:
            self.session.send(started=pb.Started(lease_ids=[a.id]))
        timeout = a.lease.timeout.ToNanoseconds() / 1e9
        if timeout:
            a.timer = self.loop.call_later(timeout, a.task.end, TIMED_OUT)
        started.set_result(True)

    def _end_attempt(self, a, result):
        if a.timer:
            a.timer.cancel()
        a.running = False
        failed = result.outcome != pb.Result.OUTCOME_SUCCEEDED
        if failed and a.task.cause in (LEASE_LOST, STOPPED):  # which is no failure of the handler
            self.attempts.pop(a.id, None)
            if a.task.cause == LEASE_LOST and self.session and self.session.epoch in (a.known_epoch, a.lost_epoch):
                self.session.send(returned=pb.Returned(lease_ids=[a.id]))
            self._report_lost(a.id)
        else:
            a.result = result
            if failed:
                log.info("attempt %d of %s failed: %s", a.task.attempt, a.task.run, result.error)
            if self.session and not self.session.superseded:
                self.session.send(results=pb.Results(results=[result]))
        self._check_idle()

    def _report(self, message):
        if self.session:
            self.session.outbox.put_nowait(message)

    def _report_lost(self, lease_id):
        self.lost = (self.lost + [lease_id])[-(2 * self.slots + 1024):]
        self._report(pb.WorkRequest(lost=pb.Lost(lease_ids=[lease_id])))

    def _acknowledge(self, session, acks):
        if session.superseded or session is not self.session:
            return  # the node that took the leases over needs the results too
        for ack in acks:
            a = self.attempts.get(ack.lease_id)
            if a is None:
                self.lost = [i for i in self.lost if i != ack.lease_id]
            elif a.result is not None:
                del self.attempts[a.id]
                if ack.status == pb.ResultAck.STATUS_STALE:
                    log.info("result of %s discarded, its lease had ended", a.task.run)
                    self._report_lost(a.id)
        self._check_idle()

    def _cancel(self, session, lease_id, reason):
        a = self.attempts.get(lease_id)
        if reason == pb.Cancel.REASON_LEASE_LOST:
            if a is None:
                session.send(returned=pb.Returned(lease_ids=[lease_id]))
            elif a.known_epoch <= session.epoch:  # otherwise a later node has the lease
                a.lost_at, a.lost_epoch = a.lost_at or time.monotonic(), session.epoch
                a.task.end(LEASE_LOST)
        elif a is not None:
            a.task.end(TIMED_OUT if reason == pb.Cancel.REASON_TIMED_OUT else CANCELLED)

    # The end

    def _check_idle(self):
        if self.draining and not self.attempts:
            self.idle.set()

    async def _drain(self):
        self.draining = True
        log.info("draining, %d attempts running", sum(a.running for a in self.attempts.values()))
        if self.session:
            self.session.send(draining=pb.Draining())
        self._check_idle()
        if await arrives(self.idle, self.drain_timeout):
            log.info("drained")
            return True
        for a in self.attempts.values():
            a.task.end(STOPPED)
        await arrives(self.idle, STOP_GRACE)
        log.warning("attempts were cut off; they will be leased again")
        return False

    async def _finish(self):
        """Closes the stream. Leases that the node may not have taken back are returned to another node."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            session = self.session
            if session:
                session.close()
                if not await arrives(session.ended, 2.0):
                    session.call.cancel()
                    await session.ended.wait()
            if not self.pending_returns:
                return
            try:
                await asyncio.wait_for(self._open_session(), max(0.1, deadline - time.monotonic()))
            except asyncio.TimeoutError:
                return


def host_of(address):
    return address.rsplit(":", 1)[0].strip("[]")


def is_loopback(address):
    host = host_of(address)
    return host in ("localhost", "::1") or host.startswith("127.")


def describe(error):
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__


async def arrives(event, seconds):
    """Waits for an event, and returns whether it has come."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
        return True
    except asyncio.TimeoutError:
        return False


async def first(*awaitables):
    """Waits for the first of several."""
    tasks = [asyncio.ensure_future(a) for a in awaitables]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel(*tasks)


async def cancel(*tasks):
    """Cancels tasks, waits for their end, and returns their results and exceptions."""
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)
