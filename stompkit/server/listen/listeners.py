"""The listening endpoints of a broker, by protocol."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple, TypeGuard, cast

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import (
    IListeningPort,
    IProtocolFactory,
    IReactorCore,
    IReactorTime,
)

from stompkit._common.addresses import address_text
from stompkit.server.listen.endpoints import PROXIED, accept_few, endpoint_of
from stompkit.server.listen.factory import BrokerFactory
from stompkit.server.listen.fair_poller import schedule_fairly
from stompkit.server.listen.tcp_transport import copy_less
from stompkit.server.log import process_events
from stompkit.server.settings.beanstalk import BeanstalkSettings
from stompkit.server.settings.process import Endpoint, Settings

if TYPE_CHECKING:
    from stompkit.server.beanstalk import BeanstalkFactory

__all__ = ["ListenError", "Listeners", "addresses", "reason_of"]


#: Protocols: the key in the announce file, and the name in the log.
_STOMP: Final = ("endpoints", "STOMP")
_WEBSOCKET: Final = ("websocket", "WebSocket")
_BEANSTALK: Final = ("beanstalk", "beanstalk")


class ListenError(Exception):
    """An endpoint cannot be opened; the message names it and the reason."""


class _Listener(NamedTuple):
    """One open endpoint."""

    spoken: tuple[str, str]
    where: Endpoint
    port: IListeningPort


class Listeners:
    """All client endpoints of a broker, for every protocol."""

    def __init__(
        self, settings: Settings, factory: BrokerFactory, clock: IReactorTime, reactor: IReactorTime
    ) -> None:
        """Create without listening; ``clock`` is for client deadlines, except WebSocket closing."""
        self._settings = settings
        self._factory = factory
        self._clock = clock
        self._reactor = reactor
        self._listeners: list[_Listener] = []
        self._beanstalk: BeanstalkFactory | None = None
        self._is_stopped = False

    @property
    def is_stopped(self) -> bool:
        """True once :meth:`stop` was called."""
        return self._is_stopped

    async def listen(self) -> bool:
        """Open all endpoints; return False if stopped meanwhile.

        Raises :class:`ListenError`.
        """
        reactor = cast("IReactorCore", self._reactor)
        schedule_fairly(reactor)
        for spoken, where, factory in self._wanted():
            try:
                port = await endpoint_of(reactor, where.endpoint, where.proxies).listen(factory)
            except Exception as error:
                raise ListenError(
                    f"cannot listen on {where.endpoint}: {reason_of(error)}"
                ) from error
            accept_few(port)
            copy_less(port, lambda: self._factory.broker.config.drain_timeout_s)
            self._listeners.append(_Listener(spoken, where, port))
            if self._is_stopped:
                await self.stop()
                return False
        for listener in self._listeners:
            self._log_address(listener)
        return True

    def _wanted(self) -> Iterator[tuple[tuple[str, str], Endpoint, IProtocolFactory]]:
        """Yield the protocol, endpoint and factory of each configured listener."""
        settings = self._settings
        for where in settings.listening:
            yield _STOMP, where, self._factory
        for each in settings.websockets:
            # Imported on demand, since wsproto is an optional dependency.
            from stompkit.server.websocket import WebSocketFactory

            factory = WebSocketFactory(
                self._factory, each, self._clock, closing_clock=self._reactor
            )
            yield _WEBSOCKET, Endpoint(endpoint=each.endpoint), factory
        beanstalk = settings.beanstalk
        if beanstalk.endpoints:
            # Imported on demand, since most brokers do not need it.
            from stompkit.server.beanstalk import BeanstalkFactory

            self._beanstalk = BeanstalkFactory(self._factory.broker, beanstalk, self._clock)
            for description in beanstalk.endpoints:
                yield _BEANSTALK, Endpoint(endpoint=description), self._beanstalk

    def change_beanstalk(self, new: BeanstalkSettings) -> None:
        """Apply new settings for beanstalkd clients; their endpoints stay open."""
        if self._beanstalk is not None:
            self._beanstalk.hub.configure(new)
            self._factory.broker.flush()

    def announcement(self) -> dict[str, object]:
        """Return the open endpoints by protocol; ``endpoints`` has those for STOMP over TCP."""
        announced: dict[str, object] = {"endpoints": []}
        for spoken in (_STOMP, _WEBSOCKET, _BEANSTALK):
            if ports := self._ports(spoken):
                announced[spoken[0]] = addresses(ports)
        return announced

    def __str__(self) -> str:
        """Return the endpoints for STOMP over TCP, on one line."""
        return ", ".join(address_text(each.getHost()) for each in self._ports(_STOMP))

    def _ports(self, spoken: tuple[str, str]) -> list[IListeningPort]:
        return [each.port for each in self._listeners if each.spoken is spoken]

    async def stop(self) -> None:
        """Close all endpoints, and open no more."""
        self._is_stopped = True
        listeners, self._listeners = self._listeners, []
        for each in listeners:
            stopped = each.port.stopListening()
            if stopped is not None:
                await stopped

    # Logging.

    def _log_address(self, listener: _Listener) -> None:
        address = listener.port.getHost()
        where_text = address_text(address)
        process_events.listening(address=where_text, protocol=listener.spoken[1])
        if not _is_reachable(address):
            return
        auth, where = self._settings.auth, listener.where
        if listener.spoken is not _BEANSTALK and not (auth.is_checked or auth.anonymous):
            process_events.open_endpoint(address=where_text)
        # Only these have a list of trusted proxies.
        is_believing = where.endpoint.startswith(PROXIED) and not where.proxies
        if listener.spoken is _STOMP and is_believing:
            process_events.trusting_endpoint(address=where_text)


def reason_of(error: Exception, option: str = "--endpoint") -> str:
    """Return the reason why an endpoint cannot be opened, with advice if possible."""
    number = getattr(getattr(error, "socketError", None), "errno", None)
    if number == errno.EADDRINUSE:
        return (
            "the address is in use. Stop the process that listens there, or choose another address"
            f" with {option} or in the file of --config."
        )
    if number == errno.EADDRNOTAVAIL:
        return "this machine does not have this address. Choose one of its own, or leave it out."
    if number == errno.EACCES:
        return "the port needs privileges. Choose one of 1024 or more, or start as its owner."
    if isinstance(error, FileNotFoundError):
        return "there is no such directory. Create it, or choose another path."
    return str(error)


def addresses(ports: Sequence[IListeningPort]) -> list[dict[str, object]]:
    """Return the addresses of ports: host and port, or the path of a Unix socket."""
    return [
        {"host": host.host, "port": host.port}
        if isinstance(host, IPv4Address | IPv6Address)
        else {"path": os.fsdecode(getattr(host, "name", b"") or b"")}
        for host in (port.getHost() for port in ports)
    ]


def _is_reachable(address: object) -> TypeGuard[IPv4Address | IPv6Address]:
    """Return True if other machines may connect to the address."""
    if not isinstance(address, IPv4Address | IPv6Address):
        return False
    return not ip_address(address.host.partition("%")[0]).is_loopback
