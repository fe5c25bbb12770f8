"""The durable store: LMDB, a B-tree in one file, with a log of changes not yet in the database."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from stompkit.server.interfaces import (
    DropLane,
    LaneState,
    Operation,
    Put,
    StoredMessage,
    StoreError,
    StoreFullError,
)
from stompkit.server.log import store_events
from stompkit.server.stores.environment import Databases, Environment, Transaction
from stompkit.server.stores.lmdb_batch import apply_operations, no_lane, read_messages
from stompkit.server.stores.log import ChangeLog, note_number, pack_changes
from stompkit.server.stores.record import NUMBER, unpack_lane, unpack_record
from stompkit.server.stores.reserve import PART_OCTETS, PART_OPERATIONS

__all__ = ["LmdbStore"]


_MAX_OCTETS: Final = 64 * 1024 * 1024 * 1024
_TURN_KEY: Final = b"turn"

#: Maximum number of operations and message bytes of a batch that goes to the log.
_LOG_OPERATIONS: Final = 128
_LOG_OCTETS: Final = 32 * 1024
#: Number of operations, or bytes, in the log from which the next batch moves them to the database.
#: The rest of the log is a reserve for changes that must succeed while the database cannot grow.
_HELD_OPERATIONS: Final = 512
_HELD_OCTETS: Final = 256 * 1024
#: Number of bytes by which the database must be able to grow before anything goes to the log. It
#: exceeds the space that the log's content can need, even with one page for each message. The log's
#: content is already confirmed, and can no longer be refused for lack of space.
_ROOM: Final = 16 * 1024 * 1024
#: Maximum number of operations whose log record costs one write to the disk.
_BRIEF_OPERATIONS: Final = 8


class LmdbStore:
    """Keeps messages in ``DIRECTORY/messages.lmdb``.

    Only one process may have it open. A process that forks, as daemons do, must fork before opening
    it.
    """

    def __init__(
        self, directory: Path, *, synchronous: bool = True, max_octets: int = _MAX_OCTETS
    ) -> None:
        """Describe a store below ``directory``, which is created if necessary.

        With ``synchronous`` off, applied changes survive a crash of the process. They survive a
        crash of the machine only once :meth:`sync` has returned. Before that, a power loss loses
        the last changes. On a file system that does not write in order it can destroy the whole
        store, as described for LMDB's MDB_NOSYNC.

        The file never shrinks, and grows to at most ``max_octets``. The store is then full:
        operations with a :class:`Put` raise :class:`StoreFullError`, all others still work.
        """
        self._environment = Environment(directory, synchronous=synchronous, max_octets=max_octets)
        self._synchronous = synchronous
        #: True if freed pages may exist that are not yet reusable.
        self._may_have_freed = True
        #: Small changes that the database lacks: see :mod:`stompkit.server.stores.log`.
        self._changes: ChangeLog | None = None
        #: Operations that are in the log and not in the database, with the number of the last
        #: record that may have been written.
        self._held: list[Operation] = []
        self._number = 0
        #: True if a record failed: nothing can follow it until the database has everything.
        self._is_torn = False
        #: True if the database has space for everything that the log may receive.
        self._is_roomy = False
        #: True if the disk has space for operations that free space.
        self._has_reserve = False
        #: Lanes known to exist.
        self._seen: set[int] = set()

    def open(self) -> None:
        """Open or create the store; raises StoreError for an unknown version."""
        self._environment.open()
        try:
            self._open_log()
        except BaseException:
            self._close_log()
            self._environment.close()
            raise

    def _open_log(self) -> None:
        """Apply the content of the log, and prepare the log for writing."""
        environment = self._environment
        self._changes = changes = ChangeLog(environment)
        self._number, self._held = changes.read()
        self._is_torn = False
        self._seen.clear()
        try:
            self._settle()
        except StoreFullError as error:
            store_events.store_log_kept(error=str(error))
        if self._synchronous:
            # Changes applied without a sync must be durable before the log continues.
            environment.sync()
        self._look_for_room()
        if self._synchronous:
            try:
                changes.open()
            except OSError as error:
                # The log only improves speed.
                store_events.store_log_missing(error=str(error))

    def _close_log(self) -> None:
        if self._changes is not None:
            self._changes.close()
            self._changes = None

    def lanes(self) -> list[LaneState]:
        """Return all lanes, by number."""
        with self._all() as (txn, databases):
            return [
                unpack_lane(value, NUMBER.unpack(key)[0])
                for key, value in txn.cursor(databases.lanes)
            ]

    def records(self) -> Mapping[str, bytes]:
        """Return all records."""
        # Records never go through the log.
        with self._environment.transaction() as (txn, databases):
            cursor = txn.cursor(databases.records)
            return dict(unpack_record(bytes(value)) for _, value in cursor)

    def is_brief(self, operations: Sequence[Operation]) -> bool:
        """Return True if applying these costs one write to the disk and little else."""
        return (
            len(operations) <= _BRIEF_OPERATIONS
            and self._can_hold()
            and self._are_small(operations)
        )

    def apply(self, operations: Sequence[Operation]) -> None:
        """Apply all operations in order, or none."""
        if self._can_hold() and self._are_small(operations) and self._hold(operations):
            return
        try:
            self._commit(operations)
        except StoreFullError:
            if _has_put(operations) or self._is_torn or not self._hold(operations):
                raise

    # The log.

    def _can_hold(self) -> bool:
        """Return True if the log is usable and below its thresholds."""
        changes = self._changes
        return (
            changes is not None
            and self._is_roomy
            and not self._is_torn
            and len(self._held) < _HELD_OPERATIONS
            and changes.octets < _HELD_OCTETS
            and changes.has_room(0)
        )

    def _are_small(self, operations: Sequence[Operation]) -> bool:
        """Return True if the operations are small enough for the log to be faster."""
        if not 0 < len(operations) <= _LOG_OPERATIONS:
            return False
        octets = 0
        for operation in operations:
            if isinstance(operation, Put):
                octets += len(operation.lines) + len(operation.body)
                if octets > _LOG_OCTETS:
                    return False
        return True

    def _hold(self, operations: Sequence[Operation]) -> bool:
        """Append operations to the log; return False if it is full or cannot be written."""
        changes = self._changes
        assert changes is not None
        with self._environment.errors():
            octets = pack_changes(operations)
            if octets is None or not changes.has_room(len(octets)):
                return False
        for operation in operations:
            if isinstance(operation, Put) and operation.lane not in self._seen:
                self._look_for(operation.lane)
        self._number += 1
        try:
            changes.append(self._number, octets)
        except OSError as error:
            # It may have reached the disk. No other record has its number, and it becomes void once
            # the database records that number.
            self._is_torn = True
            store_events.store_log_failed(error=str(error))
            return False
        self._held += operations
        return True

    def _look_for(self, lane: int) -> None:
        """Raise :class:`StoreError` unless that lane exists."""
        with self._environment.transaction() as (txn, databases):
            found = txn.get(NUMBER.pack(lane), db=databases.lanes)
            if found is None:
                raise no_lane(lane)
            # A lane that cannot be read accepts no messages either.
            unpack_lane(found, lane)
        self._seen.add(lane)

    def _settle(self) -> None:
        """Move the content of the log to the database."""
        if not self._held and not self._is_torn:
            return
        try:
            self._write(())
        except StoreFullError:
            # These changes are already confirmed and must be kept, whatever the limit.
            with self._environment.extended():
                self._write_in_parts()
        except StoreError as error:
            if not isinstance(error.__cause__, (struct.error, ValueError)):
                raise
            # A damaged operation would block all others for ever.
            self._held = [each for each in self._held if self._is_possible(each)]
            self._write(())

    def _write_in_parts(self) -> None:
        """Move the content of the log to the database, in small parts if the disk is full.

        The reserve has enough pages for small transactions, and each frees others. The log keeps
        everything until the last part is written, since applying a part again changes nothing.
        """
        try:
            self._write(())
        except StoreFullError:
            while len(self._held) > PART_OPERATIONS:
                number = self._part()
                with self._environment.transaction(write=True) as (txn, databases):
                    apply_operations(txn, databases, self._held[:number])
                self._held = self._held[number:]
            self._write(())

    def _part(self) -> int:
        """Return the number of operations of the log that are moved together."""
        octets = 0
        for number, operation in enumerate(self._held[:PART_OPERATIONS]):
            if isinstance(operation, Put):
                octets += len(operation.lines) + len(operation.body)
            if octets > PART_OCTETS and number:
                return number
        return PART_OPERATIONS

    def _is_possible(self, operation: Operation) -> bool:
        """Return True if an operation can be applied, or would succeed with more space.

        Raise StoreError for a message that cannot be stored. Log any other impossible operation.
        """
        try:
            with self._environment.transaction(write=True, keep=False) as (txn, databases):
                apply_operations(txn, databases, [operation])
        except StoreFullError:
            return True
        except StoreError as error:
            if isinstance(operation, Put):
                raise
            store_events.store_change_dropped(error=str(error))
            return False
        return True

    @contextmanager
    def _all(self) -> Iterator[tuple[Transaction, Databases]]:
        """Open a transaction for reading that includes the content of the log."""
        try:
            self._settle()
        except StoreFullError:
            # The disk is full: apply the log's content for the duration of this block only.
            with (
                self._environment.extended(),
                self._environment.transaction(write=True, keep=False) as (txn, databases),
            ):
                apply_operations(txn, databases, self._held)
                yield txn, databases
        else:
            with self._environment.transaction() as (txn, databases):
                yield txn, databases

    # The database.

    def _commit(self, operations: Sequence[Operation]) -> None:
        """Write the content of the log and the operations; the operations may fail alone."""
        if not self._held and not self._is_torn:
            self._write_in_spite(operations)
            return
        try:
            self._write(operations)
        except StoreError:
            # Whichever operation caused the failure.
            self._settle()
            self._write_in_spite(operations)

    def _write_in_spite(self, operations: Sequence[Operation]) -> None:
        """Write the operations; if the store is full, raise its limit or reuse freed pages."""
        try:
            self._write(operations)
        except StoreFullError:
            if not _has_put(operations):
                # Operations that free space, or need hardly any, must succeed in a full store.
                with self._environment.extended():
                    self._write(operations)
            elif self._may_have_freed:
                self._may_have_freed = False
                self._commit_twice()
                self._write(operations)
            else:
                raise

    def _commit_twice(self) -> None:
        """Commit two nearly empty transactions.

        LMDB reuses freed pages two commits later at the earliest. Without these commits no page
        would become usable while all writes are refused.
        """
        with self._environment.extended():
            for number in range(2):
                with self._environment.transaction(write=True) as (txn, databases):
                    txn.put(_TURN_KEY, NUMBER.pack(number), db=databases.meta)

    def _write(self, operations: Sequence[Operation]) -> None:
        """Apply the content of the log, and operations, in one transaction."""
        changes = self._changes
        if not self._has_reserve and _has_put(operations):
            self._has_reserve = self._environment.has_reserve()
            if not self._has_reserve:
                raise self._environment.lacks_reserve()
        has_record = bool(self._held) or self._is_torn
        with self._environment.transaction(write=True) as (txn, databases):
            apply_operations(
                txn, databases, [*self._held, *operations] if self._held else operations
            )
            if has_record:
                note_number(txn, databases, self._number)
        self._may_have_freed = True
        if has_record and changes is not None:
            self._held = []
            self._is_torn = False
            changes.restart()
        self._look_for_room()
        for operation in operations:
            if isinstance(operation, DropLane):
                self._seen.discard(operation.lane)

    def _look_for_room(self) -> None:
        """Look if further messages may be accepted, now and in the log."""
        environment = self._environment
        self._has_reserve = environment.has_reserve()
        if self._synchronous:
            self._is_roomy = self._has_reserve and environment.room() >= _ROOM

    def read(
        self, lane: int, after: int, max_messages: int, max_octets: int
    ) -> Sequence[StoredMessage]:
        """Return the first messages of a lane with a place above ``after``, in order."""
        with self._all() as (txn, databases):
            return read_messages(txn, databases, lane, after, max_messages, max_octets)

    def sync(self) -> None:
        """Flush everything applied so far, so that it survives a crash of the machine."""
        self._environment.sync()

    def close(self) -> None:
        """Sync and close; does nothing if not open."""
        if self._changes is None:
            return
        try:
            self._settle()
        except StoreFullError as error:
            store_events.store_log_kept(error=str(error))
        finally:
            self._close_log()
            self._environment.close()


def _has_put(operations: Sequence[Operation]) -> bool:
    return any(isinstance(operation, Put) for operation in operations)
