"""Listening behind a load balancer that says who has connected: ``haproxy:`` endpoints.

Twisted's own wrapper of that name counts all clients under the address of the load balancer, wants
the beginning of a header in one piece, breaks on headers of other families, and looks for it within
TLS, where a load balancer does not put it.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any, Final, cast

from twisted.internet.interfaces import (
    IAddress,
    IProtocol,
    IReactorTime,
    ITransport,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import directlyProvides, providedBy

from stompkit._common import PeerDeadline, has_unread
from stompkit.server.interfaces import Clock
from stompkit.server.listen.proxy_header import BadHeader, Header, read_header
from stompkit.server.process.rate_limited_log import RateLimitedLog

__all__ = ["HEADER_TIMEOUT_S", "MOST_WAITING", "ProxiedReactor", "Proxies"]

#: Seconds until the header has to be there: a load balancer sends it at once.
HEADER_TIMEOUT_S: Final = 5.0
#: Connections whose header has not come yet; the broker's own limits count those that have one.
MOST_WAITING: Final = 4_096

#: The load balancers that are believed; none for everybody who can connect.
Proxies = Sequence[IPv4Network | IPv6Network]


class ProxiedReactor:
    """A reactor with which endpoints listen for connections that begin with a header.

    It stands between an endpoint and the real one, so that the header comes first of all, in front
    of TLS.
    """

    def __init__(self, reactor: Any, proxies: Proxies) -> None:
        """Take the real one."""
        self._reactor = reactor
        self._proxies = proxies
        directlyProvides(self, providedBy(reactor))

    def __getattr__(self, name: str) -> Any:
        """Everything else is the real one's."""
        return getattr(self._reactor, name)

    def listenTCP(self, port: int, factory: Factory, *others: Any, **named: Any) -> Any:
        """Listen."""
        return self._reactor.listenTCP(port, self._wrapped(factory), *others, **named)

    def listenUNIX(self, address: str, factory: Factory, *others: Any, **named: Any) -> Any:
        """Listen at a Unix socket."""
        return self._reactor.listenUNIX(address, self._wrapped(factory), *others, **named)

    def adoptStreamPort(self, descriptor: int, family: int, factory: Factory) -> Any:
        """Listen at a socket that somebody has handed over."""
        return self._reactor.adoptStreamPort(descriptor, family, self._wrapped(factory))

    def listenSSL(
        self, port: int, factory: Factory, contextFactory: Any, *others: Any, **named: Any
    ) -> Any:
        """Listen for TLS that follows the header."""
        from twisted.protocols.tls import TLSMemoryBIOFactory

        encrypted: Any = TLSMemoryBIOFactory(contextFactory, False, factory)
        return self.listenTCP(port, encrypted, *others, **named)

    def _wrapped(self, factory: Factory) -> Factory:
        return HeaderFactory(factory, self._proxies, cast("IReactorTime", self._reactor))


class HeaderFactory(Factory):
    """Makes what reads the header of each connection, and then has ``inner`` go on."""

    noisy = False

    def __init__(self, inner: Factory, proxies: Proxies, clock: IReactorTime) -> None:
        """Take the factory of those who are behind the header, and who may send one."""
        self.inner = inner
        self.clock = clock
        self.waiting = 0
        self.refusals = RateLimitedLog(cast("Clock", clock))
        self._proxies = proxies

    def doStart(self) -> None:
        """Begin to listen, with the other."""
        super().doStart()  # type: ignore[no-untyped-call]  # Twisted's
        self.inner.doStart()  # type: ignore[no-untyped-call]  # Twisted's

    def doStop(self) -> None:
        """Listen no more, with the other."""
        self.inner.doStop()  # type: ignore[no-untyped-call]  # Twisted's
        super().doStop()  # type: ignore[no-untyped-call]  # Twisted's

    def buildProtocol(self, addr: IAddress | None) -> Protocol | None:
        """Make what waits for a header; nobody else than the load balancers is let in."""
        if self.waiting >= MOST_WAITING:
            self.refusals.warn("{peer} is turned away: too many wait for their header", peer=addr)
            return None
        if not self._is_trusted(addr):
            self.refusals.warn(
                "{peer} is turned away: it is none of the proxies of this endpoint", peer=addr
            )
            return None
        return HeaderProtocol(self, addr)

    def _is_trusted(self, addr: IAddress | None) -> bool:
        host = getattr(addr, "host", None)
        if not self._proxies or host is None:
            return True
        peer = ip_address(host.partition("%")[0])
        peer = getattr(peer, "ipv4_mapped", None) or peer
        return any(peer in network for network in self._proxies)


class HeaderProtocol(Protocol):
    """Waits for the header, and hands the connection over to whom it is for."""

    #: The user's name: nobody knows it yet.
    who: Final = ""

    def __init__(self, factory: HeaderFactory, addr: IAddress | None) -> None:
        """Wait for a connection from this address."""
        self._factory = factory
        self._addr = addr
        self._data = b""
        self._inner: IProtocol | None = None
        self._timeout: PeerDeadline | None = None

    def connectionMade(self) -> None:
        """Begin to wait."""
        self._factory.waiting += 1
        clock = cast("Clock", self._factory.clock)
        self._timeout = PeerDeadline(clock, lambda: has_unread(self.transport), self._too_late)
        self._timeout.start(HEADER_TIMEOUT_S)

    def dataReceived(self, data: bytes) -> None:
        """Take what may be only a part of the header."""
        if self._inner is not None:
            self._inner.dataReceived(data)
            return
        if self._timeout is None:
            # It was turned away, and sends on.
            return
        self._data += data
        try:
            header = read_header(self._data)
        except BadHeader as error:
            self._turn_away(str(error))
            return
        if header is not None:
            self._hand_over(header)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell whom it is for, if that is known."""
        self._waits_no_more()
        if self._inner is not None:
            self._inner.connectionLost(reason)

    def _hand_over(self, header: Header) -> None:
        self._waits_no_more()
        transport = cast("Any", self.transport)
        source = self._addr if header.source is None else header.source
        inner = self._factory.inner.buildProtocol(cast("IAddress", source))
        rest, self._data = self._data[header.length :], b""
        if inner is None:
            transport.loseConnection()
            return
        self._inner = inner
        # From now on the transport talks to who is behind the header, and this is not in between.
        transport.protocol = inner
        inner.makeConnection(cast("ITransport", ProxiedTransport(transport, header)))
        if rest:
            inner.dataReceived(rest)

    def _too_late(self) -> None:
        self._turn_away(f"it was not there within {HEADER_TIMEOUT_S:g} seconds")

    def _turn_away(self, why: str) -> None:
        self._waits_no_more()
        self._data = b""
        self._factory.refusals.info(
            "{peer} is turned away: no PROXY header: {why}", peer=self._addr, why=why
        )
        cast("Any", self.transport).abortConnection()

    def _waits_no_more(self) -> None:
        if self._timeout is None:
            return
        self._factory.waiting -= 1
        self._timeout.cancel()
        self._timeout = None


class ProxiedTransport:
    """A transport that says whom the load balancer has said."""

    def __init__(self, transport: Any, header: Header) -> None:
        """Take the transport, and what the header says."""
        self._transport = transport
        self._header = header
        directlyProvides(self, providedBy(transport))
        # Called for every message.
        self.write = transport.write
        self.writeSequence = transport.writeSequence

    def __getattr__(self, name: str) -> Any:
        """Everything else is the real one's."""
        return getattr(self._transport, name)

    def getPeer(self) -> Any:
        """The client."""
        return self._header.source or self._transport.getPeer()

    def getHost(self) -> Any:
        """What the client has connected to."""
        return self._header.target or self._transport.getHost()
