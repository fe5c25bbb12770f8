"""Endpoints to listen on, made of their descriptions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, cast

from twisted.internet.endpoints import serverFromString
from twisted.internet.interfaces import IListeningPort, IReactorCore, IStreamServerEndpoint
from twisted.internet.tcp import Port

__all__ = [
    "BACKLOG",
    "MOST_ACCEPTED",
    "PROXIED",
    "accept_few",
    "arguments_of",
    "described_with_backlog",
    "endpoint_of",
    "networks",
]

#: What a description begins with whose connections begin with a header of the PROXY protocol.
PROXIED: Final = "haproxy:"

#: Connections that may wait to be accepted where a description does not say how many. Clients
#: that all come back after a restart wait here; one that finds no room tries again after a second.
#: The kernel takes no more than net.core.somaxconn, which is as many on Linux.
BACKLOG: Final = 4096

#: Connections that are accepted in one turn of the reactor.
MOST_ACCEPTED: Final = 16

#: The endpoints that take a backlog, and how many arguments without a name come before it.
_BEFORE_BACKLOG: Final = {"tcp": 2, "tcp6": 1, "unix": 2, "ssl": 5, "stomps": 1}
_NOT_HANDED_OVER: Final = (
    "systemd has not handed over this socket: is the broker started by a unit that has a .socket"
    " unit, and is name= what that has as FileDescriptorName?"
)
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)


def endpoint_of(
    reactor: IReactorCore, description: str, proxies: Sequence[str] = ()
) -> IStreamServerEndpoint:
    """Make an endpoint; raises what Twisted, or the plug-in for it, has against a description.

    ``proxies`` are the networks of load balancers, for ``haproxy:``.
    """
    if description.startswith(PROXIED):
        from stompkit.server.listen.proxied import ProxiedReactor

        inner = description.removeprefix(PROXIED)
        reactor = cast("IReactorCore", ProxiedReactor(reactor, networks(proxies)))
        return endpoint_of(reactor, inner)
    try:
        endpoint: IStreamServerEndpoint = serverFromString(  # type: ignore[no-untyped-call]  # Twisted's
            reactor, described_with_backlog(description)
        )
    except LookupError as error:
        if not description.startswith("systemd:"):
            raise
        # It has looked for it among those that there are, and says no more than that.
        raise ValueError(_NOT_HANDED_OVER) from error
    return endpoint


def accept_few(port: IListeningPort) -> None:
    """Have a port accept no more than :data:`MOST_ACCEPTED` connections ahead of all else.

    Twisted's accept some more in each turn in which that many had come, without end: in a flood
    everybody who is connected would wait for hundreds of strangers. Other kinds of ports stay as
    they are.
    """
    if not isinstance(port, Port):
        return
    accept = port.doRead

    def accept_some() -> None:
        port.numberAccepts = min(port.numberAccepts, MOST_ACCEPTED)
        accept()  # type: ignore[no-untyped-call]  # Twisted's

    port.doRead = accept_some  # type: ignore[method-assign]


def networks(names: Sequence[str]) -> list[IPv4Network | IPv6Network]:
    """Read addresses and networks; ValueError says what is none."""
    return [ip_network(name) for name in names]


def described_with_backlog(description: str) -> str:
    """Add the backlog, unless it is said already or the endpoint takes none."""
    kind, *arguments = _ESCAPED.sub("_", description).split(":")
    names = [name for name, is_named, _ in (each.partition("=") for each in arguments) if is_named]
    before = _BEFORE_BACKLOG.get(kind)
    if before is None or "backlog" in names or len(arguments) - len(names) > before:
        return description
    return f"{description}:backlog={BACKLOG}"


def arguments_of(description: str) -> tuple[str, dict[str, str]]:
    """The kind of an endpoint, and its arguments by their names, the interface among them."""
    hidden = description.replace(r"\:", "\0")
    kind, *arguments = hidden.split(":")
    named = dict(each.split("=", 1) for each in arguments if "=" in each)
    plain = [each for each in arguments if "=" not in each]
    if len(plain) > 1:
        named.setdefault("interface", plain[1])
    return kind, {name: value.replace("\0", ":") for name, value in named.items()}
