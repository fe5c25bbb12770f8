"""Certificates that a client trusts or shows, and what to do about those that cannot be used."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Generic, NamedTuple, Self, TypeVar
from urllib.parse import unquote

from stompkit._common.files import describe, file_state

__all__ = ["Reread", "TlsFiles", "authorities", "client_context", "distrust", "refusal"]

_T = TypeVar("_T")

_BLOCK: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\r?\n?", re.DOTALL
)
#: OpenSSL's error code for a certificate of another host name.
_WRONG_NAME: Final = 62
#: OpenSSL's codes for a certificate that is not valid yet, or has expired.
_WRONG_TIME: Final = (9, 10)
_ENCRYPTED: Final = re.compile(rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|Proc-Type: 4,ENCRYPTED")
_MISMATCHES: Final = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")

#: Tags of DER: the version in a certificate, and a time with two digits of the year.
_VERSION: Final = 0xA0
_SHORT_TIME: Final = 0x17
#: A length of DER that is followed by the octets of the length.
_LONG: Final = 0x80
#: Two-digit years from here on are of the 20th century (RFC 5280, 4.1.2.5.1).
_LAST_CENTURY: Final = "50"

#: Words in the alert of a server that refuses a client's certificate, with what to do.
_REFUSALS: Final = (
    (
        "certificate required",
        "the broker requires a client certificate, and got none: name one with ?cert=FILE&key=FILE"
        " behind the address",
    ),
    (
        "alert handshake failure",
        "the broker refused the TLS handshake: if it requires a client certificate, name one with"
        " ?cert=FILE&key=FILE behind the address; otherwise there is no cipher in common",
    ),
    (
        "alert certificate expired",
        "the broker says that the client certificate is not valid now: renew the one in cert=FILE,"
        " or set the clocks",
    ),
    (
        "alert certificate revoked",
        "the broker says that the client certificate is revoked: name another with cert=FILE",
    ),
    (
        "alert unknown ca",
        "the broker does not know the authority of the client certificate: name one with cert=FILE"
        " that is signed by an authority of the broker's clientCAs",
    ),
    (
        "certificate",
        "the broker does not accept the client certificate: name one with cert=FILE that is signed"
        " by an authority of the broker's clientCAs, and is for clients (clientAuth)",
    ),
)


def authorities(where: str) -> list[bytes]:
    """Return the PEM certificates in a file, or in the ``.pem`` files of a directory.

    Other contents, such as keys, are ignored. Raises ``ValueError`` if there is no certificate, and
    for a path that cannot be read.
    """
    path = Path(where)
    try:
        is_directory = path.is_dir()
        found = list(_in_directory(path) if is_directory else _in_file(path))
    except OSError as error:
        raise ValueError(describe(error)) from error
    if not found and is_directory:
        raise ValueError(f"{where} has no certificates in files that end with .pem")
    if not found:
        raise ValueError(f"{where} has no certificate of an authority, as PEM")
    return found


def _in_directory(path: Path) -> Iterator[bytes]:
    for each in sorted(path.iterdir()):
        if each.suffix.lower() == ".pem":
            with suppress(OSError):
                yield from _in_file(each)


def _in_file(path: Path) -> Iterator[bytes]:
    probe = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for block in _BLOCK.findall(path.read_bytes()):
        with suppress(ssl.SSLError, ValueError):
            probe.load_verify_locations(cadata=block.decode())
            yield block


def client_context(where: str = "") -> ssl.SSLContext:
    """Return a TLS context that trusts the authorities of a path, or those of the system.

    Raises ``ValueError`` as :func:`authorities` does.
    """
    if not where:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=b"\n".join(authorities(where)).decode())
    return context


def distrust(error: ssl.SSLCertVerificationError, remedy: str) -> str:
    """Return why a certificate is not accepted, and what to do.

    ``remedy`` says how to name the certificate of an authority, for example ``with ?ca=FILE``.
    """
    if error.verify_code == _WRONG_NAME or "match" in error.verify_message:
        return (
            f"its certificate is for another name ({error.verify_message}): use a host name that is"
            " in it"
        )
    if error.verify_code in _WRONG_TIME:
        return (
            f"its certificate is not valid now ({error.verify_message}): renew it there, or set the"
            " clock of this machine"
        )
    return (
        f"its certificate is not trusted ({error.verify_message}): name the certificate of the"
        f" authority that signed it {remedy}"
    )


class TlsFiles(NamedTuple):
    """Paths for TLS in the URL of a broker; each is empty if it is not given."""

    ca: str = ""
    """File or directory of authorities that a client trusts."""
    cert: str = ""
    """File with the client's certificate, then those that lead to its authority."""
    key: str = ""
    """File with the private key, unless ``cert`` has it."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Return the files among the options of a URL; raises ValueError for a lonely key."""
        files = cls(*(options.get(name, "") for name in cls._fields))
        if files.key and not files.cert:
            raise ValueError("the option key of a broker's URL goes with cert=FILE")
        return files

    @classmethod
    def parse(cls, query: str) -> Self | None:
        """Return the files in the query of a URL, or None if it has anything else."""
        options: dict[str, str] = {}
        for each in query.split("&") if query else ():
            name, _, value = each.partition("=")
            if name not in cls._fields or name in options or not value:
                return None
            options[name] = unquote(value)
        return cls.of(options)

    def context(self) -> ssl.SSLContext:
        """Return a new TLS context; raises ValueError for files that cannot be used."""
        context = client_context(self.ca)
        self.load_own(context)
        return context

    def load_own(self, context: ssl.SSLContext) -> None:
        """Load the client's certificate, if there is one, into a context.

        Raises ``ValueError`` for files that cannot be used; it names the file and the reason.
        """
        if not self.cert:
            return
        key = self.key or self.cert
        chain, secret = _read(self.cert, "cert"), _read(key, "key")
        blocks = _BLOCK.findall(chain)
        if not blocks:
            raise ValueError(f"{self.cert} has no certificate of a client, as PEM")
        _check_key(secret, key)
        try:
            context.load_cert_chain(self.cert, key, password="")
            _check_time(self.cert, ssl.PEM_cert_to_DER_cert(blocks[0].decode()))
        except ssl.SSLError as error:
            if error.reason in _MISMATCHES:
                raise ValueError(
                    f"the key in {key} belongs to another certificate than that in {self.cert}:"
                    " name the files of one pair"
                ) from None
            raise ValueError(
                f"{self.cert} with the key in {key} cannot be used: {error.reason or error}"
            ) from None
        except OSError as error:
            raise ValueError(describe(error)) from error

    def state(self) -> list[tuple[Path, tuple[int, ...] | None]]:
        """Return what reveals a change of the files."""
        found = []
        for path in map(Path, filter(None, self)):
            inside: list[Path] = []
            with suppress(OSError):  # what cannot be listed has no certificates for now
                inside = sorted(path.iterdir()) if path.is_dir() else []
            found += [(each, file_state(each)) for each in (path, *inside)]
        return found


class Reread(Generic[_T]):
    """A value made from files, which is made again after they have changed."""

    def __init__(self, files: TlsFiles, make: Callable[[], _T]) -> None:
        """Make the value at once; raises what *make* raises."""
        self._files = files
        self._make = make
        self._state = files.state()
        self._value = make()

    def get(self) -> _T:
        """Return the value for the current files; raises what *make* raises."""
        state = self._files.state()
        if state != self._state:
            self._value = self._make()
            self._state = state
        return self._value


def refusal(error: BaseException) -> str | None:
    """Return what to do if a server refused the client's certificate; None for other errors.

    Both ``ssl`` and pyOpenSSL are understood. With TLS 1.3 the error appears when the client reads.
    """
    is_openssl = type(error).__module__ == "OpenSSL.SSL"
    if isinstance(error, ssl.SSLCertVerificationError) or not (
        is_openssl or isinstance(error, ssl.SSLError)
    ):
        return None
    words = str(error).lower().replace("_", " ")
    if "alert" not in words:
        return None
    return next((sentence for known, sentence in _REFUSALS if known in words), None)


def _read(path: str, option: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{option}={describe(error)}") from error


def _check_key(octets: bytes, path: str) -> None:
    if _ENCRYPTED.search(octets):
        raise ValueError(
            f"the key in {path} is encrypted: name a file with the key as it is, which"
            f" openssl pkey -in {path} -out FILE writes, and which only its user can read"
        )
    if b"PRIVATE KEY-----" not in octets:
        raise ValueError(f"{path} has no private key, as PEM: name its file with key=FILE")


def _check_time(path: str, der: bytes) -> None:
    begin, end = _validity(der)
    now = datetime.now(UTC)
    if now > end:
        raise ValueError(f"the certificate in {path} has expired on {end:%Y-%m-%d}: renew it")
    if now < begin:
        raise ValueError(
            f"the certificate in {path} is not valid before {begin:%Y-%m-%d %H:%M} UTC: wait, or"
            " set the clock of this machine"
        )


# Clients on asyncio work without the package cryptography, and ssl tells the time of validity only
# for certificates of servers.


def _validity(der: bytes) -> tuple[datetime, datetime]:
    """Return the begin and the end of a certificate that OpenSSL has accepted."""
    [(_, certificate)] = _elements(der)
    signed = _elements(certificate)[0][1]
    _, _, _, validity, *_ = (content for tag, content in _elements(signed) if tag != _VERSION)
    begin, end = (_time(tag, content.decode()) for tag, content in _elements(validity))
    return begin, end


def _elements(der: bytes) -> list[tuple[int, bytes]]:
    """Split DER into its elements: tags with contents."""
    found = []
    while der:
        tag, size, der = der[0], der[1], der[2:]
        if size & _LONG:
            count = size - _LONG
            size, der = int.from_bytes(der[:count]), der[count:]
        found.append((tag, der[:size]))
        der = der[size:]
    return found


def _time(tag: int, text: str) -> datetime:
    if tag == _SHORT_TIME:
        text = ("19" if text[:2] >= _LAST_CENTURY else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
