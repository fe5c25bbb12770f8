"""A write-ahead log of changes that the database lacks, with one disk write for each batch.

A commit of LMDB needs two consecutive disk writes, and rewrites a page for perhaps a hundred bytes.
A small change is written here once instead, and moved to the database later with others. The
database stores the number of the last record whose changes it contains. Later records are replayed
when the store is opened next.

The file keeps its length, and is rewritten from its start whenever the database has everything.
Bytes after the last record are then stale, as their numbers show.
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

#: Name of the log, beside the database file.
_FILE: Final = "changes.log"
#: Length of the file in bytes.
_OCTETS: Final = 1024 * 1024
#: Key under which the database stores the number of the last record that it contains.
_NUMBER_KEY: Final = b"logged"

_MAGIC: Final = b"\xabskl"
#: Header of a record: the magic bytes, the record number, the length of its changes in bytes, and a
#: checksum of everything but the magic bytes.
_HEAD: Final = Struct(">4sQII")
#: The header fields that the checksum covers besides the changes.
_SUMMED: Final = Struct(">QI")

#: Header of a change: its kind, lane, place and the number of bytes that follow.
_CHANGE: Final = Struct(">BQQI")
_PUT: Final = 1
_REMOVE: Final = 2
_MARK: Final = 3
_DELIVERED: Final = 4

_pack_change: Final = _CHANGE.pack


def note_number(txn: Transaction, databases: Databases, number: int) -> None:
    """Record in the database that it contains all records up to *number*."""
    txn.put(_NUMBER_KEY, NUMBER.pack(number), db=databases.meta)


def pack_changes(operations: Sequence[Operation]) -> bytes | None:
    """Return the operations as bytes; None if one of them cannot go to the log.

    Raises ``struct.error`` or ValueError for invalid numbers or texts.
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
    """Decode the operations; raises ``struct.error`` or ValueError for invalid bytes."""
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
    """The log file. Methods that write to it raise OSError."""

    def __init__(self, environment: Environment) -> None:
        """Describe the log of an environment, which must be open."""
        self.path = environment.path / _FILE
        self._environment = environment
        # Records that another store has written are ignored.
        self._salt = crc32(environment.uuid())
        self._descriptor: int | None = None
        #: Position in bytes of the next record.
        self._end = 0

    def read(self) -> tuple[int, list[Operation]]:
        """Return the last record number and the operations that the database lacks, in order.

        Raises :class:`StoreError` if the file is damaged.
        """
        operations: list[Operation] = []
        with self._environment.errors():
            number, octets = self._consistent()
            # The log may start with records that the database has. A commit that the disk reported
            # as failed was on the disk when the power was lost.
            at, next_number = 0, min(number + 1, self._first(octets))
            while (changes := self._record(octets, at, next_number)) is not None:
                if next_number > number:
                    operations += _unpack_changes(changes)
                    number = next_number
                next_number += 1
                at += _HEAD.size + len(changes)
        # Nothing follows what the database has, so the file can be rewritten from its start.
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

    def content(self) -> bytes:
        """Return the content of the file, with all changes that the database lacks now.

        Raises :class:`StoreError`.
        """
        with self._environment.errors():
            return self._consistent()[1]

    def _consistent(self) -> tuple[int, bytes]:
        """Return the last record number of the database, and the content that continues it."""
        number = self._noted()
        octets = self._octets()
        # A broker may be using it.
        while (now := self._noted()) != number:
            number = now
            octets = self._octets()
        return number, octets

    def _first(self, octets: bytes) -> int:
        """Return the number of the first record, or the largest integer if there is none."""
        if len(octets) >= _HEAD.size:
            number: int = _HEAD.unpack_from(octets)[1]
            if self._record(octets, 0, number) is not None:
                return number
        return sys.maxsize

    def _noted(self) -> int:
        """Return the number of the last record that the database contains."""
        with self._environment.transaction() as (txn, databases):
            found = txn.get(_NUMBER_KEY, db=databases.meta)
            return 0 if found is None else int(NUMBER.unpack(found)[0])

    def _octets(self) -> bytes:
        """Return the content of the file."""
        return self.path.read_bytes() if self.path.exists() else b""

    def open(self) -> None:
        """Open the file for writing, after it has been read; create it if it does not exist."""
        # Each write returns when it is on the disk. A file of constant length and blocks needs no
        # metadata writes.
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
        """Close the file; does nothing if not open."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _record(self, octets: bytes, at: int, number: int) -> bytes | None:
        """Return the changes of the record at a position, if it is complete and has that number."""
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
        """Return True if the open file has space for changes of that many bytes."""
        return self._descriptor is not None and self._end + _HEAD.size + octets <= _OCTETS

    @property
    def octets(self) -> int:
        """Number of bytes written so far."""
        return self._end

    def append(self, number: int, changes: bytes) -> None:
        """Write the next record; it is on the disk on return.

        After a failure the record may still exist, although it is erased where possible. Nothing
        may be appended then until :meth:`restart`.
        """
        assert self._descriptor is not None
        head = _HEAD.pack(_MAGIC, number, len(changes), self._sum(number, changes))
        try:
            _write(self._descriptor, head + changes, self._end)
        except OSError:
            # A write that failed on the disk can remain in the system's memory. It could be read
            # from there when the store is reopened after a crash.
            with suppress(OSError):
                _write(self._descriptor, bytes(_HEAD.size), self._end)
            raise
        self._end += _HEAD.size + len(changes)

    def restart(self) -> None:
        """Continue at the start of the file: the database has everything."""
        self._end = 0


def _write(descriptor: int, octets: bytes, at: int) -> None:
    """Write all bytes, even if the system accepts only a part at a time."""
    written = os.pwrite(descriptor, octets, at)
    while written < len(octets):
        written += os.pwrite(descriptor, octets[written:], at + written)
