"""Where brokers are: from what users write to endpoints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from twisted.internet.endpoints import HostnameEndpoint, clientFromString
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint

from stompkit.client._tls import tls_endpoint

__all__ = ["Address", "Host", "hosts_of"]

#: How users may name a broker.
Address = str | IStreamClientEndpoint

_HOST_AND_PORT: Final = re.compile(
    r"(?:\[(?P<literal>[^\[\]]+)\]|(?P<name>[^:\[\]]+)):(?P<port>\d+)"
)
_DESCRIPTION: Final = re.compile(r"(?:tcp|tls|ssl):(?:host=)?(?P<name>[^:=\\]+)(?=:|$)")
_LAST_PORT: Final = 65_535
#: What CONNECT names where nobody knows a name; the specifications allow any.
_NAMELESS: Final = "localhost"


@dataclass(frozen=True, slots=True)
class Host:
    """One broker."""

    endpoint: IStreamClientEndpoint
    name: str
    """What goes into CONNECT's ``host`` header, unless a virtual host is set."""
    label: str
    """What the log calls it."""


def hosts_of(addresses: Sequence[Address], reactor: IReactorTime, timeout_s: float) -> list[Host]:
    """Make hosts of addresses.

    An address is ``host:port``, with an IPv6 literal in brackets, or a description of a client
    endpoint as Twisted understands them, such as ``tls:broker.example:61614``, or an endpoint.
    ``timeout_s`` is how long a TCP connection may take. Raises ``ValueError`` for a string that
    is none of that, and for no address at all.
    """
    if isinstance(addresses, str):
        addresses = [addresses]
    if not addresses:
        raise ValueError("a client needs one host at least")
    return [_host(address, reactor, timeout_s) for address in addresses]


def _host(address: Address, reactor: IReactorTime, timeout_s: float) -> Host:
    if not isinstance(address, str):
        return Host(address, _NAMELESS, type(address).__name__)
    match = _HOST_AND_PORT.fullmatch(address)
    if match is not None:
        name, port = match["literal"] or match["name"], int(match["port"])
        if not 0 < port <= _LAST_PORT:
            raise ValueError(f"{address!a}: a port is a number from 1 to {_LAST_PORT}")
        return Host(HostnameEndpoint(reactor, name, port, timeout=timeout_s), name, address)
    try:
        if address.startswith("tls:") and "endpoint=" not in address:
            endpoint = tls_endpoint(address, reactor, timeout_s)
        else:
            endpoint = cast(
                "IStreamClientEndpoint",
                clientFromString(reactor, address),  # type: ignore[no-untyped-call]  # Twisted's
            )
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{address!a} is neither host:port nor the description of an endpoint: {error}"
        ) from error
    described = _DESCRIPTION.match(address)
    return Host(endpoint, described["name"] if described else _NAMELESS, address)
