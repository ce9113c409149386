"""Generated from proto/fermata/v1/cluster_service.proto by go test ./sdk/python -update. DO NOT EDIT."""

from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping
from typing import Any as _Any
from typing import ClassVar as _ClassVar

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper

from fermata.v1 import forecast_pb2 as _forecast_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2

DESCRIPTOR: _descriptor.FileDescriptor

class ListAuditRecordsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    page_size: int
    page_token: str
    resource: str
    identity: str
    @property
    def start_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def end_time(self) -> _timestamp_pb2.Timestamp: ...
    def __init__(self, *, page_size: int | None = ..., page_token: str | None = ..., resource: str | None = ..., identity: str | None = ..., start_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., end_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ...) -> None: ...

class ListAuditRecordsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def records(self) -> _containers.RepeatedCompositeFieldContainer[AuditRecord]: ...
    next_page_token: str
    def __init__(self, *, records: _Iterable[AuditRecord | _Mapping[str, _Any]] | None = ..., next_page_token: str | None = ...) -> None: ...

class AuditRecord(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    id: str
    @property
    def time(self) -> _timestamp_pb2.Timestamp: ...
    identity: str
    peer: str
    node: str
    method: str
    resource: str
    @property
    def names(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    @property
    def changed_fields(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    request_id: str
    code: int
    changed: int
    refused: int
    before_digest: bytes
    after_digest: bytes
    sequence: int
    chain_version: int
    hash: bytes
    previous_hash: bytes
    key_id: str
    signature: bytes
    def __init__(self, *, id: str | None = ..., time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., identity: str | None = ..., peer: str | None = ..., node: str | None = ..., method: str | None = ..., resource: str | None = ..., names: _Iterable[str] | None = ..., changed_fields: _Iterable[str] | None = ..., request_id: str | None = ..., code: int | None = ..., changed: int | None = ..., refused: int | None = ..., before_digest: bytes | None = ..., after_digest: bytes | None = ..., sequence: int | None = ..., chain_version: int | None = ..., hash: bytes | None = ..., previous_hash: bytes | None = ..., key_id: str | None = ..., signature: bytes | None = ...) -> None: ...

class ReadAuditRecordsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    after: str
    page_size: int
    def __init__(self, *, after: str | None = ..., page_size: int | None = ...) -> None: ...

class ReadAuditRecordsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def records(self) -> _containers.RepeatedCompositeFieldContainer[AuditRecord]: ...
    head_sequence: int
    head_hash: bytes
    more: bool
    def __init__(self, *, records: _Iterable[AuditRecord | _Mapping[str, _Any]] | None = ..., head_sequence: int | None = ..., head_hash: bytes | None = ..., more: bool | None = ...) -> None: ...

class AcknowledgeAuditRecordsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    export: str
    record_id: str
    sequence: int
    previous_record_id: str
    def __init__(self, *, export: str | None = ..., record_id: str | None = ..., sequence: int | None = ..., previous_record_id: str | None = ...) -> None: ...

class AuditExport(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    record_id: str
    sequence: int
    @property
    def update_time(self) -> _timestamp_pb2.Timestamp: ...
    waiting: int
    @property
    def waiting_since(self) -> _timestamp_pb2.Timestamp: ...
    identity: str
    def __init__(self, *, name: str | None = ..., record_id: str | None = ..., sequence: int | None = ..., update_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., waiting: int | None = ..., waiting_since: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., identity: str | None = ...) -> None: ...

class ListAuditExportsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    def __init__(self) -> None: ...

class ListAuditExportsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def exports(self) -> _containers.RepeatedCompositeFieldContainer[AuditExport]: ...
    def __init__(self, *, exports: _Iterable[AuditExport | _Mapping[str, _Any]] | None = ...) -> None: ...

class DeleteAuditExportRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    def __init__(self, *, name: str | None = ...) -> None: ...

class DeleteAuditExportResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    def __init__(self) -> None: ...

class ListNodesRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    def __init__(self) -> None: ...

class ListNodesResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def nodes(self) -> _containers.RepeatedCompositeFieldContainer[Node]: ...
    @property
    def lost_nodes(self) -> _containers.RepeatedCompositeFieldContainer[LostNode]: ...
    def __init__(self, *, nodes: _Iterable[Node | _Mapping[str, _Any]] | None = ..., lost_nodes: _Iterable[LostNode | _Mapping[str, _Any]] | None = ...) -> None: ...

class LostNode(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    grpc_address: str
    peer_address: str
    version: str
    @property
    def lost_time(self) -> _timestamp_pb2.Timestamp: ...
    def __init__(self, *, name: str | None = ..., grpc_address: str | None = ..., peer_address: str | None = ..., version: str | None = ..., lost_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ...) -> None: ...

class Node(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    grpc_address: str
    peer_address: str
    shards_held: int
    workers: int
    draining: bool
    version: str
    @property
    def start_time(self) -> _timestamp_pb2.Timestamp: ...
    unreachable: bool
    durability: str
    def __init__(self, *, name: str | None = ..., grpc_address: str | None = ..., peer_address: str | None = ..., shards_held: int | None = ..., workers: int | None = ..., draining: bool | None = ..., version: str | None = ..., start_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., unreachable: bool | None = ..., durability: str | None = ...) -> None: ...

class ListShardsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    def __init__(self) -> None: ...

class ListShardsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def shards(self) -> _containers.RepeatedCompositeFieldContainer[Shard]: ...
    def __init__(self, *, shards: _Iterable[Shard | _Mapping[str, _Any]] | None = ...) -> None: ...

class Shard(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    shard: int
    holder: str
    @property
    def lock_ttl(self) -> _duration_pb2.Duration: ...
    jobs: int
    @property
    def lag(self) -> _duration_pb2.Duration: ...
    def __init__(self, *, shard: int | None = ..., holder: str | None = ..., lock_ttl: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., jobs: int | None = ..., lag: _duration_pb2.Duration | _Mapping[str, _Any] | None = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    def __init__(self, *, parent: str | None = ...) -> None: ...

class ListQueuesResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def queues(self) -> _containers.RepeatedCompositeFieldContainer[Queue]: ...
    def __init__(self, *, queues: _Iterable[Queue | _Mapping[str, _Any]] | None = ...) -> None: ...

class Queue(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    namespace: str
    queue: str
    backlog: int
    running: int
    scheduled: int
    paused: int
    dead: int
    free_slots: int
    workers: int
    @property
    def oldest_overdue(self) -> _duration_pb2.Duration: ...
    @property
    def recent_runs(self) -> RecentRuns: ...
    @property
    def oldest_dead_letter(self) -> _duration_pb2.Duration: ...
    queue_paused: bool
    def __init__(self, *, namespace: str | None = ..., queue: str | None = ..., backlog: int | None = ..., running: int | None = ..., scheduled: int | None = ..., paused: int | None = ..., dead: int | None = ..., free_slots: int | None = ..., workers: int | None = ..., oldest_overdue: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., recent_runs: RecentRuns | _Mapping[str, _Any] | None = ..., oldest_dead_letter: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., queue_paused: bool | None = ...) -> None: ...

class RecentRuns(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    started: int
    succeeded: int
    failed: int
    breaches: int
    @property
    def max_lag(self) -> _duration_pb2.Duration: ...
    @property
    def span(self) -> _duration_pb2.Duration: ...
    def __init__(self, *, started: int | None = ..., succeeded: int | None = ..., failed: int | None = ..., breaches: int | None = ..., max_lag: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., span: _duration_pb2.Duration | _Mapping[str, _Any] | None = ...) -> None: ...

class ListNamespacesRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    def __init__(self) -> None: ...

class ListNamespacesResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def namespaces(self) -> _containers.RepeatedCompositeFieldContainer[Namespace]: ...
    def __init__(self, *, namespaces: _Iterable[Namespace | _Mapping[str, _Any]] | None = ...) -> None: ...

class Namespace(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    jobs: int
    running: int
    paused: int
    dead: int
    failing: int
    queues: int
    @property
    def jobs_quota(self) -> Quota: ...
    @property
    def job_bytes_quota(self) -> Quota: ...
    def __init__(self, *, name: str | None = ..., jobs: int | None = ..., running: int | None = ..., paused: int | None = ..., dead: int | None = ..., failing: int | None = ..., queues: int | None = ..., jobs_quota: Quota | _Mapping[str, _Any] | None = ..., job_bytes_quota: Quota | _Mapping[str, _Any] | None = ...) -> None: ...

class Quota(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    used: int
    limit: int
    def __init__(self, *, used: int | None = ..., limit: int | None = ...) -> None: ...

class ListWorkersRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    def __init__(self) -> None: ...

class ListWorkersResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def workers(self) -> _containers.RepeatedCompositeFieldContainer[Worker]: ...
    def __init__(self, *, workers: _Iterable[Worker | _Mapping[str, _Any]] | None = ...) -> None: ...

class Worker(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    worker_id: str
    node: str
    namespace: str
    @property
    def queues(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    slots: int
    running: int
    draining: bool
    @property
    def connect_time(self) -> _timestamp_pb2.Timestamp: ...
    version: str
    @property
    def labels(self) -> _containers.ScalarMap[str, str]: ...
    identity: str
    def __init__(self, *, worker_id: str | None = ..., node: str | None = ..., namespace: str | None = ..., queues: _Iterable[str] | None = ..., slots: int | None = ..., running: int | None = ..., draining: bool | None = ..., connect_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., version: str | None = ..., labels: _Mapping[str, str] | None = ..., identity: str | None = ...) -> None: ...

class CheckShardRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    shard: int
    repair: bool
    def __init__(self, *, shard: int | None = ..., repair: bool | None = ...) -> None: ...

class CheckShardResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def findings(self) -> _containers.RepeatedCompositeFieldContainer[Finding]: ...
    more: bool
    records: int
    def __init__(self, *, findings: _Iterable[Finding | _Mapping[str, _Any]] | None = ..., more: bool | None = ..., records: int | None = ...) -> None: ...

class Finding(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Fault(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FAULT_UNSPECIFIED: Finding.Fault
        FAULT_INDEX_REGION: Finding.Fault
        FAULT_INDEX_MISSING: Finding.Fault
        FAULT_INDEX_EXTRA: Finding.Fault
        FAULT_LANE_INDEX: Finding.Fault
        FAULT_HISTORY: Finding.Fault
        FAULT_NO_STATE: Finding.Fault
        FAULT_NO_DEFINITION: Finding.Fault
        FAULT_UNREADABLE: Finding.Fault
        FAULT_STATE: Finding.Fault
        FAULT_RUNS: Finding.Fault
        FAULT_OBJECTIVE: Finding.Fault
        FAULT_OVERSIZED: Finding.Fault
        FAULT_REVISIONS: Finding.Fault
        FAULT_UNSUCCESSFUL_RUNS: Finding.Fault
    FAULT_UNSPECIFIED: Finding.Fault
    FAULT_INDEX_REGION: Finding.Fault
    FAULT_INDEX_MISSING: Finding.Fault
    FAULT_INDEX_EXTRA: Finding.Fault
    FAULT_LANE_INDEX: Finding.Fault
    FAULT_HISTORY: Finding.Fault
    FAULT_NO_STATE: Finding.Fault
    FAULT_NO_DEFINITION: Finding.Fault
    FAULT_UNREADABLE: Finding.Fault
    FAULT_STATE: Finding.Fault
    FAULT_RUNS: Finding.Fault
    FAULT_OBJECTIVE: Finding.Fault
    FAULT_OVERSIZED: Finding.Fault
    FAULT_REVISIONS: Finding.Fault
    FAULT_UNSUCCESSFUL_RUNS: Finding.Fault
    fault: Finding.Fault
    record: str
    lane: str
    detail: str
    repairable: bool
    repaired: bool
    def __init__(self, *, fault: Finding.Fault | str | None = ..., record: str | None = ..., lane: str | None = ..., detail: str | None = ..., repairable: bool | None = ..., repaired: bool | None = ...) -> None: ...
