"""The real broker, on a clock that stands still."""

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
    """A broker whose clients live in the same process and whose time stands still.

    ``clock`` is the :class:`twisted.internet.task.Clock` that heart-beats and deadlines go by;
    ``broker`` is the domain object behind the protocol.
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
        """Make a broker without clients; one with a ``store`` opens it.

        ``half_close`` says whether its transports can close one way only, as those of TCP can
        and those of TLS can't.  ``runner`` is one that calls the store at once if not given.  A
        broker that begins where another has ended is given the other's ``clock``. ``make`` is
        called as :class:`stompkit.server.BrokerFactory` is, and may make another one.
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
        """Open a connection on which nothing has been sent yet; ``address`` is the client's."""
        self._last_port += 1
        peer = IPv4Address("TCP", address, self._last_port)
        return MemoryClient(
            self._factory.buildProtocol(peer),
            self._transport(self.clock, peer),
            eol_after_frames=self.broker.config.eol_after_frames,
        )

    def client(self, version: str = "1.2", /, **headers: str) -> MemoryClient:
        """Open a connection and log in.

        ``version`` is the value of ``accept-version``; ``headers`` are further ones of the
        CONNECT frame, with ``_`` for ``-`` in their names. Raises ``ConnectionRefusedError``
        with what the ERROR frame says if the broker answers with one.
        """
        client = self.connect()
        own = {"accept-version": version, "host": "memory"}
        client.send("CONNECT", own | named(headers))
        if client.version is None:
            error = client.error
            raise ConnectionRefusedError(error.headers["message"] if error else "no answer")
        return client
