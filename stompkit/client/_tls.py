"""TLS connections to brokers, on any reactor."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
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

from stompkit._common.certificates import Reread, TlsFiles, authorities

if TYPE_CHECKING:
    from twisted.internet.ssl import Certificate

__all__ = ["UnusableFileError", "tls_endpoint"]

_KEYS: Final = ("host", "port", "timeout", "bindAddress", "certificate", "privateKey", "trustRoots")
_LAST_PORT: Final = 65_535


class UnusableFileError(ValueError):
    """A file of certificates or of a key cannot be used; the message names it and the reason."""


def tls_endpoint(
    description: str, reactor: IReactorTime, timeout_s: float
) -> IStreamClientEndpoint:
    """Return the endpoint of a Twisted description, such as ``tls:HOST:PORT:trustRoots=PATH``.

    Twisted's own endpoint delays writes until the next iteration of the process's global reactor.
    With another reactor the client would wait for ever, since the global reactor never runs.

    The files are read again at a connection if they have changed. Raises ``ValueError`` for a
    description that cannot be parsed, and :class:`UnusableFileError` for certificates.
    """
    try:
        import twisted.internet.ssl  # noqa: F401 (the error is reported here)
    except ImportError as error:
        raise ValueError(f"TLS needs {error.name}: pip install 'stompkit[tls]'") from error
    given = _arguments(description)
    host, port = given.get("host", ""), given.get("port", "")
    if not host or not (port.isascii() and port.isdecimal() and 0 < int(port) <= _LAST_PORT):
        raise ValueError("it takes a host, and a port from 1 to 65535")
    files = TlsFiles(*(given.get(each, "") for each in ("trustRoots", "certificate", "privateKey")))
    try:
        options = Reread(files, lambda: _options(host, files))
    except ValueError as error:
        raise UnusableFileError(str(error)) from error
    source = given.get("bindAddress")
    bind = None if source is None else (source, 0)
    patience_s = float(given.get("timeout", timeout_s))
    plain = HostnameEndpoint(reactor, host, int(port), timeout=patience_s, bindAddress=bind)
    return _TlsEndpoint(options.get, plain, reactor)


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


def _options(host: str, files: TlsFiles) -> Any:
    """Return what creates TLS connections; raises ValueError for files that cannot be used."""
    from twisted.internet.ssl import optionsForClientTLS, trustRootFromCertificates

    trust: Any = None
    if files.ca:
        trust = trustRootFromCertificates(_authorities(files.ca))  # type: ignore[no-untyped-call]  # Twisted's
    return optionsForClientTLS(host, trustRoot=trust, extraCertificateOptions=_own(files))


def _own(files: TlsFiles) -> dict[str, Any]:
    """Return the client's certificate with its key and chain, as Twisted names them."""
    if not files.cert:
        return {}
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509 import load_pem_x509_certificates

    files.load_own(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))  # finds all faults
    own, *chain = load_pem_x509_certificates(Path(files.cert).read_bytes())
    key = load_pem_private_key(Path(files.key or files.cert).read_bytes(), password=None)
    return {"certificate": own, "privateKey": key, "extraCertChain": chain}


@implementer(IStreamClientEndpoint)
class _TlsEndpoint:
    """An endpoint with TLS over another endpoint, on a given reactor."""

    def __init__(
        self, options: Callable[[], Any], plain: HostnameEndpoint, reactor: IReactorTime
    ) -> None:
        self._options = options
        self._plain = plain
        self._reactor = reactor

    def connect(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        """Connect; the protocol writes to a transport that encrypts."""
        from twisted.protocols.tls import TLSMemoryBIOFactory

        wrapped = TLSMemoryBIOFactory(self._options(), True, factory, clock=self._reactor)
        connecting: Deferred[Any] = self._plain.connect(wrapped)
        return connecting.addCallback(lambda outer: outer.wrappedProtocol)
