"""HTTP of the admin port: every request is answered, and no reply reports an internal error.

An input is the bytes of several connections, one after the other; the broker has two clients.
"""

from __future__ import annotations

import re
from typing import Final, cast

from twisted.internet import reactor
from twisted.internet.address import IPv4Address
from twisted.internet.base import ReactorBase
from twisted.internet.interfaces import IReactorTime

from fuzz._driver import main
from fuzz._input import pieces
from fuzz._logs import no_errors
from stompkit.server.admin.context import Context
from stompkit.server.admin.events import Streams
from stompkit.server.admin.guard import Guard
from stompkit.server.admin.resource import Front
from stompkit.server.admin.roles import AdminTokens
from stompkit.server.admin.routes import ROUTES
from stompkit.server.admin.site import AdminSite
from stompkit.server.admin.statistics import Statistics
from stompkit.server.login.login_limiter import LoginLimiter
from stompkit.server.settings.admin import AdminSettings
from stompkit.server.settings.login_limiter import ThrottleSettings
from stompkit.server.settings.process import Settings
from stompkit.testing.memory import MemoryBroker
from stompkit.testing.memory._transport import MemoryTransport

__all__ = ["SEEDS", "check"]

_NEXT: Final = b"\xfe"
_TOKEN: Final = "sixteen-letters-x"
_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
_LINES: Final = f"Host: localhost\r\nAuthorization: Bearer {_TOKEN}\r\n"


def _get(path: str, more: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\n{_LINES}{more}\r\n".encode()


def _post(path: str, body: str) -> bytes:
    lines = f"Content-Type: application/json\r\nContent-Length: {len(body.encode())}\r\n"
    return f"POST /api/v1/{path} HTTP/1.1\r\n{_LINES}{lines}\r\n{body}".encode()


_PATHS: Final = (
    *(path for path, routes in ROUTES.items() if "GET" in routes),
    "/", "/index.html", "/health", "/ready", "/openapi.json", "/api/v1/events?frames=true",
    "/api/v1/destination?name=/queue/a", "/api/v1/messages?name=/queue/a&limit=2&max_body_octets=1",
    "/api/v1/destinations?contains=a&sort=ready&order=desc&offset=0&limit=1&host=",
    "/api/v1/subscriptions?destination=/queue/a&connection=x", "/..%2f?%ff=%00", "/metrics",
)  # fmt: skip
SEEDS: Final = (
    *(bytes((number % 2, 0)) + _get(path) for number, path in enumerate(_PATHS)),
    b"\0\3"
    + _NEXT.join(
        (
            _post("purge", '{"name":"/queue/a"}'),
            _post("move", '{"from":"/queue/a","to":"/queue/b","selector":"a = 1","limit":1}'),
            _post("move", '{"from":"/queue/a","to":"/queue/b","ids":["x"]}'),
            _post("retry", '{"name":"/dlq/a"}') + _post("pause", '{"name":"/queue/a"}'),
            _post("resume", '{"name":"/queue/a","host":""}'),
            _post("delete", '{"name":"/queue/a"}'),
            _post("delete-messages", '{"name":"/queue/a","ids":["1"]}'),
            _post("close", '{"connection":"1","reason":"x"}')
            + _post("durables/delete", '{"name":"x"}'),
        )
    ),
    b"\0\0HEAD / HTTP/1.0\r\n\r\n" + _NEXT + b"GET / HTTP/1.1\r\nHost: evil\r\n\r\n",
    b"\1\7POST /api/v1/purge HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
)


def check(data: bytes) -> None:
    """Send requests, and check the responses."""
    settings, size, rest = *data[:2].ljust(2, b"\0"), data[2:]
    with no_errors():
        broker = _broker()
        site, statistics = _site(broker, is_guarded=bool(settings & 1))
        statistics.start()
        for number, octets in enumerate(rest.split(_NEXT)[:8]):
            peer = IPv4Address("TCP", "127.0.0.1", 40_000 + number)
            transport = MemoryTransport(broker.clock, peer)
            channel = site.buildProtocol(peer)
            transport.open(channel)
            for piece in pieces(octets, bytes((size,))) if size else [octets]:
                transport.deliver(piece)
            broker.clock.advance(1)
            _check_answers(transport.take())
            transport.lose(ConnectionError())
        broker.clock.advance(100)
        statistics.stop()
        assert not site.channels
        assert broker.broker.frame_watch is None
        # Twisted makes the real reactor wait for the ends of connections. It does not run here, and
        # would keep cancelled calls.
        cast("ReactorBase", reactor).runUntilCurrent()


def _broker() -> MemoryBroker:
    broker = MemoryBroker()
    client = broker.client()
    for body in (b"one", b"\xff\0", b"three"):
        client.publish("/queue/a", body, a="1")
    client.publish("/dlq/a", b"dead")
    client.subscribe("/queue/c", ack="client")
    client.publish("/queue/c", b"held")
    client.subscribe("/topic/t.>", id="1", selector="a = 1")
    return broker


def _site(broker: MemoryBroker, *, is_guarded: bool) -> tuple[AdminSite, Statistics]:
    clock = cast("IReactorTime", broker.clock)
    settings = AdminSettings(max_body_bytes=500, max_streams=2)
    statistics = Statistics(broker.broker, clock, settings.max_followed)
    context = Context(broker.broker, Settings(admin=settings), statistics, lambda: None, clock)
    throttle = LoginLimiter(ThrottleSettings())
    tokens = AdminTokens(_TOKEN.encode())
    guard = Guard((lambda: tokens) if is_guarded else None, (), throttle, clock.seconds)
    front = Front(context, guard, Streams(context, settings))
    return AdminSite(front, settings, clock), statistics


def _check_answers(octets: bytes) -> None:
    for status in _STATUS.findall(octets):
        assert status not in (b"500", b"501"), octets
    if b"text/html" in octets:
        assert b"content-security-policy" in octets.lower()


if __name__ == "__main__":
    main(__file__)
