"""Addresses, TLS and tokens of connections to nodes."""

import asyncio
import dataclasses
import inspect
import ipaddress
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc

from fermata._version import __version__

Token = str | Callable[[], str | Awaitable[str]]
Metadata = list[tuple[str, str]]

_PLAIN = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]*)):([0-9]{1,5})")
# Schemes of gRPC targets, which name nodes in other ways than host:port.
_TARGET = re.compile(r"(dns|ipv4|ipv6|unix|unix-abstract|vsock|xds|google-c2p)://.+|unix(-abstract)?:.+")
_TOKEN = re.compile(r"[!-~]+")

# A ping finds out that a connection is dead, within the sum of both times.
KEEPALIVE_TIME, KEEPALIVE_TIMEOUT = 10.0, 5.0


@dataclasses.dataclass(frozen=True)
class TLS:
    """TLS to the nodes. ca, cert and key are PEM data (bytes), or paths of PEM files, which are read again for each
    connection. Without ca the authorities of the system are trusted. server_name replaces the host of the address in
    the check of the certificate."""

    ca: bytes | str | os.PathLike[str] | None = None
    cert: bytes | str | os.PathLike[str] | None = None
    key: bytes | str | os.PathLike[str] | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("TLS needs cert and key, or none of them")

    def credentials(self) -> Any:
        """Returns the credentials of a channel."""
        return grpc.ssl_channel_credentials(
            _authorities(self.ca), private_key=_pem(self.key), certificate_chain=_pem(self.cert))


def _pem(value: bytes | str | os.PathLike[str] | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    with open(value, "rb") as f:
        return f.read()


def _authorities(ca: bytes | str | os.PathLike[str] | None) -> bytes | None:
    """Reads the authorities of servers. An empty file trusts none, instead of all that the system trusts."""
    if ca is None:
        return _system_authorities()
    text = _pem(ca)
    if not text or not text.strip():
        raise ValueError("the file of certificate authorities is empty")
    return text


def _system_authorities() -> bytes | None:
    path = ssl.get_default_verify_paths().cafile
    return _pem(path) if path and os.path.exists(path) else None


def tls_of(value: TLS | bool | None) -> TLS | None:
    """Returns the TLS of an option, which may be True for the authorities of the system."""
    return TLS() if value is True else value or None


class TokenFile:
    """A token in a file, for the option token. The file is read again when it has changed. If it cannot be read any
    more, or has no token while it is being written, the last token stays in use."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._token = ""
        self._seen: tuple[int, ...] | None = None
        self()

    def __call__(self) -> str:
        try:
            status = os.stat(self._path)
            # A file that is replaced within a tick of the system's clock has another inode.
            seen = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)
            if seen != self._seen:
                with open(self._path, encoding="utf-8") as f:
                    token = f.read().strip()
                check_token(token)
                self._token, self._seen = token, seen
        except (OSError, ValueError):
            if not self._token:
                raise
        return self._token


def check_token(token: str) -> None:
    """Refuses a token that a header cannot carry unchanged."""
    if not _TOKEN.fullmatch(token):
        raise ValueError("the token is empty, or has characters that no token has")


async def token_metadata(token: Token | None) -> Metadata:
    """Returns the metadata of a call."""
    if token is None:
        return []
    value: Any = token() if callable(token) else token
    if inspect.isawaitable(value):
        value = await value
    check_token(value)
    return [("authorization", "Bearer " + value)]


def check_addresses(addresses: Sequence[str] | str) -> list[str]:
    """Returns the addresses, which are host:port or targets of gRPC. One text may have several, with commas."""
    if isinstance(addresses, str):
        addresses = addresses.split(",")
    out = list(dict.fromkeys(a.strip() for a in addresses if a.strip()))
    if not out:
        raise ValueError("no address of a node")
    for address in out:
        if not is_plain(address) and not _TARGET.fullmatch(address):
            raise ValueError(f"address {address!r} is not host:port{_suggest_address(address)}")
    return out


def _suggest_address(url: str) -> str:
    """Returns what to write in place of a URL, for an error."""
    host = url.partition("://")[2].partition("/")[0]
    if is_plain(host):
        return f", but a URL: write {host!r}" + (", and set tls" if url.startswith("https:") else "")
    return ", but a URL" if host else ""


def check_token_use(addresses: Sequence[str], tls: TLS | None, token: Token | None) -> None:
    """Refuses a token that would be sent over a network in plain text."""
    if token is None or tls:
        return
    for address in addresses:
        if not is_loopback(address):
            raise ValueError(f"a token for {address}, which is beyond this host, without TLS")


def is_plain(address: str) -> bool:
    """Reports whether an address is host:port and no target of gRPC."""
    match = _PLAIN.fullmatch(address)
    return bool(match) and 0 < int(match[2]) < 65536  # type: ignore[index]


def is_loopback(address: str) -> bool:
    """Reports whether nobody beyond this host can receive what is sent to an address."""
    if address.startswith("unix:"):
        return True
    for scheme in ("dns:///", "passthrough:///"):
        address = address.removeprefix(scheme)
    match = _PLAIN.fullmatch(address)
    if not match:
        return False
    try:
        return ipaddress.ip_address(match[1].strip("[]")).is_loopback
    except ValueError:
        return match[1] == "localhost"


def endpoint_of(address: str) -> str:
    """Returns the host:port, or the host, of an address, which may be a target of gRPC."""
    if address.startswith("unix"):
        return "localhost"
    return address.rsplit("/", 1)[-1] if "://" in address else address


def host_of(address: str) -> str:
    """Returns the host of an address, without brackets."""
    endpoint = endpoint_of(address)
    host = endpoint if endpoint.endswith("]") else endpoint.rpartition(":")[0] or endpoint
    return host.strip("[]")


def raise_if_cancelled() -> None:
    """Raises CancelledError if the current task is being cancelled. grpc raises the error of a call that has just ended
    in place of a cancellation, which would then be lost."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def open_channel(address: str, tls: TLS | None, stands_for: str = "", extra: Sequence[tuple[str, Any]] = ()) -> Any:
    """Returns a channel of grpc.aio. stands_for is the host that the certificate at a learnt address must name."""
    options: list[tuple[str, Any]] = [
        ("grpc.keepalive_time_ms", int(KEEPALIVE_TIME * 1000)),
        ("grpc.keepalive_timeout_ms", int(KEEPALIVE_TIMEOUT * 1000)),
        ("grpc.http2.max_pings_without_data", 0),  # otherwise only two pings are sent on an idle stream
        ("grpc.use_local_subchannel_pool", 1),  # a connection of its own for each channel
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
        ("grpc.primary_user_agent", f"fermata-python/{__version__}"),
        *extra,
    ]
    target = address.removeprefix("passthrough:///")
    if tls is None:
        return grpc.aio.insecure_channel(target, options=options)
    name = tls.server_name or stands_for
    if name:
        options.append(("grpc.ssl_target_name_override", name))
    return grpc.aio.secure_channel(target, tls.credentials(), options=options)
