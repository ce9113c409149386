"""One stream to one node."""

import asyncio
import collections
import logging
import time
from typing import TYPE_CHECKING, Any

import grpc

from fermata._gather import RateMeter
from fermata._transport import KEEPALIVE_TIME, KEEPALIVE_TIMEOUT, Metadata, raise_if_cancelled
from fermata.v1 import worker_service_pb2 as pb

if TYPE_CHECKING:
    from fermata._table import Attempt, Table

WORK = "/fermata.v1.WorkerService/Work"
CLOSE_TIMEOUT = 2.0  # for a node to end a stream that the worker has closed
MAX_LEASE_IDS = 300  # in one message
MAX_RESULT_BYTES = 27 << 10  # of results in one message
RETURN_REPEAT = KEEPALIVE_TIME + KEEPALIVE_TIMEOUT
CLOSED = "closed by this worker"

clock = time.monotonic


class Refused(Exception):
    """A node did not welcome the worker. status is that of the call, None without one."""

    def __init__(self, text: str, status: grpc.StatusCode | None = None) -> None:
        super().__init__(text)
        self.status = status


def stop_margin_of(ttl: float) -> float:
    """Returns how long handlers have to return after trust has ended."""
    return min(ttl / 6, 2.0)


class Session:
    """One stream to one node, from its Hello on. The table decides what is sent; the outbox collects it, so that a busy
    stream sends few large messages and an idle one sends at once."""

    def __init__(self, table: "Table", channel: Any, address: str, limit: float) -> None:
        self.table, self.channel, self.address, self.limit = table, channel, address, limit
        self.call: Any = None
        self.epoch = 0
        self.node = ""
        self.addresses: list[str] = []  # of other nodes
        self.hello_at = self.began = 0.0
        self.lease_ttl, self.session_ttl = 30.0, 0.0
        self.news: asyncio.Queue[tuple[str, list[str]]] = asyncio.Queue()  # for the link: drain, unresponsive, ended
        self.ended_event = asyncio.Event()
        self.error = ""  # why it has ended
        self.clean = False  # the node has ended the stream without an error
        self.closing = False
        self.closed_to_leases = False  # takes no further leases
        self.drain_received = False  # the node asked this worker to connect to another one
        self.superseded = False  # another node was asked to take the leases over
        self.stop_announced = False  # the node is notified, before the stream ends, that this worker stops
        self._received_at = 0.0
        self._returns: collections.deque[tuple[float, str]] = collections.deque()  # what was returned, and when
        self.result_rate = RateMeter()
        # Heartbeats. unconfirmed: Hello named leases that are trusted no longer than the previous session allowed.
        self.unconfirmed = False
        self.confirmed_at = 0.0  # when the heartbeat was sent whose acknowledgement confirmed all leases
        self.next_heartbeat_at = self.timer_at = 0.0
        self._seq = self._acked = 0
        self._sent: list[tuple[int, float]] = []  # the latest acknowledged heartbeat, and those after it
        self._reported_silent = False
        # The outbox.
        self.started: list[Attempt] = []
        self.results: list[Attempt] = []
        self.returned: list[str] = []
        self.lost: list[str] = []
        self.draining = False
        self._heartbeat = 0
        self._sending = False
        self._wake = asyncio.Event()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def ended(self) -> bool:
        return self.ended_event.is_set()

    # Times

    def stop_margin(self) -> float:
        return stop_margin_of(self.session_ttl or self.lease_ttl)

    def trust_period(self) -> float:
        """How long leases can be trusted after a confirmation. Without heartbeats, the last renewal may be a third of
        the life of a lease ago."""
        if self.session_ttl and not self.drain_received:
            return self.session_ttl - self.stop_margin()
        return self.lease_ttl * 2 / 3 - stop_margin_of(self.lease_ttl)

    def ack_timeout(self) -> float:
        """How long an acknowledgement may take before the worker looks for another node."""
        return self.session_ttl / 3

    def last_contact(self) -> float:
        """Returns when the node was certainly there, after the end of the stream. What ends a dead connection is the
        keepalive, so that nothing may have come for as long as that takes."""
        silent = any(word in self.error.lower() for word in ("ping", "keepalive", "timed out", "timeout"))
        return max(self._received_at, clock() - (KEEPALIVE_TIME + KEEPALIVE_TIMEOUT if silent else 0.0))

    # Heartbeats

    def queue_heartbeat(self, now: float) -> None:
        """Puts a heartbeat into the outbox, in place of one that was not sent."""
        self._seq += 1
        self._sent.append((self._seq, now))
        self._heartbeat = self._seq
        self.wake()

    def ack_overdue_at(self) -> float | None:
        """Returns when the next acknowledgement is overdue; None: none is expected."""
        if self._reported_silent:
            return None
        return next((at + self.ack_timeout() for seq, at in self._sent if seq > self._acked), None)

    def take_ack(self, seq: int) -> float | None:
        """Returns when an acknowledged heartbeat was sent; None: it is none of this session, or an old one."""
        while self._sent and self._sent[0][0] < seq:
            del self._sent[0]
        if not self._sent or self._sent[0][0] != seq:
            return None
        self._acked = seq
        return self._sent[0][1]

    def mark_unresponsive(self) -> None:
        """Makes the link look for another node. The session continues until there is one."""
        self._reported_silent = True
        self.news.put_nowait(("unresponsive", []))

    def receive_drain(self, addresses: list[str]) -> None:
        """Makes the link look for another node, at these addresses first. The session continues until there is one."""
        self.news.put_nowait(("drain", addresses))

    # Returned leases are not acknowledged: those of the last seconds before a stream was cut are returned again.

    def return_lease(self, lease_id: str) -> None:
        self.returned.append(lease_id)
        self._drop_old_returns()
        self._returns.append((clock(), lease_id))
        self.wake()

    def _drop_old_returns(self) -> None:
        since = clock() - RETURN_REPEAT
        while self._returns and self._returns[0][0] < since:
            self._returns.popleft()

    def unconfirmed_returns(self) -> list[str]:
        """Returns the leases that an ended session has returned, or should have, without proof that its node read
        them. A node that was notified of the stop, and has ended the stream without an error, has read everything,
        and returns by itself what it sent later."""
        if self.stop_announced and self.clean:
            return []
        self._drop_old_returns()
        return list(dict.fromkeys(self.returned + [i for _, i in self._returns]))

    # The outbox

    def announce_stop(self) -> None:
        """Notifies the node that this worker stops. When the stream ends, the node returns what has not started. So
        this is called only while no other node has been asked to take over the leases."""
        if not self.stop_announced:
            self.draining = self.stop_announced = True
        self.wake()

    def wake(self) -> None:
        self._wake.set()

    def wake_within(self, seconds: float) -> None:
        """Sends what is in the outbox after a time, unless something else sends it before."""
        if self._flush_timer is None:
            self._flush_timer = asyncio.get_running_loop().call_later(seconds, self.wake)

    def _stop_flush_timer(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None

    def is_flushed(self) -> bool:
        return not (self._sending or self.started or self.results or self.returned or self.lost or self.draining
                    or self._heartbeat)

    def _take_messages(self) -> list[pb.WorkRequest]:
        """Empties the outbox. Starts come before results; one is left out if the result goes out with it."""
        self._stop_flush_timer()
        out: list[pb.WorkRequest] = []
        if self._heartbeat:
            out.append(pb.WorkRequest(heartbeat=pb.Heartbeat(seq=self._heartbeat)))
        if self.draining:
            out.append(pb.WorkRequest(draining=pb.Draining()))
        for ids in _split(self.returned):
            out.append(pb.WorkRequest(returned=pb.Returned(lease_ids=ids)))
        for ids in _split(self.lost):
            out.append(pb.WorkRequest(lost=pb.Lost(lease_ids=ids)))
        for ids in _split([a.id for a in self.started if a.result is None or a.sent_on is None]):
            out.append(pb.WorkRequest(started=pb.Started(lease_ids=ids)))
        results: list[pb.Result] = []
        size = 0
        for a in self.results:
            if a.result is None:
                continue
            if results and size >= MAX_RESULT_BYTES:
                out.append(pb.WorkRequest(results=pb.Results(results=results)))
                results, size = [], 0
            results.append(a.result)
            size += a.result.ByteSize()
        if results:
            out.append(pb.WorkRequest(results=pb.Results(results=results)))
        self._heartbeat, self.draining = 0, False
        self.returned, self.lost, self.started, self.results = [], [], [], []
        return out

    # The stream

    async def open(self, hello: pb.Hello, metadata: Metadata) -> None:
        """Exchanges Hello and Welcome, after cancelled handlers have ended. Raises Refused. hello lacks the leases."""
        try:
            hello.live_lease_ids.extend(await self.table.build_hello(self))
            hello.session_epoch = self.epoch
            self.hello_at = clock()
            async with asyncio.timeout(self.limit):
                await self._exchange(hello, metadata)
        except BaseException as error:
            if self.epoch:
                self.table.undo_hello(self)
            if self.call is not None:
                self.call.cancel()
            if isinstance(error, TimeoutError):
                raise Refused(f"no Welcome within {self.limit:g} s") from None
            raise

    async def _exchange(self, hello: pb.Hello, metadata: Metadata) -> None:
        method = self.channel.stream_stream(
            WORK, request_serializer=pb.WorkRequest.SerializeToString, response_deserializer=pb.WorkResponse.FromString)
        self.call = method(metadata=metadata)
        try:
            await self.call.write(pb.WorkRequest(hello=hello))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            raise_if_cancelled()  # otherwise the stream has ended; reading returns the reason
        try:
            answer = await self.call.read()
        except grpc.aio.AioRpcError as error:
            raise_if_cancelled()
            raise Refused(f"{error.code().name}: {error.details()}", error.code()) from None
        if answer is grpc.aio.EOF or not answer.HasField("welcome"):
            raise Refused("the first message is no Welcome")
        welcome = answer.welcome
        self.began = self._received_at = clock()
        self.node = welcome.node
        self.lease_ttl = welcome.lease_ttl.ToNanoseconds() / 1e9 or 30.0
        self.session_ttl = max(0.0, welcome.session_ttl.ToNanoseconds() / 1e9)
        self.addresses = list(welcome.addresses)

    def start(self) -> None:
        """Begins to send and receive. The table has attached the session."""
        self._tasks = [asyncio.create_task(self._receive()), asyncio.create_task(self._send())]

    def close(self) -> None:
        """Sends the outbox, then ends the worker's side. It does not wait for the end, which comes soon."""
        if not self.closing and not self.ended:
            self.closing = True
            self.wake()
            asyncio.get_running_loop().call_later(CLOSE_TIMEOUT, self.cancel, CLOSED)

    def cancel(self, reason: str) -> None:
        """Ends the stream."""
        self.error = self.error or reason
        if not self.ended:
            self.call.cancel()

    async def _send(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._flush()
                if self.closing:
                    await self._flush()
                    await self.call.done_writing()
                    return
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            pass  # the stream has ended; the receiver has the reason
        except asyncio.CancelledError:
            pass
        finally:
            self._sending = False

    async def _flush(self) -> None:
        while True:
            messages = self._take_messages()
            self._sending = bool(messages)
            if not messages:
                self.table.check_idle()
                return
            for message in messages:
                await self.call.write(message)

    async def _receive(self) -> None:
        try:
            while True:
                message = await self.call.read()
                if message is grpc.aio.EOF:
                    self.clean = await self.call.code() == grpc.StatusCode.OK
                    self.error = self.error or "the node ended the stream"
                    break
                self._received_at = clock()
                self.table.handle(self, message)
        except grpc.aio.AioRpcError as error:
            self.error = self.error or f"{error.code().name}: {error.details()}"
        except asyncio.CancelledError:
            self.error = self.error or CLOSED
        except Exception as error:  # a fault of this package: another session starts afresh
            self.table.log.exception("failed to handle a message of node %s", self.node)
            self.error = self.error or str(error)
        finally:
            self._end()

    def _end(self) -> None:
        self._tasks[1].cancel()
        self._stop_flush_timer()
        self.call.cancel()
        self.ended_event.set()
        self._sending = False
        self.table.detach(self)
        self.news.put_nowait(("ended", []))
        closing = asyncio.ensure_future(self.channel.close())
        closing.add_done_callback(_ignore_result)


def _ignore_result(task: "asyncio.Future[None]") -> None:
    if not task.cancelled() and task.exception():
        logging.getLogger("fermata").debug("failed to close a channel: %s", task.exception())


def _split(ids: list[str]) -> list[list[str]]:
    return [ids[i:i + MAX_LEASE_IDS] for i in range(0, len(ids), MAX_LEASE_IDS)]
