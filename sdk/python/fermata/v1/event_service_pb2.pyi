"""Generated from proto/fermata/v1/event_service.proto by go test ./sdk/python -update. DO NOT EDIT."""

from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping
from typing import Any as _Any
from typing import ClassVar as _ClassVar

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper

from fermata.v1 import job_pb2 as _job_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2

DESCRIPTOR: _descriptor.FileDescriptor

class WatchEventsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    @property
    def queues(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    @property
    def job_ids(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    @property
    def kinds(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    @property
    def labels(self) -> _containers.ScalarMap[str, str]: ...
    resume_token: str
    @property
    def start_time(self) -> _timestamp_pb2.Timestamp: ...
    stop_at_end: bool
    def __init__(self, *, parent: str | None = ..., queues: _Iterable[str] | None = ..., job_ids: _Iterable[str] | None = ..., kinds: _Iterable[str] | None = ..., labels: _Mapping[str, str] | None = ..., resume_token: str | None = ..., start_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., stop_at_end: bool | None = ...) -> None: ...

class WatchEventsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def events(self) -> _containers.RepeatedCompositeFieldContainer[Event]: ...
    resume_token: str
    def __init__(self, *, events: _Iterable[Event | _Mapping[str, _Any]] | None = ..., resume_token: str | None = ...) -> None: ...

class Event(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    id: str
    kind: str
    @property
    def time(self) -> _timestamp_pb2.Timestamp: ...
    job: str
    queue: str
    @property
    def labels(self) -> _containers.ScalarMap[str, str]: ...
    run_id: str
    correlation_id: str
    trigger: _job_pb2.Run.Trigger
    attempt: int
    @property
    def due_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def start_time(self) -> _timestamp_pb2.Timestamp: ...
    consecutive_failures: int
    count: int
    reason: str
    error: str
    worker: str
    node: str
    shard: int
    def __init__(self, *, id: str | None = ..., kind: str | None = ..., time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., job: str | None = ..., queue: str | None = ..., labels: _Mapping[str, str] | None = ..., run_id: str | None = ..., correlation_id: str | None = ..., trigger: _job_pb2.Run.Trigger | str | None = ..., attempt: int | None = ..., due_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., start_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., consecutive_failures: int | None = ..., count: int | None = ..., reason: str | None = ..., error: str | None = ..., worker: str | None = ..., node: str | None = ..., shard: int | None = ...) -> None: ...

class ListWebhooksRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    def __init__(self) -> None: ...

class ListWebhooksResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def webhooks(self) -> _containers.RepeatedCompositeFieldContainer[Webhook]: ...
    def __init__(self, *, webhooks: _Iterable[Webhook | _Mapping[str, _Any]] | None = ...) -> None: ...

class Webhook(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    url: str
    behind_shards: int
    @property
    def lag(self) -> _duration_pb2.Duration: ...
    failing_shards: int
    undelivered: int
    def __init__(self, *, name: str | None = ..., url: str | None = ..., behind_shards: int | None = ..., lag: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., failing_shards: int | None = ..., undelivered: int | None = ...) -> None: ...

class ListUndeliveredEventsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    webhook: str
    page_size: int
    def __init__(self, *, webhook: str | None = ..., page_size: int | None = ...) -> None: ...

class ListUndeliveredEventsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def events(self) -> _containers.RepeatedCompositeFieldContainer[UndeliveredEvent]: ...
    incomplete: bool
    def __init__(self, *, events: _Iterable[UndeliveredEvent | _Mapping[str, _Any]] | None = ..., incomplete: bool | None = ...) -> None: ...

class UndeliveredEvent(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    webhook: str
    @property
    def event(self) -> Event: ...
    attempts: int
    @property
    def time(self) -> _timestamp_pb2.Timestamp: ...
    reason: str
    def __init__(self, *, webhook: str | None = ..., event: Event | _Mapping[str, _Any] | None = ..., attempts: int | None = ..., time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., reason: str | None = ...) -> None: ...

class RedeliverEventsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    webhook: str
    event_id: str
    drop_refused: bool
    def __init__(self, *, webhook: str | None = ..., event_id: str | None = ..., drop_refused: bool | None = ...) -> None: ...

class RedeliverEventsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    delivered: int
    failure: str
    refused: int
    refusal: str
    remaining: int
    def __init__(self, *, delivered: int | None = ..., failure: str | None = ..., refused: int | None = ..., refusal: str | None = ..., remaining: int | None = ...) -> None: ...
