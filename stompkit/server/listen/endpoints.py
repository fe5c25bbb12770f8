"""Create endpoints from their descriptions."""

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

#: Prefix of descriptions of endpoints whose connections start with a PROXY protocol header.
PROXIED: Final = "haproxy:"

#: Default backlog: the number of connections that may wait to be accepted. Clients that reconnect
#: after a restart wait here; one that finds no room retries after a second. The kernel limits it to
#: net.core.somaxconn, which is the same number on Linux.
BACKLOG: Final = 4096

#: Maximum number of connections accepted in one reactor iteration.
MOST_ACCEPTED: Final = 16

#: The endpoints that have a backlog, with the number of positional arguments before it.
_BEFORE_BACKLOG: Final = {"tcp": 2, "tcp6": 1, "unix": 2, "ssl": 5, "stomps": 1}
_NOT_HANDED_OVER: Final = (
    "systemd has not handed over this socket: is the broker started by a unit that has a .socket"
    " unit, and is name= what that has as FileDescriptorName?"
)
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)


def endpoint_of(
    reactor: IReactorCore, description: str, proxies: Sequence[str] = ()
) -> IStreamServerEndpoint:
    """Create an endpoint; raises the errors of Twisted or of the endpoint's plug-in.

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
        # Twisted's error says only that the endpoint type is not among the known ones.
        raise ValueError(_NOT_HANDED_OVER) from error
    return endpoint


def accept_few(port: IListeningPort) -> None:
    """Limit a port to :data:`MOST_ACCEPTED` accepted connections in one reactor iteration.

    Twisted's ports accept more after each iteration that reached the limit, without bound. In a
    flood all connected clients would then wait for hundreds of new connections. Ports of other
    types stay unchanged.
    """
    if not isinstance(port, Port):
        return
    accept = port.doRead

    def accept_some() -> None:
        port.numberAccepts = min(port.numberAccepts, MOST_ACCEPTED)
        accept()  # type: ignore[no-untyped-call]  # Twisted's

    port.doRead = accept_some  # type: ignore[method-assign]


def networks(names: Sequence[str]) -> list[IPv4Network | IPv6Network]:
    """Parse addresses and networks; raises ValueError for an invalid one."""
    return [ip_network(name) for name in names]


def described_with_backlog(description: str) -> str:
    """Add the backlog, unless it is given or the endpoint has none."""
    kind, *arguments = _ESCAPED.sub("_", description).split(":")
    names = [name for name, is_named, _ in (each.partition("=") for each in arguments) if is_named]
    before = _BEFORE_BACKLOG.get(kind)
    if before is None or "backlog" in names or len(arguments) - len(names) > before:
        return description
    return f"{description}:backlog={BACKLOG}"


def arguments_of(description: str) -> tuple[str, dict[str, str]]:
    """Return the type of an endpoint, and its arguments by name, including the interface."""
    hidden = description.replace(r"\:", "\0")
    kind, *arguments = hidden.split(":")
    named = dict(each.split("=", 1) for each in arguments if "=" in each)
    plain = [each for each in arguments if "=" not in each]
    if len(plain) > 1:
        named.setdefault("interface", plain[1])
    return kind, {name: value.replace("\0", ":") for name, value in named.items()}
