"""A scripted node, and helpers."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from fermata._calls import METHODS
from fermata.v1 import worker_service_pb2 as pb

PATIENCE = 30.0  # for what comes at once on a machine that is idle


async def eventually(condition: Callable[[], Any]) -> Any:
    """Waits until a condition holds, and returns its value."""
    deadline = time.monotonic() + PATIENCE
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "the condition does not come to hold"
        await asyncio.sleep(0.005)


class Calls(grpc.GenericRpcHandler):
    """Answers unary calls and watches by functions, by the name of the method."""

    def __init__(self, **answers: Callable[..., Awaitable[Any]]) -> None:
        self.answers = answers
        self.requests: list[Any] = []
        self.metadata: list[dict[str, Any]] = []

    def service(self, details: Any) -> Any:
        name = details.method.rpartition("/")[2]
        if name not in self.answers:
            return None
        request = _message(name + "Request")

        async def unary(message: Any, context: Any) -> Any:
            self.requests.append(message)
            self.metadata.append({m.key: m.value for m in context.invocation_metadata()})
            return await self.answers[name](message, context)

        async def stream(message: Any, context: Any) -> Any:
            self.requests.append(message)
            async for answer in self.answers[name](message, context):
                yield answer

        kind = {"request_deserializer": request.FromString,
                "response_serializer": lambda message: message.SerializeToString()}
        if name == "WatchEvents":
            return grpc.unary_stream_rpc_method_handler(stream, **kind)
        return grpc.unary_unary_rpc_method_handler(unary, **kind)


def _message(name: str) -> Any:
    import fermata.v1

    message = getattr(fermata.v1, name)
    assert message.DESCRIPTOR.full_name in METHODS
    return message


class Stream:
    """The node's end of a stream of a worker."""

    def __init__(self, iterator: Any, context: Any) -> None:
        self._iterator, self.context = iterator, context
        self.answers: asyncio.Queue[pb.WorkResponse | None] = asyncio.Queue()
        self.messages: list[pb.WorkRequest] = []
        self.hello: pb.Hello | None = None
        self.closed = False  # by the worker
        self.lingers = False  # goes on when the worker has closed its side, until end is called

    def send(self, **message: Any) -> None:
        self.answers.put_nowait(pb.WorkResponse(**message))

    def lease(self, id: str, handler: str, **fields: Any) -> None:
        self.send(leases=pb.Leases(leases=[pb.Lease(
            lease_id=id, run=f"namespaces/default/jobs/{id}/runs/1", handler=handler, attempt=1, **fields)]))

    def end(self) -> None:
        self.answers.put_nowait(None)

    def was_notified_of_stop(self) -> bool:
        return any(m.HasField("draining") for m in self.messages)

    def results(self) -> dict[str, pb.Result]:
        return {r.lease_id: r for m in self.messages for r in m.results.results}

    def ids(self, kind: str) -> list[str]:
        return [i for m in self.messages for i in getattr(m, kind).lease_ids]

    async def result(self, id: str, acknowledge: bool = True) -> pb.Result:
        found = await eventually(lambda: self.results().get(id))
        if acknowledge:
            self.send(result_acks=pb.ResultAcks(acks=[pb.ResultAck(lease_id=id, status="STATUS_ACCEPTED")]))
        return found

    async def read(self) -> None:
        async for message in self._iterator:
            self.messages.append(message)
            if message.HasField("hello"):
                self.hello = message.hello
            if message.HasField("heartbeat"):
                self.send(heartbeat_ack=pb.HeartbeatAck(seq=message.heartbeat.seq, confirmed=True))
        self.closed = True
        if not self.lingers:
            self.end()


class Node(grpc.GenericRpcHandler):
    """A scripted node for one worker."""

    def __init__(self, session_ttl: float = 30.0, lease_ttl: float = 30.0) -> None:
        self.session_ttl, self.lease_ttl = session_ttl, lease_ttl
        self.streams: list[Stream] = []
        self.hellos = 0
        self.welcomes = asyncio.Event()  # a Hello is answered when it is set
        self.welcomes.set()
        self.server: Any = None
        self.address = ""

    def service(self, details: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(
            self._work, request_deserializer=pb.WorkRequest.FromString,
            response_serializer=pb.WorkResponse.SerializeToString)

    async def _work(self, iterator: Any, context: Any) -> Any:
        stream = Stream(iterator, context)
        reading = asyncio.create_task(stream.read())
        await eventually(lambda: stream.hello or reading.done())
        self.hellos += 1
        await self.welcomes.wait()
        welcome = pb.Welcome(node="scripted")
        welcome.lease_ttl.FromNanoseconds(int(self.lease_ttl * 1e9))
        welcome.session_ttl.FromNanoseconds(int(self.session_ttl * 1e9))
        yield pb.WorkResponse(welcome=welcome)
        self.streams.append(stream)
        while True:
            answer = await stream.answers.get()
            if answer is None:
                reading.cancel()
                return
            yield answer

    async def stream(self, number: int = 1) -> Stream:
        """Waits for the worker's n-th stream."""
        return await eventually(lambda: len(self.streams) >= number and self.streams[number - 1])

    async def __aenter__(self) -> "Node":
        self.server, self.address = await serve(self)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.server.stop(0)


_servers: list[Any] = []


async def serve(handler: Any, credentials: Any = None) -> tuple[Any, str]:
    """Serves at a free port, until run ends."""
    server = grpc.aio.server()
    _servers.append(server)
    server.add_generic_rpc_handlers((handler,))
    address = "127.0.0.1:0"
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    await server.start()
    return server, f"127.0.0.1:{port}"


def run(test: Any) -> None:
    """Runs a test, and stops all servers, also after a failure."""
    async def body() -> None:
        try:
            await test
        finally:
            while _servers:
                await _servers.pop().stop(0)

    asyncio.run(body())


class Running:
    """A worker that runs inside a block."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Any:
        self.task = asyncio.create_task(self.worker.run(signals=()))
        return self.worker

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        assert self.task
        self.worker.stop()
        if kind:
            self.worker.abort()
        try:
            async with asyncio.timeout(PATIENCE):
                await self.task
        except Exception:
            if not kind:
                raise
