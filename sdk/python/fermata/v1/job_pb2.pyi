"""Generated from proto/fermata/v1/job.proto by go test ./sdk/python -update. DO NOT EDIT."""

from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping
from typing import Any as _Any
from typing import ClassVar as _ClassVar

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2

DESCRIPTOR: _descriptor.FileDescriptor

class OverlapPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OVERLAP_POLICY_UNSPECIFIED: OverlapPolicy
    OVERLAP_POLICY_SKIP: OverlapPolicy
    OVERLAP_POLICY_BUFFER_ONE: OverlapPolicy
    OVERLAP_POLICY_BUFFER_ALL: OverlapPolicy
    OVERLAP_POLICY_ALLOW_ALL: OverlapPolicy
    OVERLAP_POLICY_CANCEL_OTHER: OverlapPolicy
    OVERLAP_POLICY_TERMINATE_OTHER: OverlapPolicy
OVERLAP_POLICY_UNSPECIFIED: OverlapPolicy
OVERLAP_POLICY_SKIP: OverlapPolicy
OVERLAP_POLICY_BUFFER_ONE: OverlapPolicy
OVERLAP_POLICY_BUFFER_ALL: OverlapPolicy
OVERLAP_POLICY_ALLOW_ALL: OverlapPolicy
OVERLAP_POLICY_CANCEL_OTHER: OverlapPolicy
OVERLAP_POLICY_TERMINATE_OTHER: OverlapPolicy

class DelaySource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DELAY_SOURCE_UNSPECIFIED: DelaySource
    DELAY_SOURCE_SCHEDULE: DelaySource
    DELAY_SOURCE_RETRY: DelaySource
    DELAY_SOURCE_BACKOFF: DelaySource
    DELAY_SOURCE_HINT: DelaySource
    DELAY_SOURCE_MANUAL: DelaySource
    DELAY_SOURCE_CATCH_UP: DelaySource
    DELAY_SOURCE_BACKFILL: DelaySource
    DELAY_SOURCE_REDRIVE: DelaySource
    DELAY_SOURCE_HELD: DelaySource
    DELAY_SOURCE_JITTER: DelaySource
DELAY_SOURCE_UNSPECIFIED: DelaySource
DELAY_SOURCE_SCHEDULE: DelaySource
DELAY_SOURCE_RETRY: DelaySource
DELAY_SOURCE_BACKOFF: DelaySource
DELAY_SOURCE_HINT: DelaySource
DELAY_SOURCE_MANUAL: DelaySource
DELAY_SOURCE_CATCH_UP: DelaySource
DELAY_SOURCE_BACKFILL: DelaySource
DELAY_SOURCE_REDRIVE: DelaySource
DELAY_SOURCE_HELD: DelaySource
DELAY_SOURCE_JITTER: DelaySource

class DstGap(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DST_GAP_UNSPECIFIED: DstGap
    DST_GAP_SHIFT: DstGap
    DST_GAP_SKIP: DstGap
DST_GAP_UNSPECIFIED: DstGap
DST_GAP_SHIFT: DstGap
DST_GAP_SKIP: DstGap

class DstRepeat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DST_REPEAT_UNSPECIFIED: DstRepeat
    DST_REPEAT_FIRST: DstRepeat
    DST_REPEAT_LAST: DstRepeat
    DST_REPEAT_BOTH: DstRepeat
DST_REPEAT_UNSPECIFIED: DstRepeat
DST_REPEAT_FIRST: DstRepeat
DST_REPEAT_LAST: DstRepeat
DST_REPEAT_BOTH: DstRepeat

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: Outcome
    OUTCOME_SUCCEEDED: Outcome
    OUTCOME_FAILED: Outcome
    OUTCOME_TIMED_OUT: Outcome
    OUTCOME_LOST: Outcome
    OUTCOME_DEAD: Outcome
    OUTCOME_QUARANTINED: Outcome
    OUTCOME_CANCELLED: Outcome
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_SUCCEEDED: Outcome
OUTCOME_FAILED: Outcome
OUTCOME_TIMED_OUT: Outcome
OUTCOME_LOST: Outcome
OUTCOME_DEAD: Outcome
OUTCOME_QUARANTINED: Outcome
OUTCOME_CANCELLED: Outcome

class Job(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    queue: str
    priority: int
    handler: str
    payload: bytes
    @property
    def labels(self) -> _containers.ScalarMap[str, str]: ...
    @property
    def schedule(self) -> Schedule: ...
    @property
    def retry_policy(self) -> RetryPolicy: ...
    @property
    def backoff_policy(self) -> BackoffPolicy: ...
    @property
    def timeout(self) -> _duration_pb2.Duration: ...
    @property
    def timeout_grace(self) -> _duration_pb2.Duration: ...
    history_limit: int
    @property
    def retention(self) -> _duration_pb2.Duration: ...
    @property
    def dead_letter_ttl(self) -> _duration_pb2.Duration: ...
    etag: str
    generation: int
    @property
    def create_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def update_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def status(self) -> JobStatus: ...
    overlap_policy: OverlapPolicy
    overlap_limit: int
    @property
    def misfire_policy(self) -> MisfirePolicy: ...
    @property
    def locks(self) -> _containers.RepeatedCompositeFieldContainer[Lock]: ...
    target: str
    pause_after_failures: int
    payload_sealed: bool
    payload_key_id: str
    payload_size: int
    @property
    def max_lag(self) -> _duration_pb2.Duration: ...
    @property
    def payload_json(self) -> _struct_pb2.Value: ...
    @property
    def warnings(self) -> _containers.RepeatedCompositeFieldContainer[Warning]: ...
    def __init__(self, *, name: str | None = ..., queue: str | None = ..., priority: int | None = ..., handler: str | None = ..., payload: bytes | None = ..., labels: _Mapping[str, str] | None = ..., schedule: Schedule | _Mapping[str, _Any] | None = ..., retry_policy: RetryPolicy | _Mapping[str, _Any] | None = ..., backoff_policy: BackoffPolicy | _Mapping[str, _Any] | None = ..., timeout: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., timeout_grace: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., history_limit: int | None = ..., retention: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., dead_letter_ttl: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., etag: str | None = ..., generation: int | None = ..., create_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., update_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., status: JobStatus | _Mapping[str, _Any] | None = ..., overlap_policy: OverlapPolicy | str | None = ..., overlap_limit: int | None = ..., misfire_policy: MisfirePolicy | _Mapping[str, _Any] | None = ..., locks: _Iterable[Lock | _Mapping[str, _Any]] | None = ..., target: str | None = ..., pause_after_failures: int | None = ..., payload_sealed: bool | None = ..., payload_key_id: str | None = ..., payload_size: int | None = ..., max_lag: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., payload_json: _struct_pb2.Value | _Mapping[str, _Any] | None = ..., warnings: _Iterable[Warning | _Mapping[str, _Any]] | None = ...) -> None: ...

class Warning(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    field: str
    text: str
    def __init__(self, *, field: str | None = ..., text: str | None = ...) -> None: ...

class MisfirePolicy(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Policy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        POLICY_UNSPECIFIED: MisfirePolicy.Policy
        POLICY_RUN_ONCE: MisfirePolicy.Policy
        POLICY_SKIP: MisfirePolicy.Policy
        POLICY_RUN_ALL: MisfirePolicy.Policy
    POLICY_UNSPECIFIED: MisfirePolicy.Policy
    POLICY_RUN_ONCE: MisfirePolicy.Policy
    POLICY_SKIP: MisfirePolicy.Policy
    POLICY_RUN_ALL: MisfirePolicy.Policy
    policy: MisfirePolicy.Policy
    @property
    def catch_up_window(self) -> _duration_pb2.Duration: ...
    max_catch_up: int
    def __init__(self, *, policy: MisfirePolicy.Policy | str | None = ..., catch_up_window: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., max_catch_up: int | None = ...) -> None: ...

class Lock(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    key: str
    limit: int
    def __init__(self, *, key: str | None = ..., limit: int | None = ...) -> None: ...

class Hint(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Source(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SOURCE_UNSPECIFIED: Hint.Source
        SOURCE_WORKER: Hint.Source
        SOURCE_OPERATOR: Hint.Source
        SOURCE_PLANNER: Hint.Source
    SOURCE_UNSPECIFIED: Hint.Source
    SOURCE_WORKER: Hint.Source
    SOURCE_OPERATOR: Hint.Source
    SOURCE_PLANNER: Hint.Source
    source: Hint.Source
    @property
    def next_run_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def interval(self) -> _duration_pb2.Duration: ...
    @property
    def expire_time(self) -> _timestamp_pb2.Timestamp: ...
    reason: str
    def __init__(self, *, source: Hint.Source | str | None = ..., next_run_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., interval: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., expire_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., reason: str | None = ...) -> None: ...

class Hold(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: Hold.Reason
        REASON_OVERLAP: Hold.Reason
        REASON_LOCK: Hold.Reason
        REASON_TARGET: Hold.Reason
        REASON_PACE: Hold.Reason
        REASON_QUEUE: Hold.Reason
        REASON_PAYLOAD: Hold.Reason
    REASON_UNSPECIFIED: Hold.Reason
    REASON_OVERLAP: Hold.Reason
    REASON_LOCK: Hold.Reason
    REASON_TARGET: Hold.Reason
    REASON_PACE: Hold.Reason
    REASON_QUEUE: Hold.Reason
    REASON_PAYLOAD: Hold.Reason
    reason: Hold.Reason
    key: str
    blocked_by: str
    @property
    def since_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def due_time(self) -> _timestamp_pb2.Timestamp: ...
    def __init__(self, *, reason: Hold.Reason | str | None = ..., key: str | None = ..., blocked_by: str | None = ..., since_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., due_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ...) -> None: ...

class Backfill(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    id: str
    @property
    def progress_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def end_time(self) -> _timestamp_pb2.Timestamp: ...
    concurrency: int
    def __init__(self, *, id: str | None = ..., progress_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., end_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., concurrency: int | None = ...) -> None: ...

class JobStatus(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: JobStatus.State
        STATE_SCHEDULED: JobStatus.State
        STATE_RUNNING: JobStatus.State
        STATE_PAUSED: JobStatus.State
        STATE_DEAD: JobStatus.State
        STATE_DONE: JobStatus.State
    STATE_UNSPECIFIED: JobStatus.State
    STATE_SCHEDULED: JobStatus.State
    STATE_RUNNING: JobStatus.State
    STATE_PAUSED: JobStatus.State
    STATE_DEAD: JobStatus.State
    STATE_DONE: JobStatus.State
    state: JobStatus.State
    @property
    def next_nominal_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def next_due_time(self) -> _timestamp_pb2.Timestamp: ...
    current_run: str
    current_attempt: int
    consecutive_failures: int
    @property
    def effective_interval(self) -> _duration_pb2.Duration: ...
    last_outcome: Outcome
    last_error: str
    @property
    def last_start_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def last_finish_time(self) -> _timestamp_pb2.Timestamp: ...
    pause_note: str
    @property
    def pause_time(self) -> _timestamp_pb2.Timestamp: ...
    runs_total: int
    succeeded_total: int
    dead_total: int
    lost_total: int
    skipped_total: int
    current_lost_attempts: int
    manual_run_waiting: bool
    timeout_total: int
    delay_source: DelaySource
    @property
    def hint(self) -> Hint: ...
    @property
    def hold(self) -> Hold: ...
    probe: bool
    runs_left: int
    concurrent_runs: int
    @property
    def backfills(self) -> _containers.RepeatedCompositeFieldContainer[Backfill]: ...
    @property
    def breached_lag(self) -> _duration_pb2.Duration: ...
    @property
    def recent_runs(self) -> _containers.RepeatedCompositeFieldContainer[RecentRun]: ...
    def __init__(self, *, state: JobStatus.State | str | None = ..., next_nominal_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., next_due_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., current_run: str | None = ..., current_attempt: int | None = ..., consecutive_failures: int | None = ..., effective_interval: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., last_outcome: Outcome | str | None = ..., last_error: str | None = ..., last_start_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., last_finish_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., pause_note: str | None = ..., pause_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., runs_total: int | None = ..., succeeded_total: int | None = ..., dead_total: int | None = ..., lost_total: int | None = ..., skipped_total: int | None = ..., current_lost_attempts: int | None = ..., manual_run_waiting: bool | None = ..., timeout_total: int | None = ..., delay_source: DelaySource | str | None = ..., hint: Hint | _Mapping[str, _Any] | None = ..., hold: Hold | _Mapping[str, _Any] | None = ..., probe: bool | None = ..., runs_left: int | None = ..., concurrent_runs: int | None = ..., backfills: _Iterable[Backfill | _Mapping[str, _Any]] | None = ..., breached_lag: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., recent_runs: _Iterable[RecentRun | _Mapping[str, _Any]] | None = ...) -> None: ...

class RecentRun(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    name: str
    outcome: Outcome
    @property
    def nominal_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def start_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def finish_time(self) -> _timestamp_pb2.Timestamp: ...
    attempts: int
    def __init__(self, *, name: str | None = ..., outcome: Outcome | str | None = ..., nominal_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., start_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., finish_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., attempts: int | None = ...) -> None: ...

class Schedule(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def interval(self) -> IntervalSchedule: ...
    @property
    def cron(self) -> CronSchedule: ...
    @property
    def once(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def calendar(self) -> CalendarSchedule: ...
    @property
    def start_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def end_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def exclusions(self) -> Exclusions: ...
    @property
    def jitter(self) -> _duration_pb2.Duration: ...
    max_runs: int
    def __init__(self, *, interval: IntervalSchedule | _Mapping[str, _Any] | None = ..., cron: CronSchedule | _Mapping[str, _Any] | None = ..., once: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., calendar: CalendarSchedule | _Mapping[str, _Any] | None = ..., start_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., end_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., exclusions: Exclusions | _Mapping[str, _Any] | None = ..., jitter: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., max_runs: int | None = ...) -> None: ...

class Exclusions(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Period(_message.Message):
        DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
        @property
        def start_time(self) -> _timestamp_pb2.Timestamp: ...
        @property
        def end_time(self) -> _timestamp_pb2.Timestamp: ...
        def __init__(self, *, start_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., end_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ...) -> None: ...
    @property
    def cron(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    @property
    def dates(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    @property
    def windows(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    @property
    def periods(self) -> _containers.RepeatedCompositeFieldContainer[Exclusions.Period]: ...
    time_zone: str
    def __init__(self, *, cron: _Iterable[str] | None = ..., dates: _Iterable[str] | None = ..., windows: _Iterable[str] | None = ..., periods: _Iterable[Exclusions.Period | _Mapping[str, _Any]] | None = ..., time_zone: str | None = ...) -> None: ...

class IntervalSchedule(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def every(self) -> _duration_pb2.Duration: ...
    fixed_delay: bool
    def __init__(self, *, every: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., fixed_delay: bool | None = ...) -> None: ...

class CronSchedule(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    @property
    def expressions(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    time_zone: str
    seconds: bool
    dst_gap: DstGap
    dst_repeat: DstRepeat
    def __init__(self, *, expressions: _Iterable[str] | None = ..., time_zone: str | None = ..., seconds: bool | None = ..., dst_gap: DstGap | str | None = ..., dst_repeat: DstRepeat | str | None = ...) -> None: ...

class CalendarSchedule(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Unit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNIT_UNSPECIFIED: CalendarSchedule.Unit
        UNIT_DAY: CalendarSchedule.Unit
        UNIT_WEEK: CalendarSchedule.Unit
        UNIT_MONTH: CalendarSchedule.Unit
    UNIT_UNSPECIFIED: CalendarSchedule.Unit
    UNIT_DAY: CalendarSchedule.Unit
    UNIT_WEEK: CalendarSchedule.Unit
    UNIT_MONTH: CalendarSchedule.Unit

    class ShortMonth(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SHORT_MONTH_UNSPECIFIED: CalendarSchedule.ShortMonth
        SHORT_MONTH_LAST_DAY: CalendarSchedule.ShortMonth
        SHORT_MONTH_SKIP: CalendarSchedule.ShortMonth
    SHORT_MONTH_UNSPECIFIED: CalendarSchedule.ShortMonth
    SHORT_MONTH_LAST_DAY: CalendarSchedule.ShortMonth
    SHORT_MONTH_SKIP: CalendarSchedule.ShortMonth
    every: int
    unit: CalendarSchedule.Unit
    @property
    def times(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    @property
    def weekdays(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    @property
    def month_days(self) -> _containers.RepeatedScalarFieldContainer[int]: ...
    short_month: CalendarSchedule.ShortMonth
    time_zone: str
    dst_gap: DstGap
    dst_repeat: DstRepeat
    def __init__(self, *, every: int | None = ..., unit: CalendarSchedule.Unit | str | None = ..., times: _Iterable[str] | None = ..., weekdays: _Iterable[str] | None = ..., month_days: _Iterable[int] | None = ..., short_month: CalendarSchedule.ShortMonth | str | None = ..., time_zone: str | None = ..., dst_gap: DstGap | str | None = ..., dst_repeat: DstRepeat | str | None = ..., **kwargs: _Any) -> None: ...

class RetryPolicy(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Strategy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STRATEGY_UNSPECIFIED: RetryPolicy.Strategy
        STRATEGY_FIXED: RetryPolicy.Strategy
        STRATEGY_LINEAR: RetryPolicy.Strategy
        STRATEGY_EXPONENTIAL: RetryPolicy.Strategy
        STRATEGY_DECORRELATED: RetryPolicy.Strategy
    STRATEGY_UNSPECIFIED: RetryPolicy.Strategy
    STRATEGY_FIXED: RetryPolicy.Strategy
    STRATEGY_LINEAR: RetryPolicy.Strategy
    STRATEGY_EXPONENTIAL: RetryPolicy.Strategy
    STRATEGY_DECORRELATED: RetryPolicy.Strategy
    strategy: RetryPolicy.Strategy
    @property
    def base_delay(self) -> _duration_pb2.Duration: ...
    multiplier: float
    exponent_offset: int
    @property
    def max_delay(self) -> _duration_pb2.Duration: ...
    max_attempts: int
    @property
    def max_elapsed(self) -> _duration_pb2.Duration: ...
    @property
    def jitter(self) -> Jitter: ...
    max_doublings: int
    preset: str
    @property
    def sources(self) -> _containers.ScalarMap[str, str]: ...
    def __init__(self, *, strategy: RetryPolicy.Strategy | str | None = ..., base_delay: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., multiplier: float | None = ..., exponent_offset: int | None = ..., max_delay: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., max_attempts: int | None = ..., max_elapsed: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., jitter: Jitter | _Mapping[str, _Any] | None = ..., max_doublings: int | None = ..., preset: str | None = ..., sources: _Mapping[str, str] | None = ...) -> None: ...

class BackoffPolicy(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    disabled: bool
    multiplier: float
    max_exponent: int
    @property
    def max_delay(self) -> _duration_pb2.Duration: ...
    max_ratio: float
    @property
    def jitter(self) -> Jitter: ...
    @property
    def stale_after(self) -> _duration_pb2.Duration: ...
    stale_halve: bool
    @property
    def min_interval(self) -> _duration_pb2.Duration: ...
    @property
    def max_interval(self) -> _duration_pb2.Duration: ...
    within_period: bool
    preset: str
    @property
    def sources(self) -> _containers.ScalarMap[str, str]: ...
    def __init__(self, *, disabled: bool | None = ..., multiplier: float | None = ..., max_exponent: int | None = ..., max_delay: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., max_ratio: float | None = ..., jitter: Jitter | _Mapping[str, _Any] | None = ..., stale_after: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., stale_halve: bool | None = ..., min_interval: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., max_interval: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., within_period: bool | None = ..., preset: str | None = ..., sources: _Mapping[str, str] | None = ...) -> None: ...

class Jitter(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: Jitter.Kind
        KIND_NONE: Jitter.Kind
        KIND_DOWN: Jitter.Kind
        KIND_PROPORTIONAL: Jitter.Kind
        KIND_SPREAD: Jitter.Kind
        KIND_FULL: Jitter.Kind
        KIND_EQUAL: Jitter.Kind
    KIND_UNSPECIFIED: Jitter.Kind
    KIND_NONE: Jitter.Kind
    KIND_DOWN: Jitter.Kind
    KIND_PROPORTIONAL: Jitter.Kind
    KIND_SPREAD: Jitter.Kind
    KIND_FULL: Jitter.Kind
    KIND_EQUAL: Jitter.Kind
    kind: Jitter.Kind
    fraction: float
    def __init__(self, *, kind: Jitter.Kind | str | None = ..., fraction: float | None = ...) -> None: ...

class Run(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: Run.State
        STATE_WAITING: Run.State
        STATE_RUNNING: Run.State
        STATE_FINISHED: Run.State
    STATE_UNSPECIFIED: Run.State
    STATE_WAITING: Run.State
    STATE_RUNNING: Run.State
    STATE_FINISHED: Run.State

    class Trigger(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TRIGGER_UNSPECIFIED: Run.Trigger
        TRIGGER_SCHEDULE: Run.Trigger
        TRIGGER_MANUAL: Run.Trigger
        TRIGGER_BACKFILL: Run.Trigger
    TRIGGER_UNSPECIFIED: Run.Trigger
    TRIGGER_SCHEDULE: Run.Trigger
    TRIGGER_MANUAL: Run.Trigger
    TRIGGER_BACKFILL: Run.Trigger
    name: str
    state: Run.State
    trigger: Run.Trigger
    @property
    def nominal_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def due_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def start_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def finish_time(self) -> _timestamp_pb2.Timestamp: ...
    attempts: int
    lost_attempts: int
    outcome: Outcome
    error: str
    output: bytes
    output_text: str
    worker: str
    dead_letter: bool
    @property
    def hold(self) -> Hold: ...
    queue: str
    last_attempt_outcome: Outcome
    correlation_id: str
    trace_id: str
    @property
    def own_payload(self) -> RunPayload: ...
    @property
    def attempt_log(self) -> _containers.RepeatedCompositeFieldContainer[RunAttempt]: ...
    def __init__(self, *, name: str | None = ..., state: Run.State | str | None = ..., trigger: Run.Trigger | str | None = ..., nominal_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., due_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., start_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., finish_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., attempts: int | None = ..., lost_attempts: int | None = ..., outcome: Outcome | str | None = ..., error: str | None = ..., output: bytes | None = ..., output_text: str | None = ..., worker: str | None = ..., dead_letter: bool | None = ..., hold: Hold | _Mapping[str, _Any] | None = ..., queue: str | None = ..., last_attempt_outcome: Outcome | str | None = ..., correlation_id: str | None = ..., trace_id: str | None = ..., own_payload: RunPayload | _Mapping[str, _Any] | None = ..., attempt_log: _Iterable[RunAttempt | _Mapping[str, _Any]] | None = ...) -> None: ...

class RunAttempt(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    attempt: int
    outcome: Outcome
    @property
    def due_time(self) -> _timestamp_pb2.Timestamp: ...
    delay_source: DelaySource
    @property
    def start_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def finish_time(self) -> _timestamp_pb2.Timestamp: ...
    worker: str
    def __init__(self, *, attempt: int | None = ..., outcome: Outcome | str | None = ..., due_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., delay_source: DelaySource | str | None = ..., start_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., finish_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., worker: str | None = ...) -> None: ...

class RunPayload(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    size: int
    sha256: bytes
    sealed: bool
    payload: bytes
    payload_key_id: str
    @property
    def binding(self) -> PayloadBinding: ...
    def __init__(self, *, size: int | None = ..., sha256: bytes | None = ..., sealed: bool | None = ..., payload: bytes | None = ..., payload_key_id: str | None = ..., binding: PayloadBinding | _Mapping[str, _Any] | None = ...) -> None: ...

class PayloadBinding(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    queue: str
    handler: str
    @property
    def timeout(self) -> _duration_pb2.Duration: ...
    max_attempts: int
    @property
    def labels(self) -> _containers.ScalarMap[str, str]: ...
    def __init__(self, *, queue: str | None = ..., handler: str | None = ..., timeout: _duration_pb2.Duration | _Mapping[str, _Any] | None = ..., max_attempts: int | None = ..., labels: _Mapping[str, str] | None = ...) -> None: ...
