"""A server of a spool, in a thread of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Final, cast

from twisted.internet.error import CannotListenError

from stompkit._common.files import describe
from stompkit._common.metrics import Address, listen_reason
from stompkit._common.twisted.http_site import LimitedSite
from stompkit._common.twisted.reactor_thread import ReactorThread
from stompkit.spool._errors import SpoolError
from stompkit.spool._identity import identity_of
from stompkit.spool.serving import wire
from stompkit.spool.serving.resource import Front
from stompkit.spool.serving.tokens import Tokens

__all__ = ["MOST_CONNECTIONS", "site_of", "spool_server"]

#: Maximum number of connections: each needs two descriptors, of which a process often has 1,024.
MOST_CONNECTIONS: Final = 400
#: Time in seconds in which a request has to be there, and an idle connection has to send one.
_TIMEOUT_S: Final = 30.0
#: Maximum time in seconds until the server listens or has ended.
_START_S: Final = 30.0
_TOO_LARGE: Final = wire.encoded(wire.Problem("too-large", f"a body has {wire.MOST_BODY} octets"))
_REFUSAL: Final = b"".join(
    (
        b"HTTP/1.1 413 Content Too Large\r\nconnection: close\r\n",
        b"content-type: application/json\r\n",
        b"content-length: %d\r\n\r\n" % len(_TOO_LARGE),
        _TOO_LARGE,
    )
)
_PEM: Final = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----", re.DOTALL)


@contextmanager
def spool_server(
    folder: str | PathLike[str],
    address: Address,
    *,
    token_file: str | PathLike[str],
    certificate: str | PathLike[str] | None = None,
) -> Iterator[Address]:
    """Serve the spool in a folder; yields the actual address.

    Clients need a token in ``token_file``. ``certificate`` is a PEM file with the certificate and
    its key, for TLS. Raises :class:`~stompkit.spool.SpoolError` if there is no spool, or the server
    cannot start.
    """
    path = Path(folder)
    identity_of(path)
    try:
        tokens = Tokens(Path(token_file))
        context = None if certificate is None else _context(Path(certificate))
    except ValueError as error:
        raise SpoolError(f"the spool cannot be served: {error}") from None
    thread = ReactorThread("stompkit-spool")
    try:
        reactor: Any = thread.reactor
        site = site_of(path, tokens, reactor)

        factory = site if context is None else _encrypted(site, context, reactor)

        def listen() -> Any:
            return reactor.listenTCP(address.port, factory, interface=address.host)

        try:
            port: Any = thread.call(listen).result(_START_S)
        except CannotListenError as error:
            raise SpoolError(
                f"the spool cannot be served at {address}: {listen_reason(error.socketError)}"
            ) from None
        try:
            yield Address(address.host, port.getHost().port)
        finally:
            thread.call(port.stopListening).result(_START_S)
            thread.start(site.close)
    finally:
        thread.stop()


def _encrypted(site: LimitedSite, context: Any, reactor: Any) -> Any:
    """Return a factory of TLS connections whose small writes are sent by this reactor.

    Those of ``listenSSL`` wait for the reactor of the process, which may not run.
    """
    from twisted.protocols.tls import TLSMemoryBIOFactory

    return TLSMemoryBIOFactory(context, False, site, clock=reactor)


def site_of(folder: Path, tokens: Tokens, reactor: Any) -> LimitedSite:
    """Return the factory of connections to the server."""
    return LimitedSite(
        Front(folder, tokens, reactor),
        reactor,
        refusal=_REFUSAL,
        max_body_bytes=wire.MOST_BODY,
        max_connections=MOST_CONNECTIONS,
        timeout_s=_TIMEOUT_S,
    )


def _context(path: Path) -> Any:
    """Return the TLS context of a PEM file; raises ValueError."""
    try:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
        from cryptography.x509 import load_pem_x509_certificate
        from OpenSSL.SSL import Error
        from twisted.internet.ssl import CertificateOptions
    except ImportError:
        raise ValueError(
            "TLS needs another package. Install it: pip install 'stompkit[tls]'"
        ) from None
    try:
        blocks = [(each[1], each[0]) for each in _PEM.finditer(path.read_bytes())]
    except OSError as error:
        raise ValueError(describe(error)) from None
    certificates = [block for kind, block in blocks if kind == b"CERTIFICATE"]
    keys = [block for kind, block in blocks if kind.endswith(b"PRIVATE KEY")]
    if not certificates or len(keys) != 1:
        raise ValueError(f"{path} is not a PEM file with a certificate, its chain and one key")
    try:
        # Twisted's types still have those of OpenSSL.
        own, *chain = (cast("Any", load_pem_x509_certificate(each)) for each in certificates)
        key = cast("Any", load_pem_private_key(keys[0], None))
        options = CertificateOptions(privateKey=key, certificate=own, extraCertChain=chain)
        options.getContext()
    except (Error, TypeError, ValueError) as error:
        raise ValueError(f"{path} has no valid certificate with its key: {error}") from None
    return options
