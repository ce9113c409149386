"""Generated from proto/fermata/v1/job_service.proto by go test ./sdk/python -update. DO NOT EDIT."""

from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping
from typing import Any as _Any
from typing import ClassVar as _ClassVar

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper

from fermata.v1 import bulk_pb2 as _bulk_pb2
from fermata.v1 import job_pb2 as _job_pb2
from fermata.v1 import job_revision_pb2 as _job_revision_pb2
from fermata.v1 import limits_pb2 as _limits_pb2
from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2

DESCRIPTOR: _descriptor.FileDescriptor

class ListPresetsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    def __init__(self) -> None: ...

class ListPresetsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def presets(self) -> _containers.RepeatedCompositeFieldContainer[Preset]: ...
    def __init__(self, *, presets: _Iterable[Preset | _Mapping[str, _Any]] | None = ...) -> None: ...

class Preset(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    description: str
    @property
    def retry_policy(self) -> _job_pb2.RetryPolicy: ...
    @property
    def backoff_policy(self) -> _job_pb2.BackoffPolicy: ...
    @property
    def waits(self) -> _containers.RepeatedCompositeFieldContainer[_duration_pb2.Duration]: ...
    custom: bool
    def __init__(self, *, name: str | None = ..., description: str | None = ..., retry_policy: _job_pb2.RetryPolicy | _Mapping[str, _Any] | None = ..., backoff_policy: _job_pb2.BackoffPolicy | _Mapping[str, _Any] | None = ..., waits: _Iterable[_duration_pb2.Duration | _Mapping[str, _Any]] | None = ..., custom: bool | None = ...) -> None: ...

class HintJobRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    @property
    def hint(self) -> _job_pb2.Hint: ...
    def __init__(self, *, name: str | None = ..., hint: _job_pb2.Hint | _Mapping[str, _Any] | None = ...) -> None: ...

class TopJobsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: TopJobsRequest.Kind
        KIND_LATE: TopJobsRequest.Kind
        KIND_FAILING: TopJobsRequest.Kind
    KIND_UNSPECIFIED: TopJobsRequest.Kind
    KIND_LATE: TopJobsRequest.Kind
    KIND_FAILING: TopJobsRequest.Kind
    parent: str
    kind: TopJobsRequest.Kind
    limit: int
    def __init__(self, *, parent: str | None = ..., kind: TopJobsRequest.Kind | str | None = ..., limit: int | None = ...) -> None: ...

class TopJobsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def jobs(self) -> _containers.RepeatedCompositeFieldContainer[TopJob]: ...
    incomplete: bool
    def __init__(self, *, jobs: _Iterable[TopJob | _Mapping[str, _Any]] | None = ..., incomplete: bool | None = ...) -> None: ...

class TopJob(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def job(self) -> _job_pb2.Job: ...
    @property
    def lag(self) -> _duration_pb2.Duration: ...
    waiting: bool
    def __init__(self, *, job: _job_pb2.Job | _Mapping[str, _Any] | None = ..., lag: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., waiting: bool | None = ...) -> None: ...

class ExplainJobRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    def __init__(self, *, name: str | None = ...) -> None: ...

class ExplainJobResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    summary: str
    @property
    def reasons(self) -> _containers.RepeatedCompositeFieldContainer[Reason]: ...
    @property
    def job(self) -> _job_pb2.Job: ...
    @property
    def runs(self) -> _containers.RepeatedCompositeFieldContainer[_job_pb2.Run]: ...
    def __init__(self, *, summary: str | None = ..., reasons: _Iterable[Reason | _Mapping[str, _Any]] | None = ..., job: _job_pb2.Job | _Mapping[str, _Any] | None = ..., runs: _Iterable[_job_pb2.Run | _Mapping[str, _Any]] | None = ...) -> None: ...

class Reason(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: Reason.Kind
        KIND_NOT_DUE: Reason.Kind
        KIND_RETRY: Reason.Kind
        KIND_BACKOFF: Reason.Kind
        KIND_HINT: Reason.Kind
        KIND_PAUSED: Reason.Kind
        KIND_RUNNING: Reason.Kind
        KIND_OVERLAP: Reason.Kind
        KIND_LOCK: Reason.Kind
        KIND_TARGET: Reason.Kind
        KIND_PACE: Reason.Kind
        KIND_QUEUE_CONCURRENCY: Reason.Kind
        KIND_QUEUE_RATE: Reason.Kind
        KIND_NO_WORKER: Reason.Kind
        KIND_NO_SLOT: Reason.Kind
        KIND_NO_HOLDER: Reason.Kind
        KIND_DEAD: Reason.Kind
        KIND_DONE: Reason.Kind
        KIND_SCHEDULE: Reason.Kind
        KIND_PAYLOAD: Reason.Kind
        KIND_QUEUE_PAUSED: Reason.Kind
        KIND_EXCLUSION: Reason.Kind
        KIND_OVERSIZED_SHARD: Reason.Kind
    KIND_UNSPECIFIED: Reason.Kind
    KIND_NOT_DUE: Reason.Kind
    KIND_RETRY: Reason.Kind
    KIND_BACKOFF: Reason.Kind
    KIND_HINT: Reason.Kind
    KIND_PAUSED: Reason.Kind
    KIND_RUNNING: Reason.Kind
    KIND_OVERLAP: Reason.Kind
    KIND_LOCK: Reason.Kind
    KIND_TARGET: Reason.Kind
    KIND_PACE: Reason.Kind
    KIND_QUEUE_CONCURRENCY: Reason.Kind
    KIND_QUEUE_RATE: Reason.Kind
    KIND_NO_WORKER: Reason.Kind
    KIND_NO_SLOT: Reason.Kind
    KIND_NO_HOLDER: Reason.Kind
    KIND_DEAD: Reason.Kind
    KIND_DONE: Reason.Kind
    KIND_SCHEDULE: Reason.Kind
    KIND_PAYLOAD: Reason.Kind
    KIND_QUEUE_PAUSED: Reason.Kind
    KIND_EXCLUSION: Reason.Kind
    KIND_OVERSIZED_SHARD: Reason.Kind
    kind: Reason.Kind
    message: str
    @property
    def since_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def until_time(self) -> _timestamp_pb2.Timestamp: ...
    key: str
    blocked_by: str
    def __init__(self, *, kind: Reason.Kind | str | None = ..., message: str | None = ..., since_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., until_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., key: str | None = ..., blocked_by: str | None = ...) -> None: ...

class BackfillJobRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    @property
    def start_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def end_time(self) -> _timestamp_pb2.Timestamp: ...
    overlap_policy: _job_pb2.OverlapPolicy
    request_id: str
    def __init__(self, *, name: str | None = ..., start_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., end_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., overlap_policy: _job_pb2.OverlapPolicy | str | None = ..., request_id: str | None = ...) -> None: ...

class CancelBackfillRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    backfill_id: str
    def __init__(self, *, name: str | None = ..., backfill_id: str | None = ...) -> None: ...

class ListDeadLettersRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    page_size: int
    page_token: str
    queue: str
    id_prefix: str
    @property
    def labels(self) -> _containers.ScalarMap[str, str]: ...
    def __init__(self, *, parent: str | None = ..., page_size: int | None = ..., page_token: str | None = ..., queue: str | None = ..., id_prefix: str | None = ..., labels: _Mapping[str, str] | None = ...) -> None: ...

class ListDeadLettersResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def dead_letters(self) -> _containers.RepeatedCompositeFieldContainer[DeadLetter]: ...
    next_page_token: str
    def __init__(self, *, dead_letters: _Iterable[DeadLetter | _Mapping[str, _Any]] | None = ..., next_page_token: str | None = ...) -> None: ...

class DeadLetter(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    @property
    def run(self) -> _job_pb2.Run: ...
    queue: str
    @property
    def expire_time(self) -> _timestamp_pb2.Timestamp: ...
    def __init__(self, *, name: str | None = ..., run: _job_pb2.Run | _Mapping[str, _Any] | None = ..., queue: str | None = ..., expire_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ...) -> None: ...

class RedriveDeadLettersRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    @property
    def names(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    queue: str
    id_prefix: str
    @property
    def labels(self) -> _containers.ScalarMap[str, str]: ...
    page_token: str
    dry_run: bool
    ignore_exclusions: bool
    def __init__(self, *, parent: str | None = ..., names: _Iterable[str] | None = ..., queue: str | None = ..., id_prefix: str | None = ..., labels: _Mapping[str, str] | None = ..., page_token: str | None = ..., dry_run: bool | None = ..., ignore_exclusions: bool | None = ...) -> None: ...

class RedriveDeadLettersResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    redriven: int
    refused: int
    next_page_token: str
    def __init__(self, *, redriven: int | None = ..., refused: int | None = ..., next_page_token: str | None = ...) -> None: ...

class DiscardDeadLetterRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    run_id: str
    def __init__(self, *, name: str | None = ..., run_id: str | None = ...) -> None: ...

class PauseJobsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    queue: str
    id_prefix: str
    @property
    def labels(self) -> _containers.ScalarMap[str, str]: ...
    note: str
    page_token: str
    def __init__(self, *, parent: str | None = ..., queue: str | None = ..., id_prefix: str | None = ..., labels: _Mapping[str, str] | None = ..., note: str | None = ..., page_token: str | None = ...) -> None: ...

class PauseJobsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    paused: int
    next_page_token: str
    def __init__(self, *, paused: int | None = ..., next_page_token: str | None = ...) -> None: ...

class ResumeJobsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    queue: str
    id_prefix: str
    @property
    def labels(self) -> _containers.ScalarMap[str, str]: ...
    catch_up: bool
    page_token: str
    note: str
    def __init__(self, *, parent: str | None = ..., queue: str | None = ..., id_prefix: str | None = ..., labels: _Mapping[str, str] | None = ..., catch_up: bool | None = ..., page_token: str | None = ..., note: str | None = ...) -> None: ...

class ResumeJobsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    resumed: int
    next_page_token: str
    def __init__(self, *, resumed: int | None = ..., next_page_token: str | None = ...) -> None: ...

class QueueSettings(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    max_concurrency: int
    rate: float
    burst: int
    recovery_rate: float
    paused: bool
    @property
    def pause_until_time(self) -> _timestamp_pb2.Timestamp: ...
    def __init__(self, *, name: str | None = ..., max_concurrency: int | None = ..., rate: float | None = ..., burst: int | None = ..., recovery_rate: float | None = ..., paused: bool | None = ..., pause_until_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ...) -> None: ...

class PauseQueueRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    @property
    def until_time(self) -> _timestamp_pb2.Timestamp: ...
    def __init__(self, *, name: str | None = ..., until_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ...) -> None: ...

class GetQueueSettingsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    def __init__(self, *, name: str | None = ...) -> None: ...

class UpdateQueueSettingsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def settings(self) -> QueueSettings: ...
    @property
    def expected(self) -> QueueSettings: ...
    def __init__(self, *, settings: QueueSettings | _Mapping[str, _Any] | None = ..., expected: QueueSettings | _Mapping[str, _Any] | None = ...) -> None: ...

class CreateJobRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    job_id: str
    @property
    def job(self) -> _job_pb2.Job: ...
    request_id: str
    def __init__(self, *, parent: str | None = ..., job_id: str | None = ..., job: _job_pb2.Job | _Mapping[str, _Any] | None = ..., request_id: str | None = ...) -> None: ...

class BatchCreateJobsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    @property
    def requests(self) -> _containers.RepeatedCompositeFieldContainer[CreateJobRequest]: ...
    names_only: bool
    compact: bool
    def __init__(self, *, parent: str | None = ..., requests: _Iterable[CreateJobRequest | _Mapping[str, _Any]] | None = ..., names_only: bool | None = ..., compact: bool | None = ...) -> None: ...

class BatchCreateJobsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Result(_message.Message):
        DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
        @property
        def job(self) -> _job_pb2.Job: ...
        code: int
        message: str
        @property
        def details(self) -> _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]: ...
        shared: int
        def __init__(self, *, job: _job_pb2.Job | _Mapping[str, _Any] | None = ..., code: int | None = ..., message: str | None = ..., details: _Iterable[_any_pb2.Any | _Mapping[str, _Any]] | None = ..., shared: int | None = ...) -> None: ...
    @property
    def results(self) -> _containers.RepeatedCompositeFieldContainer[BatchCreateJobsResponse.Result]: ...
    @property
    def shared(self) -> _containers.RepeatedCompositeFieldContainer[_job_pb2.Job]: ...
    def __init__(self, *, results: _Iterable[BatchCreateJobsResponse.Result | _Mapping[str, _Any]] | None = ..., shared: _Iterable[_job_pb2.Job | _Mapping[str, _Any]] | None = ...) -> None: ...

class GetJobRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    def __init__(self, *, name: str | None = ...) -> None: ...

class ListJobsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    page_size: int
    page_token: str
    queue: str
    state: _job_pb2.JobStatus.State
    id_prefix: str
    @property
    def labels(self) -> _containers.ScalarMap[str, str]: ...
    min_consecutive_failures: int
    filter: str
    order_by: str
    recent_runs: int
    def __init__(self, *, parent: str | None = ..., page_size: int | None = ..., page_token: str | None = ..., queue: str | None = ..., state: _job_pb2.JobStatus.State | str | None = ..., id_prefix: str | None = ..., labels: _Mapping[str, str] | None = ..., min_consecutive_failures: int | None = ..., filter: str | None = ..., order_by: str | None = ..., recent_runs: int | None = ...) -> None: ...

class ListJobsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def jobs(self) -> _containers.RepeatedCompositeFieldContainer[_job_pb2.Job]: ...
    next_page_token: str
    incomplete: bool
    def __init__(self, *, jobs: _Iterable[_job_pb2.Job | _Mapping[str, _Any]] | None = ..., next_page_token: str | None = ..., incomplete: bool | None = ...) -> None: ...

class ListUpcomingJobsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    page_size: int
    page_token: str
    filter: str
    exclude_held: bool
    def __init__(self, *, parent: str | None = ..., page_size: int | None = ..., page_token: str | None = ..., filter: str | None = ..., exclude_held: bool | None = ...) -> None: ...

class ListUpcomingJobsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def runs(self) -> _containers.RepeatedCompositeFieldContainer[UpcomingRun]: ...
    next_page_token: str
    incomplete: bool
    def __init__(self, *, runs: _Iterable[UpcomingRun | _Mapping[str, _Any]] | None = ..., next_page_token: str | None = ..., incomplete: bool | None = ...) -> None: ...

class UpcomingRun(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    @property
    def due_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def nominal_time(self) -> _timestamp_pb2.Timestamp: ...
    time_zone: str
    trigger: _job_pb2.Run.Trigger
    queue: str
    handler: str
    attempt: int
    delay_source: _job_pb2.DelaySource
    @property
    def hold(self) -> _job_pb2.Hold: ...
    queue_paused: bool
    def __init__(self, *, name: str | None = ..., due_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., nominal_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., time_zone: str | None = ..., trigger: _job_pb2.Run.Trigger | str | None = ..., queue: str | None = ..., handler: str | None = ..., attempt: int | None = ..., delay_source: _job_pb2.DelaySource | str | None = ..., hold: _job_pb2.Hold | _Mapping[str, _Any] | None = ..., queue_paused: bool | None = ...) -> None: ...

class UpdateJobRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def job(self) -> _job_pb2.Job: ...
    @property
    def update_mask(self) -> _field_mask_pb2.FieldMask: ...
    request_id: str
    def __init__(self, *, job: _job_pb2.Job | _Mapping[str, _Any] | None = ..., update_mask: _field_mask_pb2.FieldMask | _Mapping[str, _Any] | None = ..., request_id: str | None = ...) -> None: ...

class DeleteJobRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    etag: str
    allow_missing: bool
    def __init__(self, *, name: str | None = ..., etag: str | None = ..., allow_missing: bool | None = ...) -> None: ...

class RenameJobRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    new_id: str
    etag: str
    request_id: str
    def __init__(self, *, name: str | None = ..., new_id: str | None = ..., etag: str | None = ..., request_id: str | None = ...) -> None: ...

class PauseJobRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    note: str
    def __init__(self, *, name: str | None = ..., note: str | None = ...) -> None: ...

class ResumeJobRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    catch_up: bool
    def __init__(self, *, name: str | None = ..., catch_up: bool | None = ...) -> None: ...

class RunJobRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Backoff(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BACKOFF_UNSPECIFIED: RunJobRequest.Backoff
        BACKOFF_RESET: RunJobRequest.Backoff
        BACKOFF_KEEP: RunJobRequest.Backoff
        BACKOFF_RESET_ON_SUCCESS: RunJobRequest.Backoff
    BACKOFF_UNSPECIFIED: RunJobRequest.Backoff
    BACKOFF_RESET: RunJobRequest.Backoff
    BACKOFF_KEEP: RunJobRequest.Backoff
    BACKOFF_RESET_ON_SUCCESS: RunJobRequest.Backoff
    name: str
    request_id: str
    backoff: RunJobRequest.Backoff
    ignore_exclusions: bool
    def __init__(self, *, name: str | None = ..., request_id: str | None = ..., backoff: RunJobRequest.Backoff | str | None = ..., ignore_exclusions: bool | None = ...) -> None: ...

class RunJobResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def run(self) -> _job_pb2.Run: ...
    coalesced: bool
    def __init__(self, *, run: _job_pb2.Run | _Mapping[str, _Any] | None = ..., coalesced: bool | None = ...) -> None: ...

class RunJobWithPayloadRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    request_id: str
    payload: bytes
    @property
    def payload_json(self) -> _struct_pb2.Value: ...
    ignore_exclusions: bool
    def __init__(self, *, name: str | None = ..., request_id: str | None = ..., payload: bytes | None = ..., payload_json: _struct_pb2.Value | _Mapping[str, _Any] | None = ..., ignore_exclusions: bool | None = ...) -> None: ...

class BulkRunJobsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    filter: str
    dry_run: bool
    confirmation: str
    request_id: str
    page_token: str
    backoff: RunJobRequest.Backoff
    ignore_exclusions: bool
    def __init__(self, *, parent: str | None = ..., filter: str | None = ..., dry_run: bool | None = ..., confirmation: str | None = ..., request_id: str | None = ..., page_token: str | None = ..., backoff: RunJobRequest.Backoff | str | None = ..., ignore_exclusions: bool | None = ...) -> None: ...

class ListRunsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    @property
    def start_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def end_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def outcomes(self) -> _containers.RepeatedScalarFieldContainer[_job_pb2.Outcome]: ...
    queue: str
    filter: str
    page_size: int
    page_token: str
    def __init__(self, *, parent: str | None = ..., start_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., end_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., outcomes: _Iterable[_job_pb2.Outcome | str] | None = ..., queue: str | None = ..., filter: str | None = ..., page_size: int | None = ..., page_token: str | None = ...) -> None: ...

class ListRunsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def runs(self) -> _containers.RepeatedCompositeFieldContainer[_job_pb2.Run]: ...
    next_page_token: str
    incomplete: bool
    def __init__(self, *, runs: _Iterable[_job_pb2.Run | _Mapping[str, _Any]] | None = ..., next_page_token: str | None = ..., incomplete: bool | None = ...) -> None: ...

class GetRunRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    def __init__(self, *, name: str | None = ...) -> None: ...

class CancelRunRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    def __init__(self, *, name: str | None = ...) -> None: ...

class PreviewScheduleRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def schedule(self) -> _job_pb2.Schedule: ...
    count: int
    @property
    def after(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def backoff_policy(self) -> _job_pb2.BackoffPolicy: ...
    job: str
    @property
    def retry_policy(self) -> _job_pb2.RetryPolicy: ...
    policy_queue: str
    def __init__(self, *, schedule: _job_pb2.Schedule | _Mapping[str, _Any] | None = ..., count: int | None = ..., after: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., backoff_policy: _job_pb2.BackoffPolicy | _Mapping[str, _Any] | None = ..., job: str | None = ..., retry_policy: _job_pb2.RetryPolicy | _Mapping[str, _Any] | None = ..., policy_queue: str | None = ...) -> None: ...

class ScheduledTime(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def nominal_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def due_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def latest_due_time(self) -> _timestamp_pb2.Timestamp: ...
    dst_note: str
    def __init__(self, *, nominal_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., due_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., latest_due_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., dst_note: str | None = ...) -> None: ...

class PreviewScheduleResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def due_times(self) -> _containers.RepeatedCompositeFieldContainer[_timestamp_pb2.Timestamp]: ...
    @property
    def times(self) -> _containers.RepeatedCompositeFieldContainer[ScheduledTime]: ...
    @property
    def projected_due_times(self) -> _containers.RepeatedCompositeFieldContainer[_timestamp_pb2.Timestamp]: ...
    @property
    def backoff_intervals(self) -> _containers.RepeatedCompositeFieldContainer[_duration_pb2.Duration]: ...
    calendar_from: str
    @property
    def retry_delays(self) -> _containers.RepeatedCompositeFieldContainer[_duration_pb2.Duration]: ...
    def __init__(self, *, due_times: _Iterable[_timestamp_pb2.Timestamp | _Mapping[str, _Any]] | None = ..., times: _Iterable[ScheduledTime | _Mapping[str, _Any]] | None = ..., projected_due_times: _Iterable[_timestamp_pb2.Timestamp | _Mapping[str, _Any]] | None = ..., backoff_intervals: _Iterable[_duration_pb2.Duration | _Mapping[str, _Any]] | None = ..., calendar_from: str | None = ..., retry_delays: _Iterable[_duration_pb2.Duration | _Mapping[str, _Any]] | None = ...) -> None: ...

class DesiredJob(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    job_id: str
    @property
    def job(self) -> _job_pb2.Job: ...
    etag: str
    delete: bool
    paused: bool
    refresh_defaults: bool
    def __init__(self, *, job_id: str | None = ..., job: _job_pb2.Job | _Mapping[str, _Any] | None = ..., etag: str | None = ..., delete: bool | None = ..., paused: bool | None = ..., refresh_defaults: bool | None = ...) -> None: ...

class JobChange(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ACTION_UNSPECIFIED: JobChange.Action
        ACTION_CREATE: JobChange.Action
        ACTION_UPDATE: JobChange.Action
        ACTION_UNCHANGED: JobChange.Action
        ACTION_DELETE: JobChange.Action
        ACTION_EXPIRED: JobChange.Action
    ACTION_UNSPECIFIED: JobChange.Action
    ACTION_CREATE: JobChange.Action
    ACTION_UPDATE: JobChange.Action
    ACTION_UNCHANGED: JobChange.Action
    ACTION_DELETE: JobChange.Action
    ACTION_EXPIRED: JobChange.Action
    action: JobChange.Action
    @property
    def before(self) -> _job_pb2.Job: ...
    @property
    def after(self) -> _job_pb2.Job: ...
    @property
    def fields(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    code: int
    message: str
    @property
    def details(self) -> _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]: ...
    payload_not_compared: bool
    def __init__(self, *, action: JobChange.Action | str | None = ..., before: _job_pb2.Job | _Mapping[str, _Any] | None = ..., after: _job_pb2.Job | _Mapping[str, _Any] | None = ..., fields: _Iterable[str] | None = ..., code: int | None = ..., message: str | None = ..., details: _Iterable[_any_pb2.Any | _Mapping[str, _Any]] | None = ..., payload_not_compared: bool | None = ...) -> None: ...

class PlanJobsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    @property
    def desired_jobs(self) -> _containers.RepeatedCompositeFieldContainer[DesiredJob]: ...
    force: bool
    def __init__(self, *, parent: str | None = ..., desired_jobs: _Iterable[DesiredJob | _Mapping[str, _Any]] | None = ..., force: bool | None = ...) -> None: ...

class PlanJobsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def changes(self) -> _containers.RepeatedCompositeFieldContainer[JobChange]: ...
    def __init__(self, *, changes: _Iterable[JobChange | _Mapping[str, _Any]] | None = ...) -> None: ...

class ApplyJobsRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    parent: str
    @property
    def desired_jobs(self) -> _containers.RepeatedCompositeFieldContainer[DesiredJob]: ...
    force: bool
    def __init__(self, *, parent: str | None = ..., desired_jobs: _Iterable[DesiredJob | _Mapping[str, _Any]] | None = ..., force: bool | None = ...) -> None: ...

class ApplyJobsResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def changes(self) -> _containers.RepeatedCompositeFieldContainer[JobChange]: ...
    def __init__(self, *, changes: _Iterable[JobChange | _Mapping[str, _Any]] | None = ...) -> None: ...
