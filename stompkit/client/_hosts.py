"""Addresses of brokers, and their conversion to endpoints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from twisted.internet.endpoints import HostnameEndpoint, clientFromString
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint

from stompkit._common.addresses import host_port, parse_host_port, parse_url_host, separate_urls
from stompkit._common.certificates import TlsFiles
from stompkit.client._tls import UnusableFileError, tls_endpoint

__all__ = ["Address", "Host", "Place", "hosts_of", "label_of", "places_of", "tls_description"]

#: Address of a broker, as callers write it.
Address = str | IStreamClientEndpoint

#: Text that is no description of an endpoint, such as tcp:localhost:61613.
_HOST_AND_PORT: Final = re.compile(r"(?:\[[^\[\]]+\]|[^:\[\]]+):\d+")
_DESCRIPTION: Final = re.compile(r"(?:tcp|tls|ssl):(?:host=)?(?P<name>[^:=\\]+)(?=:|$)")
#: A description begins with its type and a colon.
_IS_DESCRIPTION: Final = re.compile(r"\w+:.").match
_SCHEMES: Final = ("stomp://", "stomps://")
#: Host name in CONNECT if none is known; the specifications allow any.
_NAMELESS: Final = "localhost"


class Place(NamedTuple):
    """Network address of a broker."""

    host: str
    """Host name or IP address; an IPv6 address without brackets."""
    port: int
    is_tls: bool = False
    files: TlsFiles = TlsFiles()
    """Files for TLS; without authorities, the CA certificates of the system apply."""


@dataclass(frozen=True, slots=True)
class Host:
    """One broker."""

    endpoint: IStreamClientEndpoint
    name: str
    """Value of CONNECT's ``host`` header, unless a virtual host is set."""
    label: str
    """Name of the broker in the log."""


def hosts_of(
    addresses: Sequence[Address | Host], reactor: IReactorTime, timeout_s: float
) -> list[Host]:
    """Convert addresses to hosts.

    An address is ``host:port``, with an IPv6 literal in brackets, ``stomp://host:port``, a
    description of a Twisted client endpoint such as ``tls:broker.example:61614``, or an endpoint.
    ``stomps://host:port?ca=PATH`` is STOMP over TLS; the optional path is a file with CA
    certificates, or a directory of such ``.pem`` files. ``cert=FILE`` names the client's
    certificate, and ``key=FILE`` its key. A URL may name several hosts, separated by commas; the
    default port is 61613. ``failover:(URL,URL)`` has several URLs.
    ``timeout_s`` is the timeout in seconds of a TCP connection. Raises ``ValueError`` for any other
    string, and if there is no address.
    """
    if isinstance(addresses, str):
        addresses = [addresses]
    if not addresses:
        raise ValueError("a client needs one host at least")
    hosts: list[Host] = []
    for address in addresses:
        if isinstance(address, Host):
            hosts.append(address)
        elif not isinstance(address, str):
            hosts.append(Host(address, _NAMELESS, type(address).__name__))
        elif places := places_of(address):
            hosts += [_host_at(place, reactor, timeout_s) for place in places]
        else:
            hosts.append(_described(address, reactor, timeout_s))
    return hosts


def places_of(address: str) -> list[Place]:
    """Return the network addresses in ``HOST:PORT`` or a URL; an empty list for other addresses.

    Several are separated by commas, or in ``failover:(URL,URL)``. Raises ``ValueError`` for a URL
    that cannot be parsed, and for an invalid port.
    """
    parts = [_places_of_one(each) for each in separate_urls(address)]
    return [place for each in parts for place in each] if all(parts) else []


def _places_of_one(address: str) -> list[Place]:
    if not address.startswith(_SCHEMES):
        if "://" in address:
            raise ValueError(
                "a client's URL of a broker is stomp://HOST:PORT, or stomps:// for TLS"
            )
        plain = address.split(",")
        if not all(map(_HOST_AND_PORT.fullmatch, plain)):
            return []
        return [Place(*parse_host_port(each)) for each in plain]
    scheme, _, rest = address.partition("://")
    rest, _, query = rest.partition("?")
    hosts, _, path = rest.partition("/")
    files = TlsFiles.parse(query)
    # The error quotes no part of the URL, since it may contain a passcode.
    if "@" in hosts or path:
        raise ValueError(
            f"a client's URL of a broker is {scheme}://HOST:PORT: login, passcode, virtual host and"
            " destination are arguments of their own"
        )
    if files is None or (query and scheme == "stomp"):
        raise ValueError(
            "a client's URL of a broker has the options ca, cert and key only, and those with"
            " stomps"
        )
    try:
        places = [parse_url_host(each) for each in hosts.split(",")]
    except ValueError:
        raise ValueError(
            "a client's URL of a broker has HOST:PORT, with a port from 1 to 65535, or HOST alone"
        ) from None
    return [Place(*each, scheme == "stomps", files) for each in places]


def _host_at(place: Place, reactor: IReactorTime, timeout_s: float) -> Host:
    if place.is_tls:
        return _described(tls_description(place), reactor, timeout_s)
    endpoint = HostnameEndpoint(reactor, place.host, place.port, timeout=timeout_s)
    return Host(endpoint, place.host, label_of(place))


def tls_description(place: Place) -> str:
    """Return the description of an endpoint with TLS."""
    files = place.files
    named = {"trustRoots": files.ca, "certificate": files.cert, "privateKey": files.key}
    options = (f":{name}={_escaped(value)}" for name, value in named.items() if value)
    return f"tls:{_escaped(place.host)}:{place.port}" + "".join(options)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace(":", "\\:")


def label_of(place: Place) -> str:
    """Return the name of a broker in the log."""
    return host_port(place.host, place.port)


def _described(address: str, reactor: IReactorTime, timeout_s: float) -> Host:
    if not _IS_DESCRIPTION(address):
        raise ValueError(
            f"{address!a} is not host:port, such as localhost:61613 or [::1]:61613,"
            " and not the description of an endpoint"
        )
    try:
        if address.startswith("tls:") and "endpoint=" not in address:
            endpoint = tls_endpoint(address, reactor, timeout_s)
        else:
            endpoint = cast(
                "IStreamClientEndpoint",
                clientFromString(reactor, address),  # type: ignore[no-untyped-call]  # Twisted's
            )
    except (ValueError, TypeError, KeyError) as error:
        is_told = isinstance(error, UnusableFileError)
        if is_told or isinstance(error.__cause__, OSError | ImportError):
            # The file of a certificate, or a missing library, which the message names.
            raise
        raise ValueError(
            f"{address!a} is neither host:port, such as localhost:61613 or [::1]:61613,"
            f" nor the description of an endpoint: {error}"
        ) from error
    described = _DESCRIPTION.match(address)
    return Host(endpoint, described["name"] if described else _NAMELESS, address)
