"""Signatures of nodes: Ed25519. Keys need the extra ``signing``; without any, nothing does.

A public key is text, ``ed25519:`` and base64. A private key is a file in PEM, which only its owner
can read.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

__all__ = ["SIGNATURE_BYTES", "KeyProblem", "Signer", "Untrusted", "Verifier", "generate_key"]

#: How long a signature is.
SIGNATURE_BYTES: Final = 64

_PREFIX: Final = "ed25519:"


class KeyProblem(ValueError):
    """A key that can't be used, or the library for it is missing; ``str()`` says what to do."""


class Untrusted(ValueError):
    """Something that a trusted node has not signed; ``str()`` says why."""


def _need_library() -> None:
    if find_spec("cryptography") is None:
        raise KeyProblem("keys need the package cryptography: pip install 'stompkit[signing]'")


def generate_key(path: str | os.PathLike[str]) -> str:
    """Write a new private key to a file that is not there yet; gives the public key.

    Raises OSError (FileExistsError where there is one) and :class:`KeyProblem`.
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
    """Signs with one node's private key."""

    __slots__ = ("_key", "public")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        """Use a key; see :meth:`load`."""
        self._key = key
        #: The public key as text: what other nodes are given.
        self.public: Final = (
            _PREFIX + base64.b64encode(key.public_key().public_bytes_raw()).decode()
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Signer:
        """Use the key in a file; raises OSError and :class:`KeyProblem`."""
        _need_library()
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        octets = Path(path).read_bytes()
        try:
            key = load_pem_private_key(octets, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise KeyProblem(f"{path} is no private key without a password: {error}") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise KeyProblem(f"the key in {path} is not one of Ed25519")
        return cls(key)

    def sign(self, octets: bytes) -> bytes:
        """The signature of these octets."""
        return self._key.sign(octets)


class Verifier:
    """Knows the public keys of nodes, and tells what they have not signed."""

    def __init__(self, keys: Mapping[str, str | Sequence[str]] | None = None) -> None:
        """Trust these keys, by branch id; where a node has several any of them does.

        Without any all nodes are trusted. Raises :class:`KeyProblem`.
        """
        #: Whether nodes that are not known are refused.
        self.is_strict: Final = bool(keys)
        if keys:
            _need_library()
        self._keys: Final = {
            branch_id: [_public_key(branch_id, each) for each in _several(texts)]
            for branch_id, texts in (keys or {}).items()
        }

    def verify(self, branch_id: str, octets: bytes, signature: bytes) -> None:
        """Pass over what this node has signed; raises :class:`Untrusted` for anything else."""
        if not self.is_strict:
            return
        keys = self._keys.get(branch_id)
        if keys is None:
            raise Untrusted(f"the node {branch_id!r} is not one of those that are trusted")
        if not signature:
            raise Untrusted(f"the node {branch_id!r} has not signed this")
        from cryptography.exceptions import InvalidSignature

        for key in keys:
            try:
                key.verify(signature, octets)
            except InvalidSignature:
                continue
            return
        raise Untrusted(f"this is not signed with the key of the node {branch_id!r}")


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
        raise KeyProblem(
            f"the public key of {branch_id!r} is no text as 'ed25519:BASE64': {error}"
        ) from None
