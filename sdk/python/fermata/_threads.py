"""Threads for handlers that are not async."""

import asyncio
import collections
import contextvars
import threading
from collections.abc import Callable
from typing import Any


class ThreadPool:
    """Runs functions in threads, each at once: it starts a thread when none is idle. The caller bounds how many run at
    once. If the system refuses a thread, the function waits for one of the others. The threads are daemons, so that a
    handler that never returns does not keep the process from its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._condition = threading.Condition()
        self._calls: collections.deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = collections.deque()
        self._idle = 0
        self._alive = 0
        self._closed = False
        self._count = 0

    def call(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Calls a function in a thread, with the context variables of the caller. Raises RuntimeError if there is no
        thread and none can be started."""
        future: asyncio.Future[Any] = self._loop.create_future()
        context = contextvars.copy_context()
        call = (lambda: context.run(function, *args), future)
        with self._condition:
            self._calls.append(call)
            if self._idle >= len(self._calls):
                self._condition.notify()
                return future
            self._count += 1
            self._alive += 1
            name = f"fermata-handler-{self._count}"
        try:
            threading.Thread(target=self._work, name=name, daemon=True).start()
        except RuntimeError:  # the system has no more
            if not self._will_be_taken(call):
                raise
        return future

    def _will_be_taken(self, call: tuple[Callable[[], Any], "asyncio.Future[Any]"]) -> bool:
        """Reports whether another thread takes the call, for which none could be started. Otherwise removes it."""
        with self._condition:
            self._alive -= 1
            taken = self._alive > 0 or call not in self._calls
            if not taken:
                self._calls.remove(call)
            return taken

    def close(self) -> None:
        """Ends idle threads, and the others when their functions have returned."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _work(self) -> None:
        while True:
            with self._condition:
                self._idle += 1
                while not self._calls and not self._closed:
                    self._condition.wait()
                self._idle -= 1
                if not self._calls:
                    self._alive -= 1
                    return
                function, future = self._calls.popleft()
            value, error = None, None
            try:
                value = function()
            except BaseException as e:  # SystemExit too: it ends the attempt, not the thread
                error = e
            del function
            try:
                self._loop.call_soon_threadsafe(_resolve, future, value, error)
            except RuntimeError:  # the loop is closed: nobody waits
                return
            del future, value, error


def _resolve(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, StopIteration):  # which a future refuses
        future.set_exception(RuntimeError(f"the handler raised StopIteration: {error}"))
    else:
        future.set_exception(error)
