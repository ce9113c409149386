"""Errors of calls."""

import dataclasses
from typing import Any

import grpc
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory

_CODES = {code.value[0]: code.name for code in grpc.StatusCode}


@dataclasses.dataclass(frozen=True)
class Violation:
    """An invalid field of a request."""

    field: str
    description: str


class FermataError(Exception):
    """A call has failed.

    code: the status of gRPC, such as "NOT_FOUND". reason: for programs, such as "EXCLUDED_TIME"; "" if there is none.
    violations: the invalid fields of the request. retry_delay: what the cluster asks for, in seconds, or None.
    """

    def __init__(self, code: str, message: str, *, reason: str = "", violations: tuple[Violation, ...] = (),
                 retry_delay: float | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.reason = code, message, reason
        self.violations, self.retry_delay = violations, retry_delay

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class InvalidRequest(FermataError):
    """The request is invalid; violations has the fields."""


class NotFound(FermataError):
    """The job, the run or another object does not exist."""


class AlreadyExists(FermataError):
    """Another job has the id."""


class Conflict(FermataError):
    """The object was changed since it was read, or the id belongs to a deleted job that still runs. Read it again and
    repeat the change."""


class FailedPrecondition(FermataError):
    """The call is not possible in the present state; reason says why."""


class LimitExceeded(FermataError):
    """A quota, a rate or the memory of Redis is exhausted."""


class Unauthenticated(FermataError):
    """The cluster does not accept the credentials."""


class PermissionDenied(FermataError):
    """The caller's roles do not have the permission."""


class Unavailable(FermataError):
    """No node, or no Redis behind it, could be reached."""


class DeadlineExceeded(FermataError):
    """The call took longer than its timeout."""


class EventsGone(FermataError):
    """The events after a resume token are no longer kept."""


_CLASSES: dict[str, type[FermataError]] = {
    "INVALID_ARGUMENT": InvalidRequest, "NOT_FOUND": NotFound, "ALREADY_EXISTS": AlreadyExists, "ABORTED": Conflict,
    "FAILED_PRECONDITION": FailedPrecondition, "RESOURCE_EXHAUSTED": LimitExceeded,
    "UNAUTHENTICATED": Unauthenticated, "PERMISSION_DENIED": PermissionDenied, "UNAVAILABLE": Unavailable,
    "DEADLINE_EXCEEDED": DeadlineExceeded, "OUT_OF_RANGE": EventsGone,
}


def _detail_messages() -> dict[str, Any]:
    """Returns the messages of google.rpc that are in details of errors, by name. They are in a pool of their own,
    because other packages may bring the originals."""
    label, kind = descriptor_pb2.FieldDescriptorProto.Label, descriptor_pb2.FieldDescriptorProto.Type
    file = descriptor_pb2.FileDescriptorProto(name="fermata/details.proto", package="fermata.details", syntax="proto3")

    def message(name: str, **fields: Any) -> None:
        m = file.message_type.add(name=name)
        for number, (field, value) in enumerate(fields.items(), 1):
            repeated = isinstance(value, list)
            value = value[0] if repeated else value
            m.field.add(
                name=field, number=number, label=label.LABEL_REPEATED if repeated else label.LABEL_OPTIONAL,
                type=kind.TYPE_MESSAGE if isinstance(value, str) else value,
                type_name="." + value if isinstance(value, str) else None)

    text, number, raw = kind.TYPE_STRING, kind.TYPE_INT64, kind.TYPE_BYTES
    message("Duration", seconds=number, nanos=kind.TYPE_INT32)
    message("Any", type_url=text, value=raw)
    message("Status", code=kind.TYPE_INT32, message=text, details=["fermata.details.Any"])
    message("FieldViolation", field=text, description=text)
    message("BadRequest", field_violations=["fermata.details.FieldViolation"])
    message("ErrorInfo", reason=text)
    message("RetryInfo", retry_delay="fermata.details.Duration")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    make = getattr(message_factory, "GetMessageClass", None) or message_factory.MessageFactory(pool).GetPrototype
    return {m.name: make(pool.FindMessageTypeByName("fermata.details." + m.name)) for m in file.message_type}


_DETAILS = _detail_messages()


def error_of_call(error: grpc.aio.AioRpcError) -> FermataError:
    """Returns the error of a failed call."""
    details: Any = ()
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            try:
                details = _DETAILS["Status"].FromString(value).details
            except Exception:  # not a message: an answer that is none of a node
                pass
    return make_error(error.code().name, error.details() or "", details)


def error_of_item(code: int, message: str, details: "list[any_pb2.Any] | Any") -> FermataError:
    """Returns the error of one item of a batch."""
    return make_error(_CODES.get(code, "UNKNOWN"), message, details)


def make_error(code: str, message: str, details: Any = ()) -> FermataError:
    reason, violations, delay = "", [], None
    for detail in details:
        name = detail.type_url.rpartition(".")[2]
        if name not in ("BadRequest", "ErrorInfo", "RetryInfo"):
            continue
        try:
            value = _DETAILS[name].FromString(detail.value)
        except Exception:
            continue
        if name == "BadRequest":
            violations += [Violation(v.field, v.description) for v in value.field_violations]
        elif name == "ErrorInfo":
            reason = reason or value.reason
        else:
            delay = max(0.0, value.retry_delay.seconds + value.retry_delay.nanos / 1e9)
    kind = _CLASSES.get(code, FermataError)
    return kind(code, message, reason=reason, violations=tuple(violations), retry_delay=delay)
