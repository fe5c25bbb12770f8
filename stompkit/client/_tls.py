"""TLS connections to brokers, on any reactor."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import (
    IProtocol,
    IProtocolFactory,
    IReactorTime,
    IStreamClientEndpoint,
)
from zope.interface import implementer

from stompkit._common.certificates import authorities
from stompkit._common.files import describe

if TYPE_CHECKING:
    from twisted.internet.ssl import Certificate, PrivateCertificate

__all__ = ["tls_endpoint"]

_KEYS: Final = ("host", "port", "timeout", "bindAddress", "certificate", "privateKey", "trustRoots")
_LAST_PORT: Final = 65_535


def tls_endpoint(
    description: str, reactor: IReactorTime, timeout_s: float
) -> IStreamClientEndpoint:
    """Return the endpoint of a Twisted description, such as ``tls:HOST:PORT:trustRoots=PATH``.

    Twisted's own endpoint delays writes until the next iteration of the process's global reactor.
    With another reactor the client would wait for ever, since the global reactor never runs.

    Raises ``ValueError`` for a description that cannot be parsed, and for certificates that cannot
    be read.
    """
    try:
        from twisted.internet.ssl import optionsForClientTLS, trustRootFromCertificates
    except ImportError as error:
        raise ValueError(f"TLS needs {error.name}: pip install 'stompkit[tls]'") from error
    given = _arguments(description)
    host, port = given.get("host", ""), given.get("port", "")
    if not host or not (port.isascii() and port.isdecimal() and 0 < int(port) <= _LAST_PORT):
        raise ValueError("it takes a host, and a port from 1 to 65535")
    try:
        roots = given.get("trustRoots")
        trust: Any = None
        if roots is not None:
            trust = trustRootFromCertificates(_authorities(roots))  # type: ignore[no-untyped-call]  # Twisted's
        own = _own(given.get("certificate"), given.get("privateKey"))
    except OSError as error:
        raise ValueError(describe(error)) from error
    options = optionsForClientTLS(host, trustRoot=trust, clientCertificate=own)
    source = given.get("bindAddress")
    bind = None if source is None else (source, 0)
    patience_s = float(given.get("timeout", timeout_s))
    plain = HostnameEndpoint(reactor, host, int(port), timeout=patience_s, bindAddress=bind)
    return _TlsEndpoint(options, plain, reactor)


def _arguments(description: str) -> dict[str, str]:
    """Return the named parts of a description; a backslash escapes the next character."""
    parts = [""]
    for token in re.findall(r"\\.|.", description, re.DOTALL):
        if token == ":":
            parts.append("")
        else:
            parts[-1] += token
    found: dict[str, str] = {}
    for number, part in enumerate(parts[1:]):
        named = re.fullmatch(r"(\w+)=(.*)", part, re.DOTALL)
        if named is None and number > 1:
            raise ValueError(f"{part!a} has no name")
        name, value = (named[1], named[2]) if named else (_KEYS[number], part)
        if name not in _KEYS or name in found:
            raise ValueError(f"{name!a} is unknown, or there twice; there are {', '.join(_KEYS)}")
        found[name] = re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)
    return found


def _authorities(where: str) -> list[Certificate]:
    """Return the certificates in a file, or in the ``.pem`` files of a directory."""
    from twisted.internet.ssl import Certificate

    return [Certificate.loadPEM(each) for each in authorities(where)]


def _own(certificate: str | None, key: str | None) -> PrivateCertificate | None:
    """Return a client certificate with its key, which may be in the same file."""
    if certificate is None:
        return None
    from OpenSSL.crypto import Error
    from twisted.internet.ssl import PrivateCertificate

    octets = Path(certificate).read_bytes()
    if key is not None:
        octets += b"\n" + Path(key).read_bytes()
    try:
        made: PrivateCertificate = PrivateCertificate.loadPEM(octets)  # type: ignore[no-untyped-call]  # Twisted's
    except Error:
        raise ValueError(f"{certificate} has no certificate with its key") from None
    return made


@implementer(IStreamClientEndpoint)
class _TlsEndpoint:
    """An endpoint with TLS over another endpoint, on a given reactor."""

    def __init__(self, options: Any, plain: HostnameEndpoint, reactor: IReactorTime) -> None:
        self._options = options
        self._plain = plain
        self._reactor = reactor

    def connect(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        """Connect; the protocol writes to a transport that encrypts."""
        from twisted.protocols.tls import TLSMemoryBIOFactory

        wrapped = TLSMemoryBIOFactory(self._options, True, factory, clock=self._reactor)
        connecting: Deferred[Any] = self._plain.connect(wrapped)
        return connecting.addCallback(lambda outer: outer.wrappedProtocol)
