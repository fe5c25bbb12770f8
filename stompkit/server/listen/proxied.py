"""Listen behind a load balancer that sends the client's address: ``haproxy:`` endpoints.

Twisted's own wrapper of that name counts all clients under the address of the load balancer. It
also requires the beginning of a header in one piece, and fails on headers of other families. It
looks for the header inside TLS, where a load balancer does not put it.
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
from stompkit._common.addresses import address_text
from stompkit.server.interfaces import Clock
from stompkit.server.listen.proxy_header import Header, ProxyHeaderError, read_header
from stompkit.server.log import client_events
from stompkit.server.log.rate_limited_log import RateLimitedLog

__all__ = ["HEADER_TIMEOUT_S", "MOST_WAITING", "ProxiedReactor", "Proxies"]

#: Time in seconds within which the header must arrive: a load balancer sends it at once.
HEADER_TIMEOUT_S: Final = 5.0
#: Maximum number of connections without a header; those with one count for the broker's limits.
MOST_WAITING: Final = 4_096

#: The trusted load balancers; if empty, everybody who can connect is trusted.
Proxies = Sequence[IPv4Network | IPv6Network]


class ProxiedReactor:
    """A reactor for endpoints whose connections start with a header.

    It stands between an endpoint and the real reactor, so that the header is read before TLS
    starts.
    """

    def __init__(self, reactor: Any, proxies: Proxies) -> None:
        """Wrap the real reactor."""
        self._reactor = reactor
        self._proxies = proxies
        directlyProvides(self, providedBy(reactor))

    def __getattr__(self, name: str) -> Any:
        """Delegate all other attributes to the real reactor."""
        return getattr(self._reactor, name)

    def listenTCP(self, port: int, factory: Factory, *others: Any, **named: Any) -> Any:
        """Listen on a TCP port."""
        return self._reactor.listenTCP(port, self._wrapped(factory), *others, **named)

    def listenUNIX(self, address: str, factory: Factory, *others: Any, **named: Any) -> Any:
        """Listen on a Unix socket."""
        return self._reactor.listenUNIX(address, self._wrapped(factory), *others, **named)

    def adoptStreamPort(self, descriptor: int, family: int, factory: Factory) -> Any:
        """Listen on a socket passed by another process."""
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
    """Creates protocols that read the header, and then pass the connection to ``inner``."""

    noisy = False

    def __init__(self, inner: Factory, proxies: Proxies, clock: IReactorTime) -> None:
        """Keep the factory of the protocols behind the header, and the trusted load balancers."""
        self.inner = inner
        self.clock = clock
        self.waiting = 0
        self.refusals = RateLimitedLog(cast("Clock", clock))
        self._proxies = proxies

    def doStart(self) -> None:
        """Start together with the inner factory."""
        super().doStart()  # type: ignore[no-untyped-call]  # Twisted's
        self.inner.doStart()  # type: ignore[no-untyped-call]  # Twisted's

    def doStop(self) -> None:
        """Stop together with the inner factory."""
        self.inner.doStop()  # type: ignore[no-untyped-call]  # Twisted's
        super().doStop()  # type: ignore[no-untyped-call]  # Twisted's

    def buildProtocol(self, addr: IAddress | None) -> Protocol | None:
        """Return a protocol that waits for a header, or None for an untrusted peer."""
        if self.waiting >= MOST_WAITING:
            self.refusals.add(client_events.proxy_headers_late, peer=address_text(addr))
            return None
        if not self._is_trusted(addr):
            self.refusals.add(client_events.proxy_untrusted, peer=address_text(addr))
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
    """Waits for the header, and passes the connection to the inner protocol."""

    #: The user's name, which is not known yet.
    who: Final = ""

    def __init__(self, factory: HeaderFactory, addr: IAddress | None) -> None:
        """Wait for a connection from this address."""
        self._factory = factory
        self._addr = addr
        self._data = b""
        self._inner: IProtocol | None = None
        self._timeout: PeerDeadline | None = None

    def connectionMade(self) -> None:
        """Start to wait."""
        self._factory.waiting += 1
        clock = cast("Clock", self._factory.clock)
        self._timeout = PeerDeadline(clock, lambda: has_unread(self.transport), self._too_late)
        self._timeout.start(HEADER_TIMEOUT_S)

    def dataReceived(self, data: bytes) -> None:
        """Process a chunk, which may be only a part of the header."""
        if self._inner is not None:
            self._inner.dataReceived(data)
            return
        if self._timeout is None:
            # It has been rejected, and keeps sending.
            return
        self._data += data
        try:
            header = read_header(self._data)
        except ProxyHeaderError as error:
            self._refuse(str(error))
            return
        if header is not None:
            self._hand_over(header)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Notify the inner protocol, if there is one."""
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
        # From now on the transport calls the inner protocol directly.
        transport.protocol = inner
        inner.makeConnection(cast("ITransport", ProxiedTransport(transport, header)))
        if rest:
            inner.dataReceived(rest)

    def _too_late(self) -> None:
        self._refuse(f"it was not there within {HEADER_TIMEOUT_S:g} seconds")

    def _refuse(self, why: str) -> None:
        self._waits_no_more()
        self._data = b""
        self._factory.refusals.add(
            client_events.proxy_header_invalid, peer=address_text(self._addr), reason=why
        )
        cast("Any", self.transport).abortConnection()

    def _waits_no_more(self) -> None:
        if self._timeout is None:
            return
        self._factory.waiting -= 1
        self._timeout.cancel()
        self._timeout = None


class ProxiedTransport:
    """A transport that reports the addresses of the header."""

    def __init__(self, transport: Any, header: Header) -> None:
        """Wrap the transport, with the content of the header."""
        self._transport = transport
        self._header = header
        directlyProvides(self, providedBy(transport))
        # Cached, since it is called for every message.
        self.write = transport.write
        self.writeSequence = transport.writeSequence

    def __getattr__(self, name: str) -> Any:
        """Delegate all other attributes to the real transport."""
        return getattr(self._transport, name)

    def getPeer(self) -> Any:
        """Return the address of the client."""
        return self._header.source or self._transport.getPeer()

    def getHost(self) -> Any:
        """Return the address that the client connected to."""
        return self._header.target or self._transport.getHost()
