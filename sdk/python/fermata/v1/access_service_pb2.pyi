"""Generated from proto/fermata/v1/access_service.proto by go test ./sdk/python -update. DO NOT EDIT."""

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

class WhoAmIRequest(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    def __init__(self) -> None: ...

class WhoAmIResponse(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]

    class Authentication(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        AUTHENTICATION_UNSPECIFIED: WhoAmIResponse.Authentication
        AUTHENTICATION_NONE: WhoAmIResponse.Authentication
        AUTHENTICATION_TOKEN: WhoAmIResponse.Authentication
        AUTHENTICATION_CERTIFICATE: WhoAmIResponse.Authentication
        AUTHENTICATION_JWT: WhoAmIResponse.Authentication
    AUTHENTICATION_UNSPECIFIED: WhoAmIResponse.Authentication
    AUTHENTICATION_NONE: WhoAmIResponse.Authentication
    AUTHENTICATION_TOKEN: WhoAmIResponse.Authentication
    AUTHENTICATION_CERTIFICATE: WhoAmIResponse.Authentication
    AUTHENTICATION_JWT: WhoAmIResponse.Authentication
    identity: str
    authentication: WhoAmIResponse.Authentication
    @property
    def groups(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    @property
    def expire_time(self) -> _timestamp_pb2.Timestamp: ...
    @property
    def grants(self) -> _containers.RepeatedCompositeFieldContainer[RoleGrant]: ...
    @property
    def limits(self) -> CallLimits: ...
    @property
    def namespaces(self) -> _containers.RepeatedCompositeFieldContainer[NamespaceLimits]: ...
    node: str
    def __init__(self, *, identity: str | None = ..., authentication: WhoAmIResponse.Authentication | str | None = ..., groups: _Iterable[str] | None = ..., expire_time: _timestamp_pb2.Timestamp | _Mapping[str, _Any] | None = ..., grants: _Iterable[RoleGrant | _Mapping[str, _Any]] | None = ..., limits: CallLimits | _Mapping[str, _Any] | None = ..., namespaces: _Iterable[NamespaceLimits | _Mapping[str, _Any]] | None = ..., node: str | None = ...) -> None: ...

class RoleGrant(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    role: str
    @property
    def namespaces(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    @property
    def queues(self) -> _containers.RepeatedScalarFieldContainer[str]: ...
    def __init__(self, *, role: str | None = ..., namespaces: _Iterable[str] | None = ..., queues: _Iterable[str] | None = ...) -> None: ...

class CallLimits(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    rate: float
    burst: int
    calls: int
    connections: int
    def __init__(self, *, rate: float | None = ..., burst: int | None = ..., calls: int | None = ..., connections: int | None = ...) -> None: ...

class NamespaceLimits(_message.Message):
    DESCRIPTOR: _ClassVar[_descriptor.Descriptor]
    namespace: str
    jobs: int
    job_bytes: int
    def __init__(self, *, namespace: str | None = ..., jobs: int | None = ..., job_bytes: int | None = ...) -> None: ...
