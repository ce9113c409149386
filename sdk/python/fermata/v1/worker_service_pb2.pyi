"""Generated from proto/fermata/v1/worker_service.proto by go test ./sdk/python -update. DO NOT EDIT."""

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

class WorkRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def hello(self) -> Hello: ...
    @property
    def started(self) -> Started: ...
    @property
    def results(self) -> Results: ...
    @property
    def returned(self) -> Returned: ...
    @property
    def draining(self) -> Draining: ...
    @property
    def heartbeat(self) -> Heartbeat: ...
    @property
    def lost(self) -> Lost: ...
    def __init__(self, *, hello: Hello | _Mapping[str, _Any] | None = ..., started: Started | _Mapping[str, _Any] | None = ..., results: Results | _Mapping[str, _Any] | None = ..., returned: Returned | _Mapping[str, _Any] | None = ..., draining: Draining | _Mapping[str, _Any] | None = ..., heartbeat: Heartbeat | _Mapping[str, _Any] | None = ..., lost: Lost | _Mapping[str, _Any] | None = ...) -> None: ...

class WorkResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def welcome(self) -> Welcome: ...
    @property
    def leases(self) -> Leases: ...
    @property
    def result_acks(self) -> ResultAcks: ...
    @property
    def cancel(self) -> Cancel: ...
    @property
    def drain(self) -> Drain: ...
    @property
    def addresses(self) -> Addresses: ...
    @property
    def heartbeat_ack(self) -> HeartbeatAck: ...
    @property
    def relocate(self) -> Relocate: ...
    def __init__(self, *, welcome: Welcome | _Mapping[str, _Any] | None = ..., leases: Leases | _Mapping[str, _Any] | None = ..., result_acks: ResultAcks | _Mapping[str, _Any] | None = ..., cancel: Cancel | _Mapping[str, _Any] | None = ..., drain: Drain | _Mapping[str, _Any] | None = ..., addresses: Addresses | _Mapping[str, _Any] | None = ..., heartbeat_ack: HeartbeatAck | _Mapping[str, _Any] | None = ..., relocate: Relocate | _Mapping[str, _Any] | None = ...) -> None: ...

class Hello(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    worker_id: str
    namespace: str
    @property
    def queues(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    slots: int
    session_epoch: int
    @property
    def live_lease_ids(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    version: str
    @property
    def labels(self) -> _containers.ScalarMap[str, str]: ...
    prefetch: int
    supports_start_after: bool
    supports_heartbeats: bool
    def __init__(self, *, worker_id: str | None = ..., namespace: str | None = ..., queues: _Iterable[str] | None = ..., slots: int | None = ..., session_epoch: int | None = ..., live_lease_ids: _Iterable[str] | None = ..., version: str | None = ..., labels: _Mapping[str, str] | None = ..., prefetch: int | None = ..., supports_start_after: bool | None = ..., supports_heartbeats: bool | None = ...) -> None: ...

class Welcome(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    node: str
    @property
    def lease_ttl(self) -> _duration_pb2.Duration: ...
    @property
    def addresses(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    @property
    def session_ttl(self) -> _duration_pb2.Duration: ...
    def __init__(self, *, node: str | None = ..., lease_ttl: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., addresses: _Iterable[str] | None = ..., session_ttl: _duration_pb2.Duration | _Mapping[str, _Any] | None = ...) -> None: ...

class Leases(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def leases(self) -> _containers.RepeatedCompositeFieldContainer[Lease]: ...
    def __init__(self, *, leases: _Iterable[Lease | _Mapping[str, _Any]] | None = ...) -> None: ...

class Lease(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    lease_id: str
    run: str
    queue: str
    handler: str
    payload: bytes
    attempt: int
    max_attempts: int
    @property
    def nominal_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def due_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def timeout(self) -> _duration_pb2.Duration: ...
    token: int
    @property
    def labels(self) -> _containers.ScalarMap[str, str]: ...
    correlation_id: str
    @property
    def start_after(self) -> _duration_pb2.Duration: ...
    @property
    def trace_context(self) -> TraceContext: ...
    def __init__(self, *, lease_id: str | None = ..., run: str | None = ..., queue: str | None = ..., handler: str | None = ..., payload: bytes | None = ..., attempt: int | None = ..., max_attempts: int | None = ..., nominal_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., due_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., timeout: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., token: int | None = ..., labels: _Mapping[str, str] | None = ..., correlation_id: str | None = ..., start_after: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., trace_context: TraceContext | _Mapping[str, _Any] | None = ...) -> None: ...

class TraceContext(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    traceparent: str
    tracestate: str
    def __init__(self, *, traceparent: str | None = ..., tracestate: str | None = ...) -> None: ...

class Started(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def lease_ids(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    def __init__(self, *, lease_ids: _Iterable[str] | None = ...) -> None: ...

class Results(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def results(self) -> _containers.RepeatedCompositeFieldContainer[Result]: ...
    def __init__(self, *, results: _Iterable[Result | _Mapping[str, _Any]] | None = ...) -> None: ...

class Result(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OUTCOME_UNSPECIFIED: Result.Outcome
        OUTCOME_SUCCEEDED: Result.Outcome
        OUTCOME_FAILED: Result.Outcome
        OUTCOME_FAILED_PERMANENTLY: Result.Outcome
        OUTCOME_TIMED_OUT: Result.Outcome
        OUTCOME_CANCELLED: Result.Outcome
    OUTCOME_UNSPECIFIED: Result.Outcome
    OUTCOME_SUCCEEDED: Result.Outcome
    OUTCOME_FAILED: Result.Outcome
    OUTCOME_FAILED_PERMANENTLY: Result.Outcome
    OUTCOME_TIMED_OUT: Result.Outcome
    OUTCOME_CANCELLED: Result.Outcome
    lease_id: str
    outcome: Result.Outcome
    error: str
    output: bytes
    @property
    def retry_after(self) -> _duration_pb2.Duration: ...
    @property
    def duration(self) -> _duration_pb2.Duration: ...
    def __init__(self, *, lease_id: str | None = ..., outcome: Result.Outcome | str | None = ..., error: str | None = ..., output: bytes | None = ..., retry_after: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., duration: _duration_pb2.Duration | _Mapping[str, _Any] | None = ...) -> None: ...

class ResultAcks(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def acks(self) -> _containers.RepeatedCompositeFieldContainer[ResultAck]: ...
    def __init__(self, *, acks: _Iterable[ResultAck | _Mapping[str, _Any]] | None = ...) -> None: ...

class ResultAck(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSPECIFIED: ResultAck.Status
        STATUS_ACCEPTED: ResultAck.Status
        STATUS_DUPLICATE: ResultAck.Status
        STATUS_STALE: ResultAck.Status
        STATUS_NOT_FOUND: ResultAck.Status
    STATUS_UNSPECIFIED: ResultAck.Status
    STATUS_ACCEPTED: ResultAck.Status
    STATUS_DUPLICATE: ResultAck.Status
    STATUS_STALE: ResultAck.Status
    STATUS_NOT_FOUND: ResultAck.Status
    lease_id: str
    status: ResultAck.Status
    def __init__(self, *, lease_id: str | None = ..., status: ResultAck.Status | str | None = ...) -> None: ...

class Cancel(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: Cancel.Reason
        REASON_REQUESTED: Cancel.Reason
        REASON_LEASE_LOST: Cancel.Reason
        REASON_TIMED_OUT: Cancel.Reason
    REASON_UNSPECIFIED: Cancel.Reason
    REASON_REQUESTED: Cancel.Reason
    REASON_LEASE_LOST: Cancel.Reason
    REASON_TIMED_OUT: Cancel.Reason
    @property
    def lease_ids(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    reason: Cancel.Reason
    def __init__(self, *, lease_ids: _Iterable[str] | None = ..., reason: Cancel.Reason | str | None = ...) -> None: ...

class Returned(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def lease_ids(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    def __init__(self, *, lease_ids: _Iterable[str] | None = ...) -> None: ...

class Lost(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def lease_ids(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    def __init__(self, *, lease_ids: _Iterable[str] | None = ...) -> None: ...

class Draining(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    def __init__(self) -> None: ...

class Drain(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def addresses(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    def __init__(self, *, addresses: _Iterable[str] | None = ...) -> None: ...

class Relocate(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def addresses(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    def __init__(self, *, addresses: _Iterable[str] | None = ...) -> None: ...

class Addresses(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def addresses(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    def __init__(self, *, addresses: _Iterable[str] | None = ...) -> None: ...

class Heartbeat(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    seq: int
    def __init__(self, *, seq: int | None = ...) -> None: ...

class HeartbeatAck(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    seq: int
    confirmed: bool
    def __init__(self, *, seq: int | None = ..., confirmed: bool | None = ...) -> None: ...
