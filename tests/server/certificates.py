"""Temporary certificates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from itertools import count
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority"]

_numbers = count(1)
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """A certificate authority; its certificate and those that it signs are in a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        """Create a self-signed authority."""
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            self._builder(self._name, self._key, -1, 1)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            # Clients on Python 3.13 require the usage of the key.
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        #: The authority's certificate, as PEM.
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(certificate.public_bytes(Encoding.PEM))

    def server(self, host: str = "127.0.0.1", *, last_day: float = 1) -> Path:
        """Create a file with a server's certificate and its key; days are relative to today."""
        usage = ExtendedKeyUsageOID.SERVER_AUTH
        return self._signed(host, [_alternative(host)], usage, -1, last_day)

    def client(self, name: str, *, first_day: int = -1, last_day: int = 1) -> Path:
        """Create a file with a client's certificate and its key; days are relative to today."""
        return self._signed(name, [], ExtendedKeyUsageOID.CLIENT_AUTH, first_day, last_day)

    def _signed(
        self,
        name: str,
        others: list[x509.GeneralName],
        usage: x509.ObjectIdentifier,
        first_day: int,
        last_day: float,
    ) -> Path:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(subject, key, first_day, last_day).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if others:
            builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
        path = self._folder / f"{name}-{next(_numbers)}.pem"
        path.write_bytes(
            builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
            + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        return path

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, first_day: int, last_day: float
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=first_day))
            .not_valid_after(now + timedelta(days=last_day))
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
        )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
