"""Calls with failover over the addresses and retry."""

import asyncio
import importlib
import logging
import random
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc

from fermata import trace
from fermata._transport import TLS, Metadata, Token, is_loopback, open_channel, raise_if_cancelled, token_metadata
from fermata.errors import FermataError, error_of_call

FIRST_RETRY_DELAY, MAX_RETRY_DELAY = 0.1, 2.0  # between attempts, if the cluster asks for none
MAX_REQUESTED_DELAY = 10.0

CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", 16 << 20),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.max_reconnect_backoff_ms", 5000),
]
_SERVICES = ("job_service", "event_service", "access_service", "cluster_service", "backup_service")

log = logging.getLogger("fermata")


class _Method:
    """A method, found by its request."""

    def __init__(self, descriptor: Any) -> None:
        self.path = f"/{descriptor.containing_service.full_name}/{descriptor.name}"
        self.response = descriptor.output_type._concrete_class


def _methods() -> dict[str, _Method]:
    found = {}
    for name in _SERVICES:
        module = importlib.import_module(f"fermata.v1.{name}_pb2")
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                found[method.input_type.full_name] = _Method(method)
    return found


METHODS = _methods()


def delay_after(error: FermataError, attempt: int) -> float | None:
    """Returns when to try again after an error; None: it will not help. Aborted calls are retried only if the cluster
    asks for a delay: otherwise the caller must look at a concurrent change first."""
    asked = error.retry_delay
    if error.code == "UNAVAILABLE" and asked is None:
        pause: float = min(FIRST_RETRY_DELAY * 2 ** min(attempt - 1, 10), MAX_RETRY_DELAY)
        return pause / 2 + random.random() * pause / 2
    if asked is not None and error.code in ("UNAVAILABLE", "ABORTED", "RESOURCE_EXHAUSTED"):
        asked = min(asked, MAX_REQUESTED_DELAY)
        return asked + random.random() * asked / 4
    return None


class Caller:
    """Channels to the nodes. A call goes to one node; when that cannot be reached, to the next."""

    def __init__(self, addresses: list[str], tls: TLS | None, token: Token | None, attempts: int,
                 timeout: float | None) -> None:
        self.addresses = random.sample(addresses, len(addresses))
        self.tls, self.token, self.attempts, self.timeout = tls, token, attempts, timeout
        self.local = all(map(is_loopback, addresses))
        self._channels: dict[str, Any] = {}
        self._index = 0
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        channels, self._channels = self._channels, {}
        await asyncio.gather(*(c.close() for c in channels.values()))

    def _channel(self) -> tuple[str, Any]:
        if self._closed:
            raise RuntimeError("the client is closed")
        address = self.addresses[self._index % len(self.addresses)]
        if address not in self._channels:
            self._channels[address] = open_channel(address, self.tls, extra=CHANNEL_OPTIONS)
        return address, self._channels[address]

    def _leave(self, address: str) -> None:
        """Makes the next attempt go to another node, unless another call has done so already."""
        if self.addresses[self._index % len(self.addresses)] == address:
            self._index += 1

    async def _metadata(self) -> Metadata:
        token = await token_metadata(self.token) if self.token and (self.tls or self.local) else []
        return token + list(trace.headers().items())

    async def once(self, request: Any, timeout: float | None) -> Any:
        """Calls the method of a request, one time."""
        method = METHODS[request.DESCRIPTOR.full_name]
        address, channel = self._channel()
        stub = channel.unary_unary(method.path, request_serializer=type(request).SerializeToString,
                                   response_deserializer=method.response.FromString)
        try:
            return await stub(request, timeout=timeout, metadata=await self._metadata())
        except grpc.aio.AioRpcError as error:
            failure = error_of_call(error)
            if failure.code == "UNAVAILABLE":
                self._leave(address)
            raise failure from None

    async def call(self, request: Any, *, first: Any = None) -> Any:
        """Calls the method of a request until it succeeds, or fails for good. first replaces the request of the first
        attempt."""
        deadline = None if self.timeout is None else time.monotonic() + self.timeout
        attempt = 1
        while True:
            try:
                left = None if deadline is None else max(0.001, deadline - time.monotonic())
                return await self.once(first if first is not None and attempt == 1 else request, left)
            except FermataError as error:
                pause = delay_after(error, attempt)
                if pause is None or attempt >= self.attempts:
                    raise
                if deadline is not None and time.monotonic() + pause >= deadline:
                    raise
            await asyncio.sleep(pause)
            attempt += 1

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        """Yields the responses of a method with a stream, one time."""
        method = METHODS[request.DESCRIPTOR.full_name]
        address, channel = self._channel()
        stub = channel.unary_stream(method.path, request_serializer=type(request).SerializeToString,
                                    response_deserializer=method.response.FromString)
        call = stub(request, metadata=await self._metadata())
        try:
            while True:
                response = await call.read()
                if response is grpc.aio.EOF:
                    return
                yield response
        except grpc.aio.AioRpcError as error:
            raise_if_cancelled()
            failure = error_of_call(error)
            if failure.code == "UNAVAILABLE":
                self._leave(address)
            raise failure from None
        finally:
            call.cancel()


def names(parts: Sequence[str]) -> list[str]:
    """Returns several texts, of which one may be given alone."""
    return [parts] if isinstance(parts, str) else list(parts)
