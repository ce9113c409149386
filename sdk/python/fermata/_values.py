"""Conversion of Python values to those of the API."""

import datetime
import decimal
import json
import math
import uuid
from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2

Seconds = float | datetime.timedelta

# Longest error text and longest output that are stored, in bytes.
MAX_ERROR = 512
MAX_OUTPUT = 4096


def seconds_of(value: Seconds) -> float:
    """Returns a duration in seconds."""
    return value.total_seconds() if isinstance(value, datetime.timedelta) else float(value)


def duration(value: Seconds) -> duration_pb2.Duration:
    """Returns a Duration, of seconds or of a timedelta."""
    out = duration_pb2.Duration()
    if isinstance(value, datetime.timedelta):
        out.FromTimedelta(value)
    else:
        if not math.isfinite(value):
            raise ValueError(f"{value} is no duration")
        out.FromNanoseconds(round(value * 1e9))
    return out


def timestamp(value: datetime.datetime) -> timestamp_pb2.Timestamp:
    """Returns a Timestamp. A datetime without a time zone is refused, because it names no instant."""
    if value.tzinfo is None or value.utcoffset() is None:
        raise ValueError(f"{value} has no time zone: use datetime.now(timezone.utc), or tzinfo=ZoneInfo(...)")
    out = timestamp_pb2.Timestamp()
    out.FromDatetime(value.astimezone(datetime.timezone.utc).replace(tzinfo=None))
    return out


def datetime_of(value: timestamp_pb2.Timestamp) -> datetime.datetime:
    """Returns the datetime of a Timestamp, in UTC."""
    return value.ToDatetime(tzinfo=datetime.timezone.utc)


def payload_of(value: Any) -> bytes:
    """Returns the bytes of a payload: those of bytes, text as UTF-8, everything else as JSON."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def output_of(value: Any) -> bytes:
    """Returns the output of a run: as payload_of, cut to MAX_OUTPUT bytes, and without None. Dates, times, decimals and
    UUIDs become texts. Raises TypeError for other values that are not JSON. What is cut off is not encoded: that would
    block the event loop for as long as a large value takes."""
    if value is None:
        return b""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value[:MAX_OUTPUT])
    if isinstance(value, memoryview):
        return bytes(value)[:MAX_OUTPUT]
    if not isinstance(value, str):
        try:
            value = _begin_of_json(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"the output is neither bytes, text nor JSON: {error}") from None
    return clip(value, MAX_OUTPUT).encode()


def _begin_of_json(value: Any) -> str:
    """Returns at least the first MAX_OUTPUT characters of a value as JSON, or all of it."""
    parts, size = [], 0
    for part in _OUTPUT_ENCODER.iterencode(value):
        parts.append(part)
        size += len(part)
        if size >= MAX_OUTPUT:
            break
    return "".join(parts)


def _text_in_json(value: Any) -> str:
    """Returns the text of a value that has no form in JSON, but only one text."""
    if isinstance(value, (datetime.date, datetime.time, decimal.Decimal, uuid.UUID)):
        return str(value)
    raise TypeError(f"a value of type {type(value).__name__}")


_OUTPUT_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_text_in_json)


def clip(text: str, size: int) -> str:
    """Returns text that a message can carry: valid UTF-8 of at most size bytes."""
    return text[:size].encode("utf-8", "replace")[:size].decode("utf-8", "ignore")
