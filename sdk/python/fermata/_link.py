"""Keeps one session open, and opens another when it ends (docs/workers.md, "Finding a node")."""

import asyncio
import dataclasses
import logging
import random
import time
from collections.abc import Callable
from typing import Any

import grpc

from fermata._routes import BACKOFF_BASE, Route, Routes
from fermata._session import WORK, Refused, Session
from fermata._table import Table
from fermata._transport import (
    TLS, Metadata, Token, endpoint_of, host_of, is_loopback, is_plain, open_channel, token_metadata)
from fermata.v1 import worker_service_pb2 as pb

STABLE_SESSION_AGE = 1.0  # how long a session must last not to count as a failure
RETURN_TIMEOUT = 5.0  # of the search for a node that takes back what the last node may not have received
MAX_DIALS = 4
DIAL_STAGGER = 0.25  # between the starts of two dials
FIRST_DIAL_TIMEOUT, OPEN_TIMEOUT = 2.0, 5.0  # it doubles with each failure, up to the second: the node may be far away
FIRST_REPORT_PAUSE, LAST_REPORT_PAUSE = 5.0, 60.0  # failures in a row are logged at once, and then ever more rarely

CHANNEL_OPTIONS = [
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_receive_message_length", 64 << 20),  # leases carry payloads
    ("grpc.http2.bdp_probe", 0),  # which sends a ping for nearly every message
    ("grpc.http2.lookahead_bytes", 1 << 20),
    ("grpc.min_reconnect_backoff_ms", int(OPEN_TIMEOUT * 1000)),
]

clock = time.monotonic


@dataclasses.dataclass
class Dial:
    """The result of a dial: a ready channel, or an error."""

    route: Route
    limit: float  # to answer a Hello
    channel: Any = None
    error: str = ""


class Link:
    """The connection of a worker to the cluster."""

    def __init__(self, table: Table, routes: Routes, hello: Callable[[], pb.Hello], configured: list[str],
                 tls: TLS | None, token: Token | None, log: "logging.LoggerAdapter[logging.Logger]") -> None:
        self.table, self.routes, self.hello, self.configured = table, routes, hello, configured
        self.tls, self.token, self.log = tls, token, log
        self.session: Session | None = None  # the latest one
        self.sessions: list[Session] = []  # that one, and those before it that have not ended
        self.failures = 0  # since the last stable session
        self.without_since = clock()  # when the last stable session ended
        self._log_at = self._log_pause = 0.0

    async def run(self) -> None:
        """Keeps a session open until it is cancelled. The last session is then still open: see finish."""
        session = await self._open_session(None)
        while True:
            kind, addresses = await session.news.get()
            if kind == "drain":
                self.log.info("node requested a new connection: node=%s addresses=%s", session.node, addresses)
                self.routes.prefer([a for a in addresses if is_plain(a)])
                self.without_since = clock()
            elif kind == "unresponsive":
                self.log.warning("node does not acknowledge heartbeats, connecting to another one: node=%s address=%s",
                                 session.node, session.address)
                self.without_since = clock()
            else:
                self._record_lost(session)
                await asyncio.sleep(random.uniform(BACKOFF_BASE / 2, BACKOFF_BASE))  # many may have lost this node
                session = await self._open_session(None)
                continue
            before = session
            session = await self._open_session(before)
            before.close()

    def _record_lost(self, session: Session) -> None:
        now = clock()
        self.failures += 1
        at_once = now - session.began < STABLE_SESSION_AGE
        if not at_once:
            self.failures, self.without_since = 1, now
        self.routes.mark_ended(session.address, now, at_once, now - self.without_since)
        self.log.warning("stream ended, reconnecting: node=%s address=%s error=%s", session.node, session.address,
                         session.error)

    async def finish(self) -> None:
        """Closes the last session. If the stream is cut before the node has confirmed that it read everything, the
        returned leases are sent to another node."""
        session = self.session
        if session is None:
            return
        for before in self.sessions:  # leases that came on them too late are returned on the last one
            if before is not session:
                before.close()
                await before.ended_event.wait()
        session.close()
        await session.ended_event.wait()
        try:
            async with asyncio.timeout(RETURN_TIMEOUT):
                while self.table.pending_returns:
                    await asyncio.sleep(random.uniform(BACKOFF_BASE / 2, BACKOFF_BASE))
                    session = await self._open_session(None)
                    session.close()
                    await session.ended_event.wait()
        except TimeoutError:
            self.log.warning("failed to return leases to a node: leases=%d", len(self.table.pending_returns))

    async def _open_session(self, before: Session | None) -> Session:
        """Dials several nodes concurrently, and sends a Hello on one ready connection at a time, because each takes the
        leases over, until a node welcomes the worker. While the session before is open, its address comes last."""
        dials = _DialSet(self)
        left = asyncio.create_task(before.ended_event.wait()) if before else None
        try:
            while True:
                if before and before.ended:
                    before = None
                again = dials.start_next(clock(), before.address if before else "")
                dialed = await dials.next_result(again, left if before else None)
                if dialed is None:
                    continue
                session = await self._try_hello(dialed)
                if session:
                    return session
                dials.next_start = 0.0
        finally:
            if left:
                left.cancel()
            await dials.cancel_all()

    async def _try_hello(self, dialed: Dial) -> Session | None:
        """Sends a Hello on a ready connection. Returns None if that fails."""
        route, text, status = dialed.route, dialed.error, None
        if not text:
            try:
                return await self._hello(dialed)
            except Refused as error:
                text, status = str(error), error.status
                # An answer of a node, not an error of the connection.
                if status not in (None, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNIMPLEMENTED,
                                  grpc.StatusCode.UNAVAILABLE):
                    route.answered = True
            except (OSError, ValueError) as error:  # of the token
                text = f"no token: {error}"
        refused = status in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
        self.failures += 1
        now = clock()
        self.routes.mark_failed(route, now, now - self.without_since, refused)
        self._report_failure(route.address, text, status)
        return None

    async def _hello(self, dialed: Dial) -> Session:
        session = Session(self.table, dialed.channel, dialed.route.address, dialed.limit)
        attached = False
        try:
            await session.open(self.hello(), await self._metadata(dialed.route))
            self.table.attach(session)
            attached = True
        finally:
            if not attached:
                await _close(dialed.channel)
        self.routes.mark_welcomed(dialed.route)
        self.routes.replace_advertised([a for a in session.addresses if is_plain(a)])
        self.session = session
        self.sessions = [*(s for s in self.sessions if not s.ended), session]
        session.start()
        self._log_at = self._log_pause = 0.0
        self.log.info("connected: node=%s address=%s epoch=%d", session.node, session.address, session.epoch)
        return session

    async def _metadata(self, route: Route) -> Metadata:
        """A token goes to a learnt address without TLS only if it and all configured addresses are on this host."""
        if self.token is None or not self.tls and not all(map(is_loopback, [route.address, *self.configured])):
            return []
        try:
            return await token_metadata(self.token)
        except Exception as error:  # of the function of the user
            raise ValueError(error) from error

    def _report_failure(self, address: str, text: str, status: grpc.StatusCode | None) -> None:
        self.table.link_error = f"{address}: {text}"
        now = clock()
        if now < self._log_at:
            return
        self._log_pause = min(max(2 * self._log_pause, FIRST_REPORT_PAUSE), LAST_REPORT_PAUSE)
        self._log_at = now + self._log_pause
        what = "failed to connect to a node"
        if status is grpc.StatusCode.UNAUTHENTICATED:
            what = ("node refused the worker's credential: replace its token or certificate, or add it to the nodes' "
                    "access file")
        elif status is grpc.StatusCode.PERMISSION_DENIED:
            what = "node refused the worker: its identity needs the role worker for this namespace and these queues"
        self.log.warning("%s: address=%s error=%s tries=%d", what, address, text, self.failures)

    async def dial(self, route: Route, limit: float) -> Dial:
        """Connects to an address and waits until the connection is ready for calls, including TLS and HTTP/2."""
        channel = None
        try:
            channel = open_channel(route.address, self.tls, self._verified_host(route), CHANNEL_OPTIONS)
            async with asyncio.timeout(limit):
                error = await _wait_ready(channel)
        except TimeoutError:
            error = f"no connection within {limit:g} s"
        except (OSError, ValueError, RuntimeError) as e:  # a file of TLS, for example
            error = str(e)
        except BaseException:
            await _close(channel)
            raise
        if error:
            await _close(channel)
            return Dial(route, limit, error=error)
        return Dial(route, limit, channel)

    def _verified_host(self, route: Route) -> str:
        """Returns the configured host that the certificate at a learnt address must name; "" for a configured address.
        After a failure it is the next one, because certificates may name only some of them."""
        if route.configured:
            return ""
        hosts = list(dict.fromkeys(host_of(endpoint_of(a)) for a in self.configured))
        return hosts[route.total_failures % len(hosts)]


class _DialSet:
    """The connections that are opened concurrently to find a node."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.next_start = 0.0
        self.tasks: set[asyncio.Task[Dial]] = set()

    def start_next(self, now: float, avoid: str) -> float | None:
        """Opens a connection to the best route if the next dial is due. Returns when to call it again; None: not before
        a dial has ended."""
        if len(self.tasks) >= MAX_DIALS:
            return None
        if now < self.next_start:
            return self.next_start
        route, at = self.link.routes.claim_next(now, avoid)
        if route is None:
            return at
        self.next_start = now + DIAL_STAGGER
        limit = min(FIRST_DIAL_TIMEOUT * 2 ** min(route.failures, 4), OPEN_TIMEOUT)
        self.tasks.add(asyncio.create_task(self.link.dial(route, limit)))
        return self.next_start

    async def next_result(self, until: float | None, left: "asyncio.Task[Any] | None") -> Dial | None:
        """Waits for the end of a dial. Returns None if the time has come, or the session before has ended."""
        timeout = None if until is None else max(0.0, until - clock())
        waited: set[asyncio.Task[Any]] = {*self.tasks, *([left] if left and not left.done() else [])}
        if not waited:
            await asyncio.sleep(0.05 if timeout is None else timeout)
            return None
        done, _ = await asyncio.wait(waited, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if task in self.tasks:
                self.tasks.discard(task)
                dialed: Dial = task.result()
                dialed.route.dialing = False
                if dialed.error:
                    self.next_start = 0.0
                return dialed
        return None

    async def cancel_all(self) -> None:
        for task in self.tasks:
            task.cancel()
        for dialed in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(dialed, Dial):
                await _close(dialed.channel)
        for route in self.link.routes.all:
            route.dialing = False


async def _close(channel: Any) -> None:
    if channel is not None:
        await channel.close()


async def _wait_ready(channel: Any) -> str:
    """Waits until a channel is ready, and returns an error, or "". grpc has the reason of a failed connection only for
    calls, so that this makes one, which fails at once."""
    while True:
        state = channel.get_state(try_to_connect=True)
        if state is grpc.ChannelConnectivity.READY:
            return ""
        if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            call = channel.stream_stream(WORK)()
            try:
                await call.read()
            except grpc.aio.AioRpcError as error:
                return str(error.details() or error.code().name)
            finally:
                call.cancel()
            return "the connection failed"
        if state is grpc.ChannelConnectivity.SHUTDOWN:
            return "the connection was closed"
        await channel.wait_for_state_change(state)
