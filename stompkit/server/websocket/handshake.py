"""The WebSocket handshake request (RFC 6455, section 4) and its response, without I/O."""

from __future__ import annotations

import re
from collections import defaultdict
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias

import h11
from wsproto.connection import Connection, ConnectionType
from wsproto.events import AcceptConnection
from wsproto.handshake import H11Handshake
from wsproto.utilities import RemoteProtocolError

from stompkit.frames import VERSIONS, Frame, encode
from stompkit.server.listen.origins import Origins, host_of, is_local_name
from stompkit.server.settings.websocket import WebSocketListener

__all__ = ["SUBPROTOCOLS", "Accepted", "Handshake", "Refused", "http_answer"]

#: The supported sub-protocols, in order of preference.
SUBPROTOCOLS: Final = tuple(f"v{version.replace('.', '')}.stomp" for version in VERSIONS[::-1])

_PORT: Final = "This port speaks STOMP over WebSocket"
_HEAD_END: Final = re.compile(rb"\n\r?\n")
#: Beginning of STOMP input, which is not HTTP and would never complete a request.
_STOMP: Final = re.compile(rb"(?:\r?\n)*(?:CONNECT|STOMP) *\r?\n")
_FOREIGN: Final = (
    (
        re.compile(rb"\x16\x03[\x00-\x04]"),
        f"{_PORT} without TLS, and this is a TLS handshake: have the client use ws:// in place of"
        " wss://, or the port of a TLS endpoint",
    ),
    (
        re.compile(rb"PROXY (?:TCP[46]|UNKNOWN)|\r\n\r\n\x00\r\nQUIT\n"),
        f"{_PORT}, and this is a header of the PROXY protocol, which a load balancer sends: put"
        " haproxy: before the description of the endpoint, or switch it off in the load balancer",
    ),
)
_PLAIN: Final = (
    f"{_PORT}, and the client speaks STOMP without it: have it connect to the port for STOMP over"
    " TCP"
)
#: The request headers used for the decision.
_NEEDED: Final = frozenset(
    {
        b"host",
        b"connection",
        b"upgrade",
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"sec-websocket-protocol",
    }
)
_VERSION: Final = "13"


class Accepted(NamedTuple):
    """An accepted WebSocket: the response, the connection, and the bytes after the request."""

    answer: bytes
    connection: Connection
    rest: bytes


class Refused(NamedTuple):
    """A refused WebSocket: the response, and the reason as text."""

    answer: bytes
    reason: str


Outcome: TypeAlias = Accepted | Refused


class Handshake:
    """The handshake request of one client."""

    def __init__(self, listener: WebSocketListener, origins: Origins, *, on_loopback: bool) -> None:
        """Wait for the request; ``on_loopback`` is True if it arrives on a loopback address."""
        self._listener = listener
        self._origins = origins
        self._on_loopback = on_loopback
        self._received = b""

    def receive(self, data: bytes) -> Outcome | None:
        """Process bytes; return ``None`` until the request is complete."""
        self._received += data
        foreign = self._foreign()
        if foreign is not None:
            return foreign
        end = _HEAD_END.search(self._received)
        size = len(self._received) if end is None else end.end()
        if size > self._listener.max_handshake_bytes:
            return _refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request is too long")
        if end is None:
            return None
        return self._answer(self._received[:size], self._received[size:])

    def _foreign(self) -> Refused | None:
        """Return the response to another protocol, if it is recognised."""
        if _STOMP.match(self._received):
            headers = {
                "message": _PLAIN,
                "stompkit-code": "wrong-protocol",
                "content-type": "text/plain",
            }
            return Refused(encode(Frame("ERROR", headers), "1.0", eol=True), _PLAIN)
        for pattern, sentence in _FOREIGN:
            if pattern.match(self._received):
                return _refused(HTTPStatus.BAD_REQUEST, sentence)
        return None

    def _answer(self, head: bytes, rest: bytes) -> Outcome:
        parser = h11.Connection(h11.SERVER, self._listener.max_handshake_bytes)
        parser.receive_data(head)
        try:
            request = parser.next_event()
        except h11.RemoteProtocolError as error:
            return _refused(HTTPStatus.BAD_REQUEST, f"{_PORT}, and this is no HTTP/1.1: {error}")
        if not isinstance(request, h11.Request):
            return _refused(HTTPStatus.BAD_REQUEST, f"{_PORT}, and this is no request of HTTP/1.1")
        values: dict[bytes, list[str]] = defaultdict(list)
        for name, value in request.headers:
            values[name].append(value.decode("latin-1"))
        refused = self._refusal(request, values)
        if refused is not None:
            return refused
        subprotocol = None
        if offered := _tokens(values[b"sec-websocket-protocol"]):
            subprotocol = next((each for each in SUBPROTOCOLS if each in offered), None)
            if subprotocol is None:
                return _refused(
                    HTTPStatus.BAD_REQUEST,
                    f"{_PORT}: of the sub-protocols {', '.join(SUBPROTOCOLS)} the client offers"
                    " none",
                )
        handshake = H11Handshake(ConnectionType.SERVER)
        needed = [(name, value) for name, value in request.headers if name in _NEEDED]
        try:
            handshake.initiate_upgrade_connection(needed, request.target)
            answer = handshake.send(AcceptConnection(subprotocol=subprotocol))
        except (RemoteProtocolError, h11.LocalProtocolError, ValueError) as error:
            return _refused(HTTPStatus.BAD_REQUEST, f"{_PORT}, and this is none: {error}")
        assert handshake.connection is not None  # the request has been accepted
        return Accepted(answer, handshake.connection, rest)

    def _refusal(self, request: h11.Request, values: dict[bytes, list[str]]) -> Refused | None:
        """Return the response to a request refused for its content or its origin, or None."""
        path = self._listener.path
        if request.method != b"GET":
            return _refused(HTTPStatus.METHOD_NOT_ALLOWED, f"{_PORT}, no web pages", "Allow: GET")
        upgrades = "upgrade" in _tokens(values[b"connection"], lower=True)
        if not upgrades or "websocket" not in _tokens(values[b"upgrade"], lower=True):
            return _refused(
                HTTPStatus.UPGRADE_REQUIRED,
                f"{_PORT}, no web pages: have a client of STOMP connect to it, stomp.js for"
                f" example, by ws:// or wss:// and the path {path}",
                "Upgrade: websocket",
            )
        if values[b"sec-websocket-version"] != [_VERSION]:
            return _refused(
                HTTPStatus.UPGRADE_REQUIRED,
                f"{_PORT} of version {_VERSION} (RFC 6455)",
                "Upgrade: websocket",
                f"Sec-WebSocket-Version: {_VERSION}",
            )
        if request.target.partition(b"?")[0] != path.encode("ascii"):
            return _refused(HTTPStatus.NOT_FOUND, f"{_PORT} at the path {path}, and nowhere else")
        origins, hosts = values[b"origin"], values[b"host"]
        host = hosts[0] if len(hosts) == 1 else ""
        if not self._is_called(host_of(host)):
            return _refused(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"{_PORT}, and is not called {host[:200]!r}: if it should be, add that to hosts",
            )
        if len(origins) > 1 or not all(
            self._origins.allows(each, host, on_loopback=self._on_loopback) for each in origins
        ):
            return _refused(
                HTTPStatus.FORBIDDEN,
                f"Pages of the origin {origins[0][:200]!r} may not connect here: if they shall,"
                " add it to allow_origins",
            )
        return None

    def _is_called(self, host: str) -> bool:
        """Return True if a host name is valid for this port."""
        names = set(map(host_of, self._listener.hosts))
        if not names or host in names:
            return True
        return self._on_loopback and bool(host) and is_local_name(host)


def _tokens(values: list[str], *, lower: bool = False) -> list[str]:
    """Return the items of a list header, which may occur several times."""
    items = [item.strip() for value in values for item in value.split(",")]
    return [item.lower() if lower else item for item in items if item]


def _refused(status: HTTPStatus, reason: str, *headers: str) -> Refused:
    return Refused(http_answer(status, reason, *headers), reason)


def http_answer(status: HTTPStatus, text: str, *headers: str) -> bytes:
    """Return a complete HTTP response, after which the connection closes."""
    body = f"{text}.\n".encode()
    upgrades = any(each.startswith("Upgrade:") for each in headers)
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        *headers,
        f"Connection: {'Upgrade, close' if upgrades else 'close'}",
        "Content-Type: text/plain; charset=utf-8",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body
