"""Generated from proto/fermata/v1/job_revision.proto by go test ./sdk/python -update. DO NOT EDIT."""

from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping
from typing import Any as _Any
from typing import ClassVar as _ClassVar

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper

from fermata.v1 import job_pb2 as _job_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2

DESCRIPTOR: _descriptor.FileDescriptor

class JobRevision(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    revision: int
    current: bool
    @property
    def create_time(self) -> _timestamp_pb2.Timestamp: ...
    identity: str
    method: str
    @property
    def fields(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    @property
    def job(self) -> _job_pb2.Job: ...
    def __init__(self, *, name: str | None = ..., revision: int | None = ..., current: bool | None = ..., create_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., identity: str | None = ..., method: str | None = ..., fields: _Iterable[str] | None = ..., job: _job_pb2.Job | _Mapping[str, _Any] | None = ...) -> None: ...

class ListJobRevisionsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    def __init__(self, *, parent: str | None = ...) -> None: ...

class ListJobRevisionsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def revisions(self) -> _containers.RepeatedCompositeFieldContainer[JobRevision]: ...
    def __init__(self, *, revisions: _Iterable[JobRevision | _Mapping[str, _Any]] | None = ...) -> None: ...

class GetJobRevisionRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    def __init__(self, *, name: str | None = ...) -> None: ...

class DiffJobRevisionsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    from_revision: int
    to_revision: int
    def __init__(self, *, name: str | None = ..., from_revision: int | None = ..., to_revision: int | None = ...) -> None: ...

class DiffJobRevisionsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def to(self) -> JobRevision: ...
    @property
    def fields(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    def __init__(self, *, to: JobRevision | _Mapping[str, _Any] | None = ..., fields: _Iterable[str] | None = ..., **kwargs: _Any) -> None: ...

class RestoreJobRevisionRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    etag: str
    request_id: str
    def __init__(self, *, name: str | None = ..., etag: str | None = ..., request_id: str | None = ...) -> None: ...
