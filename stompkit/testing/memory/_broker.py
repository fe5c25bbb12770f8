"""The real broker, on a clock that only tests advance."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock

from stompkit.server import (
    Authenticator,
    Authoriser,
    Broker,
    BrokerConfig,
    BrokerFactory,
    Destination,
    InlineRunner,
    MessageStore,
    StoreRunner,
)
from stompkit.testing.memory._client import MemoryClient, named
from stompkit.testing.memory._transport import HalfCloseableTransport, MemoryTransport

__all__ = ["MemoryBroker"]

_FIRST_PORT = 50_000


class MemoryBroker:
    """A broker in the same process as its clients, on a clock that only tests advance.

    ``clock`` is the :class:`twisted.internet.task.Clock` for heart-beats and deadlines; ``broker``
    is the domain object behind the protocol.
    """

    def __init__(
        self,
        config: BrokerConfig | None = None,
        *,
        half_close: bool = True,
        clock: Clock | None = None,
        store: MessageStore | None = None,
        runner: StoreRunner | None = None,
        authenticator: Authenticator | None = None,
        authoriser: Authoriser | None = None,
        make: Callable[..., BrokerFactory] = BrokerFactory,
    ) -> None:
        """Create a broker without clients; one with a ``store`` opens it.

        ``half_close`` is true if its transports can close one direction only, as those of TCP can
        and those of TLS cannot.  ``runner`` by default calls the store synchronously.  A broker
        that continues after the end of another gets the other's ``clock``. ``make`` is called as
        :class:`stompkit.server.BrokerFactory` is, and may create a different factory.
        """
        self.clock = Clock() if clock is None else clock
        if store is not None and runner is None:
            runner = InlineRunner()
        self._factory = make(
            config,
            cast("IReactorTime", self.clock),
            store=store,
            runner=runner,
            authenticator=authenticator,
            authoriser=authoriser,
        )
        self._factory.broker.open()
        self._transport = HalfCloseableTransport if half_close else MemoryTransport
        self._last_port = _FIRST_PORT

    @property
    def broker(self) -> Broker:
        """The broker's domain: destinations, connections, configuration."""
        return self._factory.broker

    @property
    def destinations(self) -> dict[str, Destination]:
        """The destinations of the first virtual host, by their names."""
        return next(iter(self.broker.hosts.values())).destinations

    def connect(self, address: str = "127.0.0.1") -> MemoryClient:
        """Open a connection on which nothing has been sent; ``address`` is the client's."""
        self._last_port += 1
        peer = IPv4Address("TCP", address, self._last_port)
        return MemoryClient(
            self._factory.buildProtocol(peer),
            self._transport(self.clock, peer),
            eol_after_frames=self.broker.config.eol_after_frames,
        )

    def client(self, version: str = "1.2", /, **headers: str) -> MemoryClient:
        """Open a connection and log in.

        ``version`` is the value of ``accept-version``; ``headers`` are added to the CONNECT frame,
        with ``_`` for ``-`` in their names. Raises ``ConnectionRefusedError`` with the text of the
        ERROR frame if the broker answers with one.
        """
        client = self.connect()
        own = {"accept-version": version, "host": "memory"}
        client.send("CONNECT", own | named(headers))
        if client.version is None:
            error = client.error
            raise ConnectionRefusedError(error.headers["message"] if error else "no answer")
        return client
