"""The admin interface of a broker in memory."""

from __future__ import annotations

from typing import cast

from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IReactorTime

from stompkit.server.admin.context import Context
from stompkit.server.admin.events import Streams
from stompkit.server.admin.guard import Guard
from stompkit.server.admin.resource import Front
from stompkit.server.admin.roles import AdminTokens
from stompkit.server.admin.site import AdminSite
from stompkit.server.admin.statistics import Statistics
from stompkit.server.login.login_limiter import LoginLimiter
from stompkit.server.settings.admin import AdminSettings
from stompkit.server.settings.login_limiter import ThrottleSettings
from stompkit.server.settings.process import Settings
from stompkit.testing.memory import MemoryBroker, MemoryTransport

__all__ = ["admin_connection"]


def admin_connection(broker: MemoryBroker, read_token: bytes | None = None) -> MemoryTransport:
    """Return a connection to the admin interface; with the token of readers, there are two."""
    clock = cast("IReactorTime", broker.clock)
    settings = AdminSettings()
    statistics = Statistics(broker.broker, clock, settings.max_followed)
    context = Context(broker.broker, Settings(), statistics, lambda: None, clock)
    tokens = AdminTokens(b"the-token-of-operators", read_token)
    limiter = LoginLimiter(ThrottleSettings())
    guard = Guard(None if read_token is None else lambda: tokens, (), limiter, clock.seconds)
    front = Front(context, guard, Streams(context, settings))
    peer = IPv4Address("TCP", "127.0.0.1", 1)
    transport = MemoryTransport(broker.clock, peer)
    transport.open(AdminSite(front, settings, clock).buildProtocol(peer))
    return transport
