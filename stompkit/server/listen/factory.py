"""The Twisted factory of the broker: a broker, and protocols for its clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import Factory, Protocol

from stompkit._common.addresses import address_text
from stompkit.server.domain.broker import Broker
from stompkit.server.domain.session.connection import Connection
from stompkit.server.interfaces import (
    Authenticator,
    Authoriser,
    Clock,
    MessageStore,
    StoreError,
    StoreRunner,
)
from stompkit.server.listen.paced_timers import PacedTimers
from stompkit.server.listen.protocol import BrokerProtocol
from stompkit.server.settings.broker import BrokerConfig

__all__ = ["BrokerFactory"]


class BrokerFactory(Factory):
    """Creates a :class:`BrokerProtocol` for each client; pass it to a Twisted endpoint."""

    noisy = False

    def __init__(
        self,
        config: BrokerConfig | None = None,
        clock: IReactorTime | None = None,
        *,
        store: MessageStore | None = None,
        runner: StoreRunner | None = None,
        sync_interval_s: float | None = None,
        authenticator: Authenticator | None = None,
        authoriser: Authoriser | None = None,
        connection: type[Connection] = Connection,
        closing_clock: IReactorTime | None = None,
    ) -> None:
        """Create a broker; ``clock`` is the reactor by default.

        ``connection`` is the class that serves a client; a subclass can change its behaviour.
        ``closing_clock`` is the clock for closing a connection, which limits the time to deliver
        its last frame; by default ``clock``. The other arguments are as in :class:`Broker`.
        """
        if clock is None:
            from twisted.internet import reactor

            clock = cast("IReactorTime", reactor)
        self.broker = Broker(
            config,
            cast("Clock", clock),
            store=store,
            runner=runner,
            sync_interval_s=sync_interval_s,
            authenticator=authenticator,
            authoriser=authoriser,
        )
        self._clock = clock
        # Unauthenticated connections made by the thousand also time out by the thousand.
        self._login_clock = PacedTimers(cast("Clock", clock))
        self._closing_clock = PacedTimers(
            cast("Clock", clock if closing_clock is None else closing_clock)
        )
        self._connection = connection

    def buildProtocol(self, addr: IAddress | None) -> Protocol:
        """Return the protocol of one client."""
        protocol = BrokerProtocol(
            self.broker,
            self._clock,
            getattr(addr, "host", ""),
            address=address_text(addr),
            connection=self._connection,
            closing_clock=self._closing_clock,
            login_clock=self._login_clock,
        )
        protocol.factory = self
        return protocol

    def disconnect_all(self, message: str, code: str) -> None:
        """Close every connection with an ERROR."""
        for connection in list(self.broker.connections):
            connection.fail(message, code)
        self.broker.flush()

    def reset(self, done: Callable[[StoreError | None], None] | None = None) -> None:
        """Reset the broker, as :meth:`Broker.reset` does."""
        self.broker.reset(done)
