"""The Twisted factory of STOMP over WebSocket."""

from __future__ import annotations

from typing import cast

from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import Factory, Protocol

from stompkit.server.interfaces import Clock
from stompkit.server.listen.factory import BrokerFactory
from stompkit.server.listen.origins import Origins
from stompkit.server.listen.paced_timers import PacedTimers
from stompkit.server.listen.protocol import BrokerProtocol
from stompkit.server.settings.websocket import WebSocketListener
from stompkit.server.websocket.protocol import WebSocketProtocol

__all__ = ["WebSocketFactory"]


class WebSocketFactory(Factory):
    """Creates a :class:`WebSocketProtocol` for each client; pass it to a Twisted endpoint."""

    noisy = False

    def __init__(
        self,
        factory: BrokerFactory,
        listener: WebSocketListener | None = None,
        clock: IReactorTime | None = None,
        *,
        closing_clock: IReactorTime | None = None,
    ) -> None:
        """Connect clients to the broker of ``factory``; raises ValueError for an invalid origin.

        ``listener`` has the settings; its ``endpoint`` is ignored. ``clock`` is the reactor by
        default, ``closing_clock`` is as in :class:`BrokerFactory`.
        """
        if clock is None:
            from twisted.internet import reactor

            clock = cast("IReactorTime", reactor)
        self._factory = factory
        self._listener = WebSocketListener(endpoint="") if listener is None else listener
        self._origins = Origins(self._listener.allow_origins)
        self._clock = clock
        self._closing_clock = PacedTimers(
            cast("Clock", clock if closing_clock is None else closing_clock)
        )

    def buildProtocol(self, addr: IAddress | None) -> Protocol:
        """Return the protocol of one client."""
        config = self._factory.broker.config
        protocol = WebSocketProtocol(
            cast("BrokerProtocol", self._factory.buildProtocol(addr)),
            self._listener,
            self._origins,
            self._clock,
            self._closing_clock,
            linger_s=config.linger_s,
            drain_timeout_s=config.drain_timeout_s,
        )
        protocol.factory = self
        return protocol
