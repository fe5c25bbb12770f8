"""What a replica's store holds, one kind of record for each of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import msgspec

from stompkit.replica.rows import RowState
from stompkit.replication.values import Value, row_from_json, row_to_json

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

#: How long the names of tables may be, and those of origins, in characters.
LONGEST_NAME: Final = 255
LONGEST_ORIGIN: Final = 100

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
#: How many octets of a row's id tell its table, and how many tell its key.
_TABLE_OCTETS: Final = 4
_KEY_OCTETS: Final = 12


class ChangesetRecord(msgspec.Struct, kw_only=True):
    """A changeset that was applied."""

    #: In which order it was applied here, from 1.
    position: int
    origin: str
    sequence: int
    #: SHA-256 of the body, in hexadecimal.
    id: str
    hlc: int
    #: When it was made, in seconds since 1970.
    time: float
    author: str = ""
    comment: str = ""
    #: How many changes it has.
    changes: int = 0
    #: The node that it came from; empty for an own one.
    via: str = ""
    #: How many octets its body has, or had.
    size: int = 0
    signature: bytes = b""
    #: ``None`` where it was not asked for, or is not kept any more.
    body: bytes | None = None


class OriginRecord(msgspec.Struct, kw_only=True):
    """How far the changesets of an origin have been applied."""

    origin: str
    #: Of its last changeset.
    sequence: int = 0
    #: The full vector of its last changeset.
    clock: dict[str, int] = {}
    #: Changesets up to here can't be had from this store any more.
    floor: int = 0
    #: The id of its last changeset; empty where that is not known.
    last_id: str = ""


class RowRecord:
    """A row that somebody has written, be it live or not.

    The state is decoded when it is first asked for, and it may be changed in place.
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
        """Describe a row; ``state`` may be what :meth:`encoded` has given."""
        #: See :func:`row_id`.
        self.id = id
        self.table = table
        self.key = key
        self.is_live = is_live
        #: How many columns have more than one value that survives.
        self.conflicts = conflicts
        #: Of what is to be seen of it, 128 bits; 0 where that is nothing.
        self.digest = digest
        #: With which page of a snapshot it came, while that still matters.
        self.page = page
        #: Why the application's table does not have it so; empty where it has.
        self.problem = problem
        self._octets = state if isinstance(state, bytes) else None
        self._state = None if isinstance(state, bytes) else state

    @property
    def state(self) -> RowState:
        """What has become of the row."""
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
        """The state as octets."""
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
    """A changeset that was received and is not applied."""

    origin: str
    sequence: int
    #: SHA-256 of the body, in hexadecimal.
    id: str
    #: In seconds since 1970.
    received_at: float = 0.0
    #: The node that it came from.
    via: str = ""
    #: Why it can't be applied; empty where it only waits for others.
    problem: str = ""
    #: Whether it is not tried again before somebody says so.
    is_quarantined: bool = False
    signature: bytes = b""
    body: bytes = b""


class PeerRecord(msgspec.Struct, kw_only=True):
    """Another node, as it was last heard of."""

    origin: str
    vector: dict[str, int] = {}
    #: What it counts up with each message that tells its vector.
    counter: int = 0
    #: In seconds since 1970.
    heard_at: float = 0.0
    #: On which ports it was heard directly.
    ports: list[int] = []
    #: The message by which it told its vector, verbatim.
    body: bytes = b""
    facts: dict[str, Any] = {}


def row_id(table: str, key: Mapping[str, Value]) -> bytes:
    """The 16 octets that stand for a row; rows of one table have ids that begin alike."""
    prefix = _table_id(table)
    octets = _ENCODER.encode([table, row_to_json(key)])
    return prefix + blake2b(octets, digest_size=_KEY_OCTETS).digest()


def id_range(table: str) -> tuple[bytes, bytes]:
    """Between which ids all rows of a table are; some of another one may be there, too."""
    prefix = _table_id(table)
    return prefix + b"\x00" * _KEY_OCTETS, prefix + b"\xff" * _KEY_OCTETS


@lru_cache(maxsize=4096)
def _table_id(table: str) -> bytes:
    return blake2b(table.encode(), digest_size=_TABLE_OCTETS).digest()


def key_to_octets(key: Mapping[str, Value]) -> bytes:
    """A key as JSON."""
    return _ENCODER.encode(row_to_json(key))


def key_from_octets(octets: bytes) -> dict[str, Value]:
    """The reverse of :func:`key_to_octets`."""
    found: dict[str, Any] = msgspec.json.decode(octets)
    return row_from_json(found)


def check_name(what: str, name: str, longest: int) -> None:
    """Raise ValueError for a name that not every database can store, and find again."""
    if not name or len(name) > longest or "\0" in name:
        raise ValueError(f"{what} has 1 to {longest} characters and no NUL, not {name[:300]!r}")
