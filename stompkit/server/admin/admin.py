"""Start and stop the admin HTTP interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from twisted.internet.interfaces import IListeningPort, IReactorCore, IReactorTime
from twisted.internet.task import deferLater

from stompkit._common.addresses import address_text
from stompkit.server.admin.context import Context
from stompkit.server.admin.events import Streams
from stompkit.server.admin.guard import Guard
from stompkit.server.admin.resource import Front
from stompkit.server.admin.roles import watched_tokens
from stompkit.server.admin.site import AdminSite
from stompkit.server.admin.statistics import Statistics
from stompkit.server.domain.broker import Broker
from stompkit.server.domain.errors import RefusedError
from stompkit.server.listen.endpoints import endpoint_of
from stompkit.server.listen.listeners import ListenError, reason_of
from stompkit.server.log import process_events
from stompkit.server.process.activation import Activation
from stompkit.server.process.assembly import Access
from stompkit.server.settings.process import Settings

__all__ = ["Admin"]

#: Time in seconds for the last answers to leave the process.
_LEAVING_S: Final = 0.1


class Admin:
    """Serves the admin HTTP interface of one broker at its endpoints."""

    def __init__(
        self,
        broker: Broker,
        settings: Settings,
        trouble: Callable[[], str | None],
        reactor: IReactorTime,
        access: Callable[[], Access] | None = None,
        activation: Activation | None = None,
    ) -> None:
        """Create the interface without listening; ``trouble`` returns why the broker is not ready.

        ``access`` returns the access control of clients that is in force. ``activation`` competes
        with other brokers of the store. Raises OSError or
        ValueError if a token cannot be read.
        """
        own = settings.admin
        tokens = watched_tokens(own)
        self._reactor = reactor
        self._endpoints = own.endpoints
        self._statistics = Statistics(broker, reactor, own.max_followed)
        self._context = context = Context(
            broker, settings, self._statistics, trouble, reactor, access, activation
        )
        self._streams = Streams(context, own)
        guard = Guard(tokens, own.hosts, context.login_limiter, reactor.seconds)
        front = Front(context, guard, self._streams)
        self._site = AdminSite(front, own, reactor)
        self.ports: list[IListeningPort] = []

    async def start(self) -> None:
        """Listen; raises :class:`ListenError` for an endpoint that cannot be opened."""
        for description in self._endpoints:
            endpoint = endpoint_of(cast("IReactorCore", self._reactor), description)
            try:
                self.ports.append(await endpoint.listen(self._site))
            except Exception as error:
                reason = reason_of(error, "--admin")
                raise ListenError(
                    f"cannot listen on {description} for the admin interface: {reason}"
                ) from error
        self._statistics.start()
        for port in self.ports:
            process_events.listening(address=address_text(port.getHost()), protocol="HTTP")

    async def stop(self) -> None:
        """Close all endpoints and connections."""
        self._statistics.stop()
        self._streams.close()
        for port in self.ports:
            stopped = port.stopListening()
            if stopped is not None:
                await stopped
        if self._context.give_up(RefusedError("the broker is shutting down", "shutting-down")):
            await deferLater(self._reactor, _LEAVING_S)
        self._site.close()
