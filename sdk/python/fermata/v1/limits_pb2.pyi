"""Generated from proto/fermata/v1/limits.proto by go test ./sdk/python -update. DO NOT EDIT."""

from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping
from typing import Any as _Any
from typing import ClassVar as _ClassVar

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper

from google.protobuf import timestamp_pb2 as _timestamp_pb2

DESCRIPTOR: _descriptor.FileDescriptor

class ListTargetsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    page_size: int
    page_token: str
    def __init__(self, *, parent: str | None = ..., page_size: int | None = ..., page_token: str | None = ...) -> None: ...

class ListTargetsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def targets(self) -> _containers.RepeatedCompositeFieldContainer[Target]: ...
    next_page_token: str
    def __init__(self, *, targets: _Iterable[Target | _Mapping[str, _Any]] | None = ..., next_page_token: str | None = ...) -> None: ...

class Target(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: Target.State
        STATE_CLOSED: Target.State
        STATE_OPEN: Target.State
        STATE_HALF_OPEN: Target.State
        STATE_PROBING: Target.State
    STATE_UNSPECIFIED: Target.State
    STATE_CLOSED: Target.State
    STATE_OPEN: Target.State
    STATE_HALF_OPEN: Target.State
    STATE_PROBING: Target.State
    parent: str
    target: str
    state: Target.State
    failures: int
    @property
    def since_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def open_until_time(self) -> _timestamp_pb2.Timestamp: ...
    failed_job: str
    error: str
    probe_job: str
    @property
    def probe_until_time(self) -> _timestamp_pb2.Timestamp: ...
    jobs: int
    held_jobs: int
    def __init__(self, *, parent: str | None = ..., target: str | None = ..., state: Target.State | str | None = ..., failures: int | None = ..., since_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., open_until_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., failed_job: str | None = ..., error: str | None = ..., probe_job: str | None = ..., probe_until_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., jobs: int | None = ..., held_jobs: int | None = ...) -> None: ...

class ProbeTargetRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    target: str
    def __init__(self, *, parent: str | None = ..., target: str | None = ...) -> None: ...

class ProbeTargetResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def target(self) -> Target: ...
    job: str
    def __init__(self, *, target: Target | _Mapping[str, _Any] | None = ..., job: str | None = ...) -> None: ...

class ResetTargetRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    target: str
    page_token: str
    def __init__(self, *, parent: str | None = ..., target: str | None = ..., page_token: str | None = ...) -> None: ...

class ResetTargetResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def target(self) -> Target: ...
    released: int
    next_page_token: str
    def __init__(self, *, target: Target | _Mapping[str, _Any] | None = ..., released: int | None = ..., next_page_token: str | None = ...) -> None: ...

class ListLocksRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    page_size: int
    page_token: str
    def __init__(self, *, parent: str | None = ..., page_size: int | None = ..., page_token: str | None = ...) -> None: ...

class ListLocksResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def locks(self) -> _containers.RepeatedCompositeFieldContainer[LockStatus]: ...
    next_page_token: str
    def __init__(self, *, locks: _Iterable[LockStatus | _Mapping[str, _Any]] | None = ..., next_page_token: str | None = ...) -> None: ...

class LockStatus(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    key: str
    capacity: int
    held: int
    @property
    def holders(self) -> _containers.RepeatedCompositeFieldContainer[LockHolder]: ...
    waiting: int
    @property
    def waiters(self) -> _containers.RepeatedCompositeFieldContainer[LockWaiter]: ...
    jobs: int
    def __init__(self, *, parent: str | None = ..., key: str | None = ..., capacity: int | None = ..., held: int | None = ..., holders: _Iterable[LockHolder | _Mapping[str, _Any]] | None = ..., waiting: int | None = ..., waiters: _Iterable[LockWaiter | _Mapping[str, _Any]] | None = ..., jobs: int | None = ...) -> None: ...

class LockHolder(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    job: str
    run: str
    @property
    def since_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def lease_end_time(self) -> _timestamp_pb2.Timestamp: ...
    worker: str
    def __init__(self, *, job: str | None = ..., run: str | None = ..., since_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., lease_end_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., worker: str | None = ...) -> None: ...

class LockWaiter(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    job: str
    @property
    def since_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def reserved_until_time(self) -> _timestamp_pb2.Timestamp: ...
    def __init__(self, *, job: str | None = ..., since_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., reserved_until_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ...) -> None: ...
