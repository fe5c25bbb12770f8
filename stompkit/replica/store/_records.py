"""Records of a replica's store, one kind for each of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import msgspec

from stompkit.replica.rows import RowState
from stompkit.replication.model.values import Value, row_from_json, row_to_json

__all__ = [
    "LONGEST_NAME",
    "LONGEST_ORIGIN",
    "ChangesetRecord",
    "HeldRecord",
    "OriginRecord",
    "PeerRecord",
    "RowRecord",
    "check_name",
    "id_range",
    "key_from_octets",
    "key_to_octets",
    "row_id",
]

#: Maximum lengths of table names and of origins, in characters.
LONGEST_NAME: Final = 255
LONGEST_ORIGIN: Final = 100

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
#: Numbers of bytes of a row's id for its table and for its key.
_TABLE_OCTETS: Final = 4
_KEY_OCTETS: Final = 12


class ChangesetRecord(msgspec.Struct, kw_only=True):
    """A changeset that was applied."""

    #: Position in the local order of application, from 1.
    position: int
    origin: str
    sequence: int
    #: SHA-256 of the body, in hexadecimal.
    id: str
    hlc: int
    #: Creation time in seconds since 1970.
    time: float
    author: str = ""
    comment: str = ""
    #: Number of changes.
    changes: int = 0
    #: Node that it came from; empty for an own one.
    via: str = ""
    #: Size of the body in bytes, even if the body is no longer kept.
    size: int = 0
    signature: bytes = b""
    #: ``None`` if it was not requested or is no longer kept.
    body: bytes | None = None


class OriginRecord(msgspec.Struct, kw_only=True):
    """The progress of an origin."""

    origin: str
    #: Sequence of its last changeset.
    sequence: int = 0
    #: Full vector of its last changeset.
    clock: dict[str, int] = {}
    #: Last sequence that is no longer available from this store.
    floor: int = 0
    #: Id of its last changeset; empty if unknown.
    last_id: str = ""


class RowRecord:
    """A row that was written by any node, live or deleted.

    The state is decoded on first use, and may be changed in place.
    """

    __slots__ = (
        "_octets",
        "_state",
        "conflicts",
        "digest",
        "id",
        "is_live",
        "key",
        "page",
        "problem",
        "table",
    )

    def __init__(
        self,
        *,
        id: bytes,
        table: str,
        key: dict[str, Value],
        state: RowState | bytes,
        is_live: bool,
        conflicts: int = 0,
        digest: int = 0,
        page: int | None = None,
        problem: str = "",
    ) -> None:
        """Describe a row; ``state`` may be a result of :meth:`encoded`."""
        #: See :func:`row_id`.
        self.id = id
        self.table = table
        self.key = key
        self.is_live = is_live
        #: Number of columns with more than one surviving value.
        self.conflicts = conflicts
        #: 128-bit digest of the visible row; 0 if there is none.
        self.digest = digest
        #: Snapshot page that it came with, while that matters.
        self.page = page
        #: Reason why the application's table differs; empty if it does not.
        self.problem = problem
        self._octets = state if isinstance(state, bytes) else None
        self._state = None if isinstance(state, bytes) else state

    @property
    def state(self) -> RowState:
        """Merge state of the row."""
        if self._state is None:
            assert self._octets is not None
            self._state = RowState.decode(self._octets)
            # It may be changed from now on.
            self._octets = None
        return self._state

    @state.setter
    def state(self, state: RowState) -> None:
        self._state, self._octets = state, None

    def encoded(self) -> bytes:
        """Return the encoded state."""
        if self._state is None:
            assert self._octets is not None
            return self._octets
        return self._state.encode()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowRecord) and self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]  # it is mutable

    def __repr__(self) -> str:
        return f"<RowRecord {self.table} {self.key} is_live={self.is_live}>"

    def _facts(self) -> tuple[Any, ...]:
        plain = (self.id, self.table, self.key, self.is_live, self.conflicts, self.digest)
        return (*plain, self.page, self.problem, self.encoded())


class HeldRecord(msgspec.Struct, kw_only=True):
    """A changeset that was received and not applied."""

    origin: str
    sequence: int
    #: SHA-256 of the body, in hexadecimal.
    id: str
    #: Time of receipt in seconds since 1970.
    received_at: float = 0.0
    #: Node that it came from.
    via: str = ""
    #: Reason why it cannot be applied; empty if it is only held for others.
    problem: str = ""
    #: True if it is not retried before an administrator requests it.
    is_quarantined: bool = False
    signature: bytes = b""
    body: bytes = b""


class PeerRecord(msgspec.Struct, kw_only=True):
    """The last known state of another node."""

    origin: str
    vector: dict[str, int] = {}
    #: Number of its last announcement.
    counter: int = 0
    #: Time of its last announcement in seconds since 1970.
    heard_at: float = 0.0
    #: Channels on which it was heard directly.
    ports: list[int] = []
    #: Message of its last announcement, verbatim.
    body: bytes = b""
    facts: dict[str, Any] = {}


def row_id(table: str, key: Mapping[str, Value]) -> bytes:
    """Return the 16-byte id of a row; ids of one table share a prefix."""
    prefix = _table_id(table)
    octets = _ENCODER.encode([table, row_to_json(key)])
    return prefix + blake2b(octets, digest_size=_KEY_OCTETS).digest()


def id_range(table: str) -> tuple[bytes, bytes]:
    """Return bounds of the ids of a table's rows; rows of other tables may be in between."""
    prefix = _table_id(table)
    return prefix + b"\x00" * _KEY_OCTETS, prefix + b"\xff" * _KEY_OCTETS


@lru_cache(maxsize=4096)
def _table_id(table: str) -> bytes:
    return blake2b(table.encode(), digest_size=_TABLE_OCTETS).digest()


def key_to_octets(key: Mapping[str, Value]) -> bytes:
    """Encode a key as JSON."""
    return _ENCODER.encode(row_to_json(key))


def key_from_octets(octets: bytes) -> dict[str, Value]:
    """Decode a key of :func:`key_to_octets`."""
    found: dict[str, Any] = msgspec.json.decode(octets)
    return row_from_json(found)


def check_name(what: str, name: str, longest: int) -> None:
    """Raise ValueError for a name that some database cannot store and find again."""
    if not name or len(name) > longest or "\0" in name:
        raise ValueError(f"{what} has 1 to {longest} characters and no NUL, not {name[:300]!r}")
