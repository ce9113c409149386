"""Generated from proto/fermata/v1/backup_service.proto by go test ./sdk/python -update. DO NOT EDIT."""

from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping
from typing import Any as _Any
from typing import ClassVar as _ClassVar

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper

from fermata.v1 import job_pb2 as _job_pb2
from fermata.v1 import job_revision_pb2 as _job_revision_pb2
from fermata.v1 import job_service_pb2 as _job_service_pb2
from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2

DESCRIPTOR: _descriptor.FileDescriptor

class ExportJobsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    page_size: int
    page_token: str
    queue: str
    id_prefix: str
    @property
    def labels(self) -> _containers.ScalarMap[str, str]: ...
    def __init__(self, *, parent: str | None = ..., page_size: int | None = ..., page_token: str | None = ..., queue: str | None = ..., id_prefix: str | None = ..., labels: _Mapping[str, str] | None = ...) -> None: ...

class ExportJobsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def jobs(self) -> _containers.RepeatedCompositeFieldContainer[JobBackup]: ...
    next_page_token: str
    def __init__(self, *, jobs: _Iterable[JobBackup | _Mapping[str, _Any]] | None = ..., next_page_token: str | None = ...) -> None: ...

class RestoreJobsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Existing(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        EXISTING_UNSPECIFIED: RestoreJobsRequest.Existing
        EXISTING_FAIL: RestoreJobsRequest.Existing
        EXISTING_SKIP: RestoreJobsRequest.Existing
        EXISTING_REPLACE: RestoreJobsRequest.Existing
    EXISTING_UNSPECIFIED: RestoreJobsRequest.Existing
    EXISTING_FAIL: RestoreJobsRequest.Existing
    EXISTING_SKIP: RestoreJobsRequest.Existing
    EXISTING_REPLACE: RestoreJobsRequest.Existing
    parent: str
    @property
    def jobs(self) -> _containers.RepeatedCompositeFieldContainer[JobBackup]: ...
    existing: RestoreJobsRequest.Existing
    def __init__(self, *, parent: str | None = ..., jobs: _Iterable[JobBackup | _Mapping[str, _Any]] | None = ..., existing: RestoreJobsRequest.Existing | str | None = ...) -> None: ...

class RestoreJobsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Result(_message.Message):
        DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

        class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            OUTCOME_UNSPECIFIED: RestoreJobsResponse.Result.Outcome
            OUTCOME_CREATED: RestoreJobsResponse.Result.Outcome
            OUTCOME_UNCHANGED: RestoreJobsResponse.Result.Outcome
            OUTCOME_SKIPPED: RestoreJobsResponse.Result.Outcome
            OUTCOME_REPLACED: RestoreJobsResponse.Result.Outcome
        OUTCOME_UNSPECIFIED: RestoreJobsResponse.Result.Outcome
        OUTCOME_CREATED: RestoreJobsResponse.Result.Outcome
        OUTCOME_UNCHANGED: RestoreJobsResponse.Result.Outcome
        OUTCOME_SKIPPED: RestoreJobsResponse.Result.Outcome
        OUTCOME_REPLACED: RestoreJobsResponse.Result.Outcome
        outcome: RestoreJobsResponse.Result.Outcome
        code: int
        message: str
        @property
        def details(self) -> _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]: ...
        @property
        def warnings(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
        def __init__(self, *, outcome: RestoreJobsResponse.Result.Outcome | str | None = ..., code: int | None = ..., message: str | None = ..., details: _Iterable[_any_pb2.Any | _Mapping[str, _Any]] | None = ..., warnings: _Iterable[str] | None = ...) -> None: ...
    @property
    def results(self) -> _containers.RepeatedCompositeFieldContainer[RestoreJobsResponse.Result]: ...
    def __init__(self, *, results: _Iterable[RestoreJobsResponse.Result | _Mapping[str, _Any]] | None = ...) -> None: ...

class JobBackup(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def job(self) -> _job_pb2.Job: ...
    @property
    def checkpoint(self) -> Checkpoint: ...
    @property
    def revisions(self) -> _containers.RepeatedCompositeFieldContainer[_job_revision_pb2.JobRevision]: ...
    @property
    def warnings(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    def __init__(self, *, job: _job_pb2.Job | _Mapping[str, _Any] | None = ..., checkpoint: Checkpoint | _Mapping[str, _Any] | None = ..., revisions: _Iterable[_job_revision_pb2.JobRevision | _Mapping[str, _Any]] | None = ..., warnings: _Iterable[str] | None = ...) -> None: ...

class Checkpoint(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    generation: int
    revision: int
    @property
    def anchor_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def create_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def update_time(self) -> _timestamp_pb2.Timestamp: ...
    create_request_id: str
    update_request_id: str
    state: _job_pb2.JobStatus.State
    @property
    def expire_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def run(self) -> CheckpointRun: ...
    @property
    def concurrent_runs(self) -> _containers.RepeatedCompositeFieldContainer[CheckpointRun]: ...
    @property
    def pause_time(self) -> _timestamp_pb2.Timestamp: ...
    pause_note: str
    @property
    def hint(self) -> _job_pb2.Hint: ...
    @property
    def backfills(self) -> _containers.RepeatedCompositeFieldContainer[CheckpointBackfill]: ...
    @property
    def last_nominal_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def buffered_until_time(self) -> _timestamp_pb2.Timestamp: ...
    scheduled_runs: int
    waiting_request_id: str
    consecutive_failures: int
    last_outcome: _job_pb2.Outcome
    last_error: str
    @property
    def last_start_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def last_finish_time(self) -> _timestamp_pb2.Timestamp: ...
    runs_total: int
    succeeded_total: int
    dead_total: int
    lost_total: int
    timeout_total: int
    skipped_total: int
    @property
    def recent_request_ids(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    @property
    def dead_letters(self) -> _containers.RepeatedCompositeFieldContainer[_job_service_pb2.DeadLetter]: ...
    @property
    def earlier_update_request_ids(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    def __init__(self, *, generation: int | None = ..., revision: int | None = ..., anchor_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., create_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., update_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., create_request_id: str | None = ..., update_request_id: str | None = ..., state: _job_pb2.JobStatus.State | str | None = ..., expire_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., run: CheckpointRun | _Mapping[str, _Any] | None = ..., concurrent_runs: _Iterable[CheckpointRun | _Mapping[str, _Any]] | None = ..., pause_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., pause_note: str | None = ..., hint: _job_pb2.Hint | _Mapping[str, _Any] | None = ..., backfills: _Iterable[CheckpointBackfill | _Mapping[str, _Any]] | None = ..., last_nominal_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., buffered_until_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., scheduled_runs: int | None = ..., waiting_request_id: str | None = ..., consecutive_failures: int | None = ..., last_outcome: _job_pb2.Outcome | str | None = ..., last_error: str | None = ..., last_start_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., last_finish_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., runs_total: int | None = ..., succeeded_total: int | None = ..., dead_total: int | None = ..., lost_total: int | None = ..., timeout_total: int | None = ..., skipped_total: int | None = ..., recent_request_ids: _Iterable[str] | None = ..., dead_letters: _Iterable[_job_service_pb2.DeadLetter | _Mapping[str, _Any]] | None = ..., earlier_update_request_ids: _Iterable[str] | None = ...) -> None: ...

class CheckpointRun(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    trigger: _job_pb2.Run.Trigger
    request_id: str
    backoff: _job_service_pb2.RunJobRequest.Backoff
    generation: int
    @property
    def nominal_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def due_time(self) -> _timestamp_pb2.Timestamp: ...
    delay_source: _job_pb2.DelaySource
    attempts: int
    @property
    def first_start_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def hold(self) -> _job_pb2.Hold: ...
    recovery: bool
    paced: bool
    lost_attempts: int
    undelivered: int
    slot: int
    started: bool
    ignore_exclusions: bool
    @property
    def own_payload(self) -> _job_pb2.RunPayload: ...
    def __init__(self, *, trigger: _job_pb2.Run.Trigger | str | None = ..., request_id: str | None = ..., backoff: _job_service_pb2.RunJobRequest.Backoff | str | None = ..., generation: int | None = ..., nominal_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., due_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., delay_source: _job_pb2.DelaySource | str | None = ..., attempts: int | None = ..., first_start_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., hold: _job_pb2.Hold | _Mapping[str, _Any] | None = ..., recovery: bool | None = ..., paced: bool | None = ..., lost_attempts: int | None = ..., undelivered: int | None = ..., slot: int | None = ..., started: bool | None = ..., ignore_exclusions: bool | None = ..., own_payload: _job_pb2.RunPayload | _Mapping[str, _Any] | None = ...) -> None: ...

class CheckpointBackfill(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    id: str
    @property
    def next_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def end_time(self) -> _timestamp_pb2.Timestamp: ...
    concurrency: int
    @property
    def slots(self) -> _containers.RepeatedScalarFieldContainer[int]: ...
    def __init__(self, *, id: str | None = ..., next_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., end_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., concurrency: int | None = ..., slots: _Iterable[int] | None = ...) -> None: ...
