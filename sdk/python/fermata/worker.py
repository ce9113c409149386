"""Workers: processes that run the handlers of jobs.

    worker = Worker(["127.0.0.1:7070"], queues=["mail"], slots=20)

    @worker.handle("send-digest")
    async def send_digest(task):
        await send(task.text(), fence=task.token)
        return "sent"  # kept with the run

    asyncio.run(worker.run())  # until SIGTERM or SIGINT, then finishes what runs
"""

import asyncio
import functools
import inspect
import logging
import os
import re
import signal as signals_module
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from fermata._link import Link
from fermata._routes import Routes
from fermata._table import Table
from fermata._task import AsyncHandler, Cause, Ended, Handler, Middleware, NotTrusted, Permanent, RetryAfter, Task
from fermata._threads import ThreadPool
from fermata._transport import TLS, Token, TokenFile, check_addresses, check_token_use, is_plain, tls_of
from fermata._values import Seconds, seconds_of
from fermata.v1 import worker_service_pb2 as pb

__all__ = ["Cause", "CutOff", "Ended", "Handler", "Middleware", "Permanent", "RetryAfter", "TLS", "Task", "TokenFile",
           "Worker"]

STOP_GRACE = 5.0  # for handlers that were cancelled because the worker stops
RESEND_INTERVAL = 1.0
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:~-]{0,127}")

_H = TypeVar("_H", bound=Callable[..., Any])


class CutOff(Exception):
    """Worker.run has ended before all handlers had returned. Their attempts will be leased again, uncounted."""

    def __init__(self, attempts: int) -> None:
        super().__init__(f"{attempts} attempts were cut off; they will be leased again")
        self.attempts = attempts


class Worker:
    """Runs handlers for the runs that nodes lease to it.

    addresses: host:port of nodes. One that can be reached is enough: the worker learns the others from it.
    queues: the queues to serve. slots: handlers at once.
    prefetch: leases that may wait here for a slot; only very short handlers need it. 0: none.
    drain_timeout: how long run waits for running handlers after stop.
    tls: a TLS, or True for the authorities of the system. token: a text, or a function, such as a TokenFile, that
    returns the token of each stream. Without TLS it is sent to addresses of this host only.
    """

    def __init__(
        self, addresses: Sequence[str] | str, queues: Sequence[str] = ("default",), slots: int = 16, *,
        namespace: str = "default", prefetch: int = 1000, id: str | None = None, version: str = "",
        labels: Mapping[str, str] | None = None, drain_timeout: Seconds = 30.0, tls: TLS | bool | None = None,
        token: Token | None = None, logger: logging.Logger | None = None,
    ) -> None:
        self.id = id or _new_id()
        self._addresses = check_addresses(addresses)
        self._tls, self._token = tls_of(tls), token
        check_token_use(self._addresses, self._tls, token)
        self._queues = [queues] if isinstance(queues, str) else list(queues)
        self._slots, self._namespace = slots, namespace
        self._prefetch, self._version, self._labels = max(0, prefetch), version, dict(labels or {})
        self._drain_timeout = seconds_of(drain_timeout)
        self._check()
        self._log = logging.LoggerAdapter(logger or logging.getLogger("fermata"), {"worker": self.id})
        self._handlers: dict[str, Handler] = {}
        self._middleware: list[Middleware] = []
        self._stopping, self._aborted = asyncio.Event(), asyncio.Event()
        self._started = False
        self._table: Table | None = None
        self._threads: ThreadPool | None = None

    def _check(self) -> None:
        if not _ID.fullmatch(self.id):
            raise ValueError(f"id {self.id!r}: want 1 to 128 of [A-Za-z0-9._:~-]")
        if not 1 <= len(self._queues) <= 64:
            raise ValueError(f"{len(self._queues)} queues: want 1 to 64")
        if not 1 <= self._slots <= 100_000:
            raise ValueError(f"{self._slots} slots: want 1 to 100000")
        if self._drain_timeout < 0:
            raise ValueError("drain_timeout is negative")

    # Handlers

    def use(self, middleware: Middleware) -> Middleware:
        """Adds a function around every handler, the first one outermost: to log, to measure, or to open what all of
        them need. Also a decorator.

            @worker.use
            async def measure(task, call):
                with timer(task.handler):
                    return await call(task)
        """
        if self._handlers:
            raise RuntimeError("use after handle: the handlers before it would be left out")
        self._middleware.append(middleware)
        return middleware

    @overload
    def handle(self, name: str) -> Callable[[_H], _H]: ...

    @overload
    def handle(self, name: str, handler: _H) -> _H: ...

    def handle(self, name: str, handler: Any = None) -> Any:
        """Registers the handler for jobs that name it; a decorator if handler is left out.

        An async function runs in the event loop and must not block it; it is cancelled when its attempt has to end.
        Any other function runs in a thread and looks at task.stopped, or calls task.wait or task.check."""
        if handler is None:
            return functools.partial(self.handle, name)
        if not name or not callable(handler):
            raise TypeError("handle needs a name and a function")
        if name in self._handlers:
            raise ValueError(f"handler {name!r} is registered twice")
        if self._started:
            raise RuntimeError("handle after run")
        self._handlers[name] = handler
        return handler

    def _wrap(self, handler: Handler) -> AsyncHandler:
        call: AsyncHandler = handler
        if not _is_async(handler):
            call = functools.partial(self._call_in_thread, handler)
        for middleware in reversed(self._middleware):
            call = functools.partial(_call_around, middleware, call)
        return call

    async def _call_in_thread(self, handler: Handler, task: Task) -> Any:
        """Calls a handler in a thread, and waits until it returns, however the attempt has ended: it keeps its slot."""
        assert self._table and self._threads
        attempt = task._attempt
        attempt.in_thread = True
        try:
            value = await self._threads.call(_call_while_trusted, self._table, handler, task)
        finally:
            attempt.in_thread = False
        return await value if inspect.isawaitable(value) else value

    # Life

    async def run(self, *, signals: Sequence[int] = (signals_module.SIGTERM, signals_module.SIGINT)) -> None:
        """Works until a signal comes or stop is called, then drains: takes no further leases, and waits up to
        drain_timeout for running handlers and for the acknowledgement of their results. After that, after a
        second SIGINT, or if it is cancelled itself, it ends the remaining handlers, gives them 5 s, and raises CutOff if
        any were cut off. It reconnects for as long as necessary. It may be called once."""
        if not self._handlers:
            raise RuntimeError("no handler is registered")
        if self._started:
            raise RuntimeError("run was called before")
        self._started = True
        installed = self._install(signals)
        main = asyncio.create_task(self._run())
        try:
            await asyncio.shield(main)
        except asyncio.CancelledError:
            self.abort()
            await asyncio.wait([main])
            if not main.cancelled():
                main.exception()
            raise
        finally:
            for number in installed:
                asyncio.get_running_loop().remove_signal_handler(number)

    def stop(self) -> None:
        """Makes run drain and return. It does not wait. Not for other threads, nor for handlers of signal.signal: use
        loop.call_soon_threadsafe there."""
        self._stopping.set()

    def abort(self) -> None:
        """Makes run end running handlers at once, and return within seconds."""
        self._aborted.set()

    def ready(self) -> bool:
        """Reports whether the worker has a stream to a node and takes leases."""
        return self._table is not None and self._table.current is not None and not self._table.draining

    def _install(self, signals: Sequence[int]) -> list[int]:
        installed = []
        for number in signals:
            try:
                asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)
                installed.append(number)
            except (NotImplementedError, ValueError, RuntimeError):  # Windows, or not the main thread
                pass
        return installed

    def _on_signal(self, number: int) -> None:
        if self._stopping.is_set() and number == signals_module.SIGINT:
            self.abort()
        self.stop()

    async def _run(self) -> None:
        self._threads = ThreadPool(asyncio.get_running_loop())
        routes = Routes(self._addresses)
        handlers = {name: self._wrap(handler) for name, handler in self._handlers.items()}
        table = self._table = Table(self._slots, handlers, self._log,
                                    lambda found: routes.replace_advertised([a for a in found if is_plain(a)]))
        link = Link(table, routes, self._hello, self._addresses, self._tls, self._token, self._log)
        linked = asyncio.create_task(self._keep_linked(link))
        resending = asyncio.create_task(_resend(table))
        try:
            await _first(self._stopping, self._aborted)
            cut = await self._drain(table)
        finally:
            for task in (linked, resending):
                task.cancel()
            await asyncio.gather(linked, resending, return_exceptions=True)
            await link.finish()
            table.close()
            self._threads.close()
        if cut:
            raise CutOff(cut)
        self._log.info("drained")

    async def _keep_linked(self, link: Link) -> None:
        while True:
            try:
                await link.run()
            except Exception:  # a fault of this package
                self._log.exception("failed to keep a connection")
                await asyncio.sleep(1)

    async def _drain(self, table: Table) -> int:
        """Waits for the handlers, and returns how many attempts were cut off."""
        self._log.info("draining: running=%d", table.begin_drain())
        if not await _first(table.idle, self._aborted, timeout=self._drain_timeout) or not table.idle.is_set():
            table.halt()
            await _first(table.idle, timeout=STOP_GRACE)
        cut = len(table.attempts) + table.cut_off
        if cut:
            self._log.warning("attempts were cut off; they will be leased again: attempts=%d", cut)
        return cut

    def _hello(self) -> pb.Hello:
        return pb.Hello(
            worker_id=self.id, namespace=self._namespace, queues=self._queues, slots=self._slots,
            version=self._version, labels=self._labels, prefetch=min(self._prefetch, 2**31 - 1),
            supports_start_after=True, supports_heartbeats=True)


def _call_while_trusted(table: Table, handler: Handler, task: Task) -> Any:
    """Runs in a thread. The process may have been suspended since the loop started the attempt."""
    if not table.trusts_leases() and not task.cancelled:
        raise NotTrusted("the lease is lost")
    task.check()
    return handler(task)


async def _call_around(middleware: Middleware, call: AsyncHandler, task: Task) -> Any:
    return await middleware(task, call)


def _is_async(handler: Any) -> bool:
    while isinstance(handler, functools.partial):
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))


async def _resend(table: Table) -> None:
    while True:
        await asyncio.sleep(RESEND_INTERVAL)
        table.resend_unacknowledged()


async def _first(*events: asyncio.Event, timeout: float | None = None) -> bool:
    """Waits for the first of several events. Returns False if the time has passed."""
    waits = [asyncio.create_task(e.wait()) for e in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for task in waits:
            task.cancel()


def _new_id() -> str:
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:80].lstrip(".-") or "worker"
    return f"{host}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
