"""Generated from proto/fermata/v1/bulk.proto by go test ./sdk/python -update. DO NOT EDIT."""

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

class BulkPauseJobsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    filter: str
    dry_run: bool
    confirmation: str
    request_id: str
    page_token: str
    note: str
    def __init__(self, *, parent: str | None = ..., filter: str | None = ..., dry_run: bool | None = ..., confirmation: str | None = ..., request_id: str | None = ..., page_token: str | None = ..., note: str | None = ...) -> None: ...

class BulkResumeJobsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    filter: str
    dry_run: bool
    confirmation: str
    request_id: str
    page_token: str
    pause_id: str
    catch_up: bool
    def __init__(self, *, parent: str | None = ..., filter: str | None = ..., dry_run: bool | None = ..., confirmation: str | None = ..., request_id: str | None = ..., page_token: str | None = ..., pause_id: str | None = ..., catch_up: bool | None = ...) -> None: ...

class BulkCancelRunsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    filter: str
    dry_run: bool
    confirmation: str
    request_id: str
    page_token: str
    def __init__(self, *, parent: str | None = ..., filter: str | None = ..., dry_run: bool | None = ..., confirmation: str | None = ..., request_id: str | None = ..., page_token: str | None = ...) -> None: ...

class BulkDeleteJobsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    filter: str
    dry_run: bool
    confirmation: str
    request_id: str
    page_token: str
    def __init__(self, *, parent: str | None = ..., filter: str | None = ..., dry_run: bool | None = ..., confirmation: str | None = ..., request_id: str | None = ..., page_token: str | None = ...) -> None: ...

class BulkRedriveDeadLettersRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    filter: str
    dry_run: bool
    confirmation: str
    request_id: str
    page_token: str
    ignore_exclusions: bool
    def __init__(self, *, parent: str | None = ..., filter: str | None = ..., dry_run: bool | None = ..., confirmation: str | None = ..., request_id: str | None = ..., page_token: str | None = ..., ignore_exclusions: bool | None = ...) -> None: ...

class BulkDiscardDeadLettersRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    filter: str
    dry_run: bool
    confirmation: str
    request_id: str
    page_token: str
    def __init__(self, *, parent: str | None = ..., filter: str | None = ..., dry_run: bool | None = ..., confirmation: str | None = ..., request_id: str | None = ..., page_token: str | None = ...) -> None: ...

class BulkChangeResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Refusal(_message.Message):
        DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
        reason: str
        message: str
        count: int
        @property
        def names(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
        def __init__(self, *, reason: str | None = ..., message: str | None = ..., count: int | None = ..., names: _Iterable[str] | None = ...) -> None: ...
    matched: int
    changed: int
    @property
    def refusals(self) -> _containers.RepeatedCompositeFieldContainer[BulkChangeResponse.Refusal]: ...
    @property
    def names(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    total_matched: int
    total_changed: int
    total_refused: int
    next_page_token: str
    confirmation: str
    @property
    def confirmation_expire_time(self) -> _timestamp_pb2.Timestamp: ...
    repeat: bool
    pause_id: str
    def __init__(self, *, matched: int | None = ..., changed: int | None = ..., refusals: _Iterable[BulkChangeResponse.Refusal | _Mapping[str, _Any]] | None = ..., names: _Iterable[str] | None = ..., total_matched: int | None = ..., total_changed: int | None = ..., total_refused: int | None = ..., next_page_token: str | None = ..., confirmation: str | None = ..., confirmation_expire_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., repeat: bool | None = ..., pause_id: str | None = ...) -> None: ...
