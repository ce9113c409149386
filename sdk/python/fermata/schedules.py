"""Schedules of jobs."""

import datetime
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from fermata._values import Seconds, duration, timestamp
from fermata.v1 import job_pb2 as pb


class Bounds(TypedDict, total=False):
    """What every schedule may have.

    start, end: first possible scheduled time, and end. jitter: due times are spread over it. max_runs: number of runs
    after which the schedule ends. exclusions: times at which nothing starts.
    """

    start: datetime.datetime
    end: datetime.datetime
    jitter: Seconds
    max_runs: int
    exclusions: pb.Exclusions


def _schedule(rule: dict[str, Any], bounds: Bounds) -> pb.Schedule:
    s = pb.Schedule(**rule)
    for name in bounds:
        if name not in Bounds.__annotations__:
            raise TypeError(f"a schedule has no {name!r}")
    if "start" in bounds:
        s.start_time.CopyFrom(timestamp(bounds["start"]))
    if "end" in bounds:
        s.end_time.CopyFrom(timestamp(bounds["end"]))
    if "jitter" in bounds:
        s.jitter.CopyFrom(duration(bounds["jitter"]))
    if "exclusions" in bounds:
        s.exclusions.CopyFrom(bounds["exclusions"])
    s.max_runs = bounds.get("max_runs", 0)
    return s


def every(interval: Seconds, **bounds: Unpack[Bounds]) -> pb.Schedule:
    """Returns a schedule with a fixed rate: a late run does not move the next one."""
    return _schedule({"interval": pb.IntervalSchedule(every=duration(interval))}, bounds)


def fixed_delay(delay: Seconds, **bounds: Unpack[Bounds]) -> pb.Schedule:
    """Returns a schedule whose next run is due a delay after the end of the previous one."""
    return _schedule({"interval": pb.IntervalSchedule(every=duration(delay), fixed_delay=True)}, bounds)


def cron(expressions: str | Sequence[str], time_zone: str = "", *, seconds: bool = False,
         **bounds: Unpack[Bounds]) -> pb.Schedule:
    """Returns a schedule of cron expressions with five fields (six with seconds), or @daily and the like, in an IANA
    time zone. "" is UTC."""
    if isinstance(expressions, str):
        expressions = [expressions]
    rule = pb.CronSchedule(expressions=expressions, time_zone=time_zone, seconds=seconds)
    return _schedule({"cron": rule}, bounds)


def once(at: datetime.datetime, **bounds: Unpack[Bounds]) -> pb.Schedule:
    """Returns a schedule with a single run at a time, or at once if that has passed."""
    return _schedule({"once": timestamp(at)}, bounds)


def every_day(times: Sequence[str], time_zone: str = "", *, every: int = 1, **bounds: Unpack[Bounds]) -> pb.Schedule:
    """Returns a schedule at local times, such as "09:00", on every n-th day."""
    rule = pb.CalendarSchedule(every=every, unit=pb.CalendarSchedule.UNIT_DAY, times=times, time_zone=time_zone)
    return _schedule({"calendar": rule}, bounds)


def every_week(weekdays: Sequence[str], times: Sequence[str], time_zone: str = "", *, every: int = 1,
               **bounds: Unpack[Bounds]) -> pb.Schedule:
    """Returns a schedule at local times on days, such as "MON", of every n-th week."""
    rule = pb.CalendarSchedule(every=every, unit=pb.CalendarSchedule.UNIT_WEEK, weekdays=weekdays, times=times,
                               time_zone=time_zone)
    return _schedule({"calendar": rule}, bounds)


def every_month(days: Sequence[int], times: Sequence[str], time_zone: str = "", *, every: int = 1,
                **bounds: Unpack[Bounds]) -> pb.Schedule:
    """Returns a schedule at local times on days of every n-th month: 1 to 31, or -1 (the last day) to -31."""
    rule = pb.CalendarSchedule(every=every, unit=pb.CalendarSchedule.UNIT_MONTH, month_days=days, times=times,
                               time_zone=time_zone)
    return _schedule({"calendar": rule}, bounds)
