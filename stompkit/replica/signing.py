"""Ed25519 signatures of nodes. Keys need the extra ``signing``.

A public key is text: ``ed25519:`` and base64. A private key is a PEM file that only its owner can
read.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stompkit._common.moved import renamed

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

__all__ = [
    "SIGNATURE_BYTES",
    "Signer",
    "SigningKeyError",
    "UntrustedError",
    "Verifier",
    "generate_key",
]

#: Length of a signature in bytes.
SIGNATURE_BYTES: Final = 64

_PREFIX: Final = "ed25519:"


class SigningKeyError(ValueError):
    """An unusable key, or a missing library; ``str()`` says what to do."""


class UntrustedError(ValueError):
    """Data that no trusted node has signed; ``str()`` says why."""


def _need_library() -> None:
    if find_spec("cryptography") is None:
        raise SigningKeyError("keys need the package cryptography: pip install 'stompkit[signing]'")


def generate_key(path: str | os.PathLike[str]) -> str:
    """Write a new private key to a new file; returns the public key.

    Raises OSError (FileExistsError if the file exists) and :class:`SigningKeyError`.
    """
    _need_library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    # Never readable by others, not even before its mode could be changed.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    return Signer(key).public


class Signer:
    """Signs with the private key of a node."""

    __slots__ = ("_key", "public")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        """Use a key; see :meth:`load`."""
        self._key = key
        #: Public key as text, to be given to other nodes.
        self.public: Final = (
            _PREFIX + base64.b64encode(key.public_key().public_bytes_raw()).decode()
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Signer:
        """Load the key from a file; raises OSError and :class:`SigningKeyError`."""
        _need_library()
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        octets = Path(path).read_bytes()
        try:
            key = load_pem_private_key(octets, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise SigningKeyError(f"{path} is no private key without a password: {error}") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise SigningKeyError(f"the key in {path} is not one of Ed25519")
        return cls(key)

    def sign(self, octets: bytes) -> bytes:
        """Return the signature of ``octets``."""
        return self._key.sign(octets)


class Verifier:
    """Verifies signatures with the public keys of nodes."""

    def __init__(self, keys: Mapping[str, str | Sequence[str]] | None = None) -> None:
        """Trust these keys by branch id; if a node has several, any of them is valid.

        Without keys, all nodes are trusted. Raises :class:`SigningKeyError`.
        """
        #: True if unknown nodes are refused.
        self.is_strict: Final = bool(keys)
        if keys:
            _need_library()
        self._keys: Final = {
            branch_id: [_public_key(branch_id, each) for each in _several(texts)]
            for branch_id, texts in (keys or {}).items()
        }

    def verify(self, branch_id: str, octets: bytes, signature: bytes) -> None:
        """Check a signature of this node; raises :class:`UntrustedError` if it is invalid."""
        if not self.is_strict:
            return
        keys = self._keys.get(branch_id)
        if keys is None:
            raise UntrustedError(f"the node {branch_id!r} is not one of those that are trusted")
        if not signature:
            raise UntrustedError(f"the node {branch_id!r} has not signed this")
        from cryptography.exceptions import InvalidSignature

        for key in keys:
            try:
                key.verify(signature, octets)
            except InvalidSignature:
                continue
            return
        raise UntrustedError(f"this is not signed with the key of the node {branch_id!r}")


def _several(texts: str | Sequence[str]) -> Sequence[str]:
    return (texts,) if isinstance(texts, str) else texts


def _public_key(branch_id: str, text: str) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        if not text.startswith(_PREFIX):
            raise ValueError(f"it does not begin with {_PREFIX!r}")
        octets = base64.b64decode(text.removeprefix(_PREFIX).strip(), validate=True)
        return Ed25519PublicKey.from_public_bytes(octets)
    except ValueError as error:
        raise SigningKeyError(
            f"the public key of {branch_id!r} is no text as 'ed25519:BASE64': {error}"
        ) from None


renamed(
    __name__,
    KeyProblem="SigningKeyError",
    Untrusted="UntrustedError",
)
