"""TLS endpoints with optional or required client certificates: ``stomps:``.

Twisted's own ``ssl:`` and ``tls:`` endpoints never request one.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from OpenSSL import SSL
from OpenSSL.crypto import X509
from twisted.internet.endpoints import SSL4ServerEndpoint
from twisted.internet.interfaces import (
    IOpenSSLServerConnectionCreator,
    IReactorCore,
    IStreamServerEndpoint,
)
from twisted.internet.ssl import Certificate
from twisted.protocols.tls import TLSMemoryBIOProtocol
from zope.interface import implementer

from stompkit.server.process.watched_files import Watched

__all__ = ["TlsServer", "certificates_in", "endpoint", "expiry_of"]

#: The port that ActiveMQ and RabbitMQ use for STOMP over TLS.
DEFAULT_PORT: Final = 61614

#: Ciphers of TLS 1.2 with forward secrecy and no known weakness; all of TLS 1.3 qualify.
_CIPHERS: Final = b"ECDHE+AESGCM:ECDHE+CHACHA20"

_Key = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey | Ed448PrivateKey

#: OpenSSL's codes for certificate errors, with OpenSSL's texts.
_ERRORS: Final = {
    9: "certificate is not yet valid",
    10: "certificate has expired",
    18: "self-signed certificate",
    19: "self-signed certificate in certificate chain",
    20: "unable to get local issuer certificate",
    21: "unable to verify the first certificate",
    23: "certificate revoked",
    26: "unsuitable certificate purpose",
}


@implementer(IOpenSSLServerConnectionCreator)
class TlsServer:
    """The broker's TLS configuration. Its files are reloaded when they change."""

    def __init__(
        self,
        certificate: Path,
        private_key: Path | None = None,
        client_cas: Path | None = None,
        *,
        clients_optional: bool = False,
    ) -> None:
        """Read the PEM files; raises OSError or ValueError for invalid ones.

        ``certificate`` holds the broker's certificate first, then the chain up to its root, and its
        key unless ``private_key`` is given. ``client_cas`` is a file of authorities. With it, each
        client must present a certificate signed by one of them, or may, if ``clients_optional``.
        """
        key = certificate if private_key is None else private_key
        paths = [certificate, key] if client_cas is None else [certificate, key, client_cas]
        self._context = Watched(
            paths, lambda: _context(certificate, key, client_cas, optional=clients_optional)
        )

    def serverConnectionForTLS(self, protocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """Start the TLS session of one client."""
        return SSL.Connection(self._context.get())


def _context(
    certificate: Path, private_key: Path, client_cas: Path | None, *, optional: bool
) -> SSL.Context:
    own, *chain = _pem_certificates(certificate)
    context = SSL.Context(SSL.TLS_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.set_cipher_list(_CIPHERS)
    context.set_options(SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_TICKET)
    # Idle clients keep no buffers of 16 KiB. Sessions are not resumed, so that the certificate is
    # always presented.
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    try:
        context.use_certificate(own)
        for each in chain:
            context.add_extra_chain_cert(each)
        context.use_privatekey(_pem_key(private_key))
        context.check_privatekey()
    except SSL.Error as error:
        advice = ""
        if "key values mismatch" in str(error):
            advice = ". The key belongs to another certificate: renew both together"
        raise ValueError(
            f"OpenSSL does not take {certificate} with the key in {private_key}: {error}{advice}"
        ) from None
    if client_cas is not None:
        authorities = context.get_cert_store()
        assert authorities is not None  # every context has a store
        for each in _pem_certificates(client_cas):
            authorities.add_cert(X509.from_cryptography(each))
        mode = SSL.VERIFY_PEER | (0 if optional else SSL.VERIFY_FAIL_IF_NO_PEER_CERT)
        context.set_verify(mode, _verify)
    return context


def _verify(connection: SSL.Connection, certificate: X509, error: int, depth: int, ok: int) -> bool:
    """Log a certificate error, since the error that OpenSSL raises does not contain it."""
    if not ok:
        reason = _ERRORS.get(error, f"certificate verify failed, for reason {error}")
        raise SSL.Error([("X509", "", reason)])
    return True


def expiry_of(certificate: Path) -> datetime:
    """Return when the first certificate of a file expires; raises OSError or ValueError."""
    return _pem_certificates(certificate)[0].not_valid_after_utc


def certificates_in(path: Path) -> list[Certificate]:
    """Return the certificates of a PEM file, at least one; raises OSError or ValueError."""
    return [
        Certificate(X509.from_cryptography(each))  # type: ignore[no-untyped-call]  # Twisted's
        for each in _pem_certificates(path)
    ]


def _pem_certificates(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except ValueError:
        raise ValueError(f"{path} has no certificates that can be read as PEM") from None


def _pem_key(path: Path) -> _Key:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError(
            f"{path} has no unencrypted private key that is PEM: append the key to this file, or"
            " name another file with privateKey="
        ) from None
    if not isinstance(key, _Key):
        raise ValueError(f"{path} has a key of a kind that TLS does not use")
    return key


def endpoint(
    reactor: IReactorCore,
    port: str = str(DEFAULT_PORT),
    *,
    certificate: str,
    privateKey: str | None = None,
    clientCAs: str | None = None,
    clients: str | None = None,
    interface: str = "",
    backlog: str = "50",
) -> IStreamServerEndpoint:
    """Return the endpoint described by ``stomps:PORT:certificate=FILE:...``.

    ``clients`` is ``required`` or ``optional``. Raises OSError or ValueError.
    """
    if clients is not None and (clientCAs is None or clients not in ("required", "optional")):
        raise ValueError("clients= is required or optional, and goes with clientCAs=")
    server = TlsServer(
        Path(certificate),
        None if privateKey is None else Path(privateKey),
        None if clientCAs is None else Path(clientCAs),
        clients_optional=clients == "optional",
    )
    return SSL4ServerEndpoint(  # type: ignore[no-untyped-call]  # Twisted's
        reactor, int(port), server, int(backlog), interface
    )
