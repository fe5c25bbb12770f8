"""Signed changesets in their original bytes, which replicas store and forward unchanged.

A changeset of a replica is canonical JSON with an empty ``id``, since its id is the SHA-256 of
these bytes. The author signs that id.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from typing import Final

import msgspec

from stompkit.replica.identity import branch_of, is_origin
from stompkit.replica.problems import MessageError
from stompkit.replica.signing import SIGNATURE_BYTES, Signer, Verifier
from stompkit.replication.model.events import Changeset, EventError, RowChange, decode, encode

__all__ = ["SignedChangeset"]

#: Maximum integer that all databases support.
_MOST: Final = 2**63 - 1
#: Maximum length of a table name with its schema.
_LONGEST_NAME: Final = 255
_IS_ID: Final = re.compile("[0-9a-f]{64}").fullmatch
_BEGINS_ID: Final = re.compile("[0-9a-f]{16}").fullmatch


class _Dot(msgspec.Struct):
    """Origin and sequence number, which identify a changeset."""

    origin: str
    sequence: int


_DOT: Final = msgspec.json.Decoder(_Dot)


class SignedChangeset:
    """A changeset in the bytes that its author wrote, with the author's signature.

    The body is decoded lazily, so that a duplicate costs little.
    """

    __slots__ = ("_changeset", "_dot", "_id", "body", "signature")

    def __init__(self, body: bytes, signature: bytes = b"") -> None:
        """Wrap the bytes of a store; ``signature`` is empty for an unsigned changeset."""
        self.body: Final = body
        self.signature: Final = signature
        self._id = ""
        self._dot: tuple[str, int] | None = None
        self._changeset: Changeset | None = None

    @classmethod
    def make(cls, changeset: Changeset, signer: Signer | None = None) -> SignedChangeset:
        """Encode and sign a changeset; its own id is ignored.

        Raises :class:`~stompkit.replication.EventError` if other nodes would refuse it,
        and :class:`~stompkit.replication.model.values.InvalidValueError`.
        """
        if changeset.id:
            changeset = msgspec.structs.replace(changeset, id="")
        _check(changeset)
        body = encode(changeset)
        hashed = hashlib.sha256(body)
        made = cls(body, b"" if signer is None else signer.sign(hashed.digest()))
        made._id = hashed.hexdigest()
        made._dot = (changeset.origin, changeset.sequence)
        made._changeset = msgspec.structs.replace(changeset, id=made._id)
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SignedChangeset):
            return NotImplemented
        return self.body == other.body and self.signature == other.signature

    def __hash__(self) -> int:
        return hash(self.body)

    def __repr__(self) -> str:
        return f"<SignedChangeset {self.id[:12]}>"

    @property
    def id(self) -> str:
        """SHA-256 of the body, in hexadecimal."""
        if not self._id:
            self._id = hashlib.sha256(self.body).hexdigest()
        return self._id

    @property
    def dot(self) -> tuple[str, int]:
        """Origin and sequence number, decoded without the rest; raises EventError."""
        if self._dot is None:
            self._dot = _dot_of(self.body)
        return self._dot

    @property
    def changeset(self) -> Changeset:
        """Decoded changeset, with its id.

        Raises :class:`~stompkit.replication.EventError` if the body is malformed, or not
        one that a replica makes.
        """
        if self._changeset is None:
            changeset = decode(self.body)
            _check(changeset)
            self._dot = (changeset.origin, changeset.sequence)
            self._changeset = msgspec.structs.replace(changeset, id=self.id)
        return self._changeset

    def verify(self, verifier: Verifier) -> None:
        """Check the author's signature, unless ``verifier`` trusts all nodes.

        Raises :class:`~stompkit.replica.signing.UntrustedError`, and EventError.
        """
        if verifier.is_strict:
            # Messages are signed with the same key, but their signed data is never this short.
            verifier.verify(branch_of(self.dot[0]), bytes.fromhex(self.id), self.signature)

    def encode(self) -> bytes:
        """Return the changeset as one line: the signature in base64, a space and the body."""
        if not self.signature:
            return b" " + self.body
        return binascii.b2a_base64(self.signature, newline=False) + b" " + self.body

    @classmethod
    def decode(cls, item: bytes) -> SignedChangeset:
        """Decode a line of :meth:`encode`; the body of the changeset is not decoded yet.

        Raises :class:`~stompkit.replica.problems.MessageError`.
        """
        text, blank, body = item.partition(b" ")
        if not blank:
            raise MessageError("there is no blank between signature and changeset")
        if not text:
            return cls(body)
        try:
            signature = binascii.a2b_base64(text, strict_mode=True)
        except binascii.Error as error:
            raise MessageError(f"the signature of a changeset is no base64: {error}") from None
        if len(signature) != SIGNATURE_BYTES:
            raise MessageError(f"the signature of a changeset has {len(signature)} octets")
        return cls(body, signature)


def _dot_of(body: bytes) -> tuple[str, int]:
    try:
        dot = _DOT.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EventError(f"this is no changeset: {error}") from None
    _check_dot(dot.origin, dot.sequence)
    return (dot.origin, dot.sequence)


def _check_dot(origin: str, sequence: int) -> None:
    if not (is_origin(origin) and 1 <= sequence <= _MOST):
        raise EventError(f"{origin[:80]!r} and {sequence} are no origin and sequence")


def _check(changeset: Changeset) -> None:
    """Raise EventError for a changeset that no replica makes or no store can hold."""
    revision = changeset.revision
    if revision is None:
        raise EventError("a changeset without a revision is none of a replica")
    if changeset.id:
        raise EventError("the id of a changeset of a replica is not part of it")
    _check_dot(changeset.origin, changeset.sequence)
    if not 1 <= revision.hlc <= _MOST:
        raise EventError(f"the hybrid logical time is {revision.hlc}")
    for origin, sequence in revision.context.items():
        _check_dot(origin, sequence)
        if origin == changeset.origin:
            raise EventError(f"the context of a changeset of {origin!r} names that origin")
    parents = changeset.parents
    if not all(map(_IS_ID, parents)) or list(parents) != sorted(set(parents)):
        raise EventError("the parents are not ids in order")
    if changeset.timestamp.tzinfo is None:
        raise EventError("the time of a changeset has no zone")
    if "\0" in revision.author or "\0" in revision.comment:
        raise EventError("author or comment has a NUL")
    if revision.previous and not _BEGINS_ID(revision.previous):
        raise EventError(f"{revision.previous[:80]!r} is no beginning of an id")
    if not all(
        origin in revision.context and len(id) == 16 for origin, id in revision.seen.items()
    ):
        raise EventError("what it has seen is not what its context names")
    for origin, sequence, id in revision.replaces:
        _check_dot(origin, sequence)
        # A node can replace only its own changesets.
        is_own = origin != changeset.origin and branch_of(origin) == branch_of(changeset.origin)
        if not (is_own and _BEGINS_ID(id)):
            raise EventError(f"a changeset cannot replace {origin!r} {sequence} {id[:80]!r}")
    for change in changeset.changes:
        _check_change(change)


def _check_change(change: RowChange) -> None:
    before, after = change.before, change.after
    if change.action == "update":
        is_fine = before is not None and after is not None and before.keys() == after.keys()
    elif change.action == "write":
        is_fine = after is not None
    else:
        is_fine = change.action == "delete"
    if not is_fine or not change.key or change.old_key is not None:
        raise EventError(
            f"table {change.name[:80]!r}: a replica tells {change.action!r} in another way"
        )
    name = change.name
    if not change.table or len(name) > _LONGEST_NAME or "\0" in name:
        raise EventError(
            f"the name of a table has 1 to {_LONGEST_NAME} characters and no NUL, not {name[:80]!r}"
        )
