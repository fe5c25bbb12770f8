"""A log of changes that are not in the database yet: one write to the disk for each.

A commit of LMDB has the disk write twice, one after the other, and changes a page for what may
be a hundred octets. A small change is written here instead, once, and put into the database with
others later. What the database has is told by a number: that of the last record of which it has
the changes. Those that follow it are read again when the store is opened next.

The file keeps its length, and is written from its beginning again whenever the database has
everything; whatever follows the last record then is of no value, and tells so by its numbers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from struct import Struct
from typing import Final
from zlib import crc32

from stompkit._common.files import sync_path
from stompkit.server.interfaces import Delivered, Mark, Operation, Put, Remove, StoreError
from stompkit.server.stores.environment import (
    Databases,
    Environment,
    Transaction,
)
from stompkit.server.stores.record import NUMBER, pack_message, unpack_message

__all__ = ["ChangeLog", "note_number", "pack_changes"]

#: Beside the file of the database.
_FILE: Final = "changes.log"
#: The length of the file.
_OCTETS: Final = 1024 * 1024
#: Under which the database has the number of the last record of which it has the changes.
_NUMBER_KEY: Final = b"logged"

_MAGIC: Final = b"\xabskl"
#: What begins a record: the magic octets, the number of the record, the octets of its changes,
#: and a checksum of all that but the magic octets.
_HEAD: Final = Struct(">4sQII")
#: What the checksum is of, apart from the changes.
_SUMMED: Final = Struct(">QI")

#: What begins a change: its kind, its lane and its place, and the octets that follow.
_CHANGE: Final = Struct(">BQQI")
_PUT: Final = 1
_REMOVE: Final = 2
_MARK: Final = 3
_DELIVERED: Final = 4

_pack_change: Final = _CHANGE.pack


def note_number(txn: Transaction, databases: Databases, number: int) -> None:
    """Have the database say that it has the changes of all records up to that with a number."""
    txn.put(_NUMBER_KEY, NUMBER.pack(number), db=databases.meta)


def pack_changes(operations: Sequence[Operation]) -> bytes | None:
    """The operations as octets; nothing if there is one among them that is none for the log.

    Raises ``struct.error`` or ValueError for numbers or texts that can't be.
    """
    parts: list[bytes] = []
    for operation in operations:
        if isinstance(operation, Put):
            value = pack_message(operation)
            parts += (_pack_change(_PUT, operation.lane, operation.place, len(value)), value)
        elif isinstance(operation, Remove):
            parts.append(_pack_change(_REMOVE, operation.lane, operation.place, 0))
        elif isinstance(operation, Delivered):
            parts.append(_pack_change(_DELIVERED, operation.lane, operation.place, 0))
        elif isinstance(operation, Mark):
            value = NUMBER.pack(operation.deliveries)
            parts += (_pack_change(_MARK, operation.lane, operation.place, len(value)), value)
        else:
            return None
    return b"".join(parts)


def _unpack_changes(octets: bytes) -> list[Operation]:
    """The operations again; ``struct.error`` or ValueError for what can't be any."""
    operations: list[Operation] = []
    at = 0
    while at < len(octets):
        kind, lane, place, length = _CHANGE.unpack_from(octets, at)
        at += _CHANGE.size
        value = octets[at : at + length]
        if len(value) != length:
            raise ValueError("a change is cut off")
        at += length
        if kind == _PUT:
            message = unpack_message(value, place, 0)
            _, _, size, expires_ms, due_ms, id, lines, body = message
            operations.append(Put(lane, place, size, expires_ms, due_ms, id, lines, body))
        elif kind == _REMOVE:
            operations.append(Remove(lane, place))
        elif kind == _MARK:
            operations.append(Mark(lane, place, NUMBER.unpack(value)[0]))
        elif kind == _DELIVERED:
            operations.append(Delivered(lane, place))
        else:
            raise ValueError(f"there is no change of kind {kind}")
    return operations


class ChangeLog:
    """The file. What writes to it raises OSError."""

    def __init__(self, environment: Environment) -> None:
        """Describe the log of an environment, which has to be open."""
        self.path = environment.path / _FILE
        self._environment = environment
        # What another store has written counts as nothing.
        self._salt = crc32(environment.uuid())
        self._descriptor: int | None = None
        #: Where the next record goes.
        self._end = 0

    def read(self) -> tuple[int, list[Operation]]:
        """The number of the last record, and what the database has not yet, in order.

        Raises :class:`StoreError` if that can't be told, because the file is damaged.
        """
        operations: list[Operation] = []
        with self._environment.errors():
            number = self._noted()
            octets = self._octets()
            # A broker may be at work with it.
            while (now := self._noted()) != number:
                number = now
                octets = self._octets()
            # It may begin with what the database has: a commit of which the disk said that it
            # failed was there when the power was lost.
            at, next_number = 0, min(number + 1, self._first(octets))
            while (changes := self._record(octets, at, next_number)) is not None:
                if next_number > number:
                    operations += _unpack_changes(changes)
                    number = next_number
                next_number += 1
                at += _HEAD.size + len(changes)
        # Where nothing follows what the database has, it can be written from its beginning.
        self._end = at if operations else 0
        later = octets.find(_MAGIC, self._end)
        while later >= 0:
            if len(octets) - later >= _HEAD.size:
                other: int = _HEAD.unpack_from(octets, later)[1]
                if other > number and self._record(octets, later, other) is not None:
                    raise StoreError(
                        f"{self.path} is damaged, or newer than the database beside it: it has"
                        f" record {other}, but nothing that can be read between that and record"
                        f" {number}. Put back a copy of the whole directory. Without that file"
                        " the store can be opened, and lacks the last changes, some hundred at"
                        " most"
                    )
            later = octets.find(_MAGIC, later + 1)
        return number, operations

    def _first(self, octets: bytes) -> int:
        """The number of the record at the beginning, if there is one, or of none that there is."""
        if len(octets) >= _HEAD.size:
            number: int = _HEAD.unpack_from(octets)[1]
            if self._record(octets, 0, number) is not None:
                return number
        return sys.maxsize

    def _noted(self) -> int:
        """The number of the last record that the database has the changes of."""
        with self._environment.transaction() as (txn, databases):
            found = txn.get(_NUMBER_KEY, db=databases.meta)
            return 0 if found is None else int(NUMBER.unpack(found)[0])

    def _octets(self) -> bytes:
        """What is in the file."""
        return self.path.read_bytes() if self.path.exists() else b""

    def open(self) -> None:
        """Open the file to write, once it has been read; it is made if it is not there."""
        # Each write returns when the disk has it. A file whose length and blocks stay what they
        # are has nothing else that the disk would have to write.
        flags = os.O_RDWR | os.O_CREAT | os.O_DSYNC | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, 0o600)
        try:
            length = os.fstat(descriptor).st_size
            if length < _OCTETS:
                _write(descriptor, bytes(_OCTETS - length), length)
                sync_path(self.path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def close(self) -> None:
        """Close the file; harmless if it is not open."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _record(self, octets: bytes, at: int, number: int) -> bytes | None:
        """The changes of a record at a place, if it is whole and has that number."""
        if len(octets) - at < _HEAD.size:
            return None
        magic, found, length, checksum = _HEAD.unpack_from(octets, at)
        if magic != _MAGIC or found != number:
            return None
        at += _HEAD.size
        changes = octets[at : at + length]
        if len(changes) != length or self._sum(number, changes) != checksum:
            return None
        return changes

    def _sum(self, number: int, changes: bytes) -> int:
        return crc32(changes, crc32(_SUMMED.pack(number, len(changes)), self._salt))

    def has_room(self, octets: int) -> bool:
        """Whether changes of that many octets go into the file, which has to be open."""
        return self._descriptor is not None and self._end + _HEAD.size + octets <= _OCTETS

    @property
    def octets(self) -> int:
        """How far the file has been written."""
        return self._end

    def append(self, number: int, changes: bytes) -> None:
        """Write the record after that with the number before; the disk has it on return.

        If this fails, it may be there all the same, though what can be done against that is, and
        nothing may be appended until :meth:`restart`.
        """
        assert self._descriptor is not None
        head = _HEAD.pack(_MAGIC, number, len(changes), self._sum(number, changes))
        try:
            _write(self._descriptor, head + changes, self._end)
        except OSError:
            # A write that the disk did not take can be in the system's memory as a whole, and be
            # read from there by who opens the store after a crash.
            with suppress(OSError):
                _write(self._descriptor, bytes(_HEAD.size), self._end)
            raise
        self._end += _HEAD.size + len(changes)

    def restart(self) -> None:
        """Go on at the beginning: the database has everything."""
        self._end = 0


def _write(descriptor: int, octets: bytes, at: int) -> None:
    """Write all of it, also where the system takes a part only."""
    written = os.pwrite(descriptor, octets, at)
    while written < len(octets):
        written += os.pwrite(descriptor, octets[written:], at + written)
