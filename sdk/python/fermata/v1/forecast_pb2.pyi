"""Generated from proto/fermata/v1/forecast.proto by go test ./sdk/python -update. DO NOT EDIT."""

from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping
from typing import Any as _Any
from typing import ClassVar as _ClassVar

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2

DESCRIPTOR: _descriptor.FileDescriptor

class ForecastLoadRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    queue: str
    @property
    def horizon(self) -> _duration_pb2.Duration: ...
    @property
    def resolution(self) -> _duration_pb2.Duration: ...
    herd_jobs: int
    def __init__(self, *, parent: str | None = ..., queue: str | None = ..., horizon: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., resolution: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., herd_jobs: int | None = ...) -> None: ...

class ForecastLoadResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def start_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def resolution(self) -> _duration_pb2.Duration: ...
    @property
    def queues(self) -> _containers.RepeatedCompositeFieldContainer[QueueLoad]: ...
    omitted_queues: int
    @property
    def herds(self) -> _containers.RepeatedCompositeFieldContainer[LoadHerd]: ...
    @property
    def missing_shards(self) -> _containers.RepeatedScalarFieldContainer[int]: ...
    @property
    def planned_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def definitions_time(self) -> _timestamp_pb2.Timestamp: ...
    def __init__(self, *, start_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., resolution: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., queues: _Iterable[QueueLoad | _Mapping[str, _Any]] | None = ..., omitted_queues: int | None = ..., herds: _Iterable[LoadHerd | _Mapping[str, _Any]] | None = ..., missing_shards: _Iterable[int] | None = ..., planned_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., definitions_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ...) -> None: ...

class QueueLoad(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    namespace: str
    queue: str
    @property
    def planned(self) -> _containers.RepeatedScalarFieldContainer[int]: ...
    @property
    def computed(self) -> _containers.RepeatedScalarFieldContainer[int]: ...
    @property
    def estimated(self) -> _containers.RepeatedScalarFieldContainer[int]: ...
    jobs_left_out: int
    def __init__(self, *, namespace: str | None = ..., queue: str | None = ..., planned: _Iterable[int] | None = ..., computed: _Iterable[int] | None = ..., estimated: _Iterable[int] | None = ..., jobs_left_out: int | None = ...) -> None: ...

class LoadHerd(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    namespace: str
    queue: str
    @property
    def time(self) -> _timestamp_pb2.Timestamp: ...
    whole_minute: bool
    jobs: int
    movable_jobs: int
    times: int
    schedule: str
    @property
    def job_ids(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    fix: str
    def __init__(self, *, namespace: str | None = ..., queue: str | None = ..., time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., whole_minute: bool | None = ..., jobs: int | None = ..., movable_jobs: int | None = ..., times: int | None = ..., schedule: str | None = ..., job_ids: _Iterable[str] | None = ..., fix: str | None = ...) -> None: ...
