"""Verify the integrity of an LMDB store and report every problem."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stompkit.server.interfaces import LaneState, StoreError
from stompkit.server.stores.environment import Databases, Environment, Transaction
from stompkit.server.stores.log import ChangeLog
from stompkit.server.stores.record import (
    KEY,
    NUMBER,
    record_key,
    unpack_lane,
    unpack_message,
    unpack_record,
)

__all__ = ["check"]

#: Maximum number of problems reported one by one; further ones are only counted.
_MOST: Final = 100
#: Number of messages between two calls of the progress function.
_STEP: Final = 10_000
#: Exceptions raised by decoding damaged bytes.
_DAMAGE: Final = (struct.error, ValueError)


def check(directory: Path, progress: Callable[[int, int], object]) -> list[str]:
    """Check the whole store below a broker's data directory, without changing it.

    Returns one sentence for each problem, none for a sound store. ``progress`` is called with the
    number of messages checked and the total. Raises :class:`StoreError` if there is no store or it
    cannot be opened, because its version differs or its header is damaged.
    """
    environment = Environment(directory, read_only=True)
    environment.open()
    found = _Check()
    try:
        with environment.transaction() as (txn, databases):
            found.look(txn, databases, progress)
        found.look_at_log(environment)
    except StoreError as error:
        # LMDB's own structures are damaged: the data behind them is unreachable.
        found.report(f"not everything can be read: {error}")
    finally:
        environment.close()
    return found.problems()


class _Check:
    """The state of one check."""

    def __init__(self) -> None:
        """Start without problems."""
        self._problems: list[str] = []
        self._untold = 0
        self._lanes: dict[int, LaneState] = {}
        #: Number of messages, bytes and highest place actually found, by lane.
        self._seen: dict[int, tuple[int, int, int]] = {}

    def report(self, problem: str) -> None:
        """Record a problem."""
        if len(self._problems) < _MOST:
            self._problems.append(problem)
        else:
            self._untold += 1

    def problems(self) -> list[str]:
        """Return the reported problems, and the number of those not listed."""
        more = [f"{self._untold} more problems"] if self._untold else []
        return self._problems + more

    def look(
        self, txn: Transaction, databases: Databases, progress: Callable[[int, int], object]
    ) -> None:
        """Check everything, in an order that allows comparison with what was read before."""
        self._look_at_lanes(txn, databases)
        self._look_at_messages(txn, databases, progress)
        self._compare()
        self._look_at_marks(txn, databases)
        self._look_at_records(txn, databases)

    def look_at_log(self, environment: Environment) -> None:
        """Check that the changes missing from the database can be read from the log."""
        try:
            ChangeLog(environment).read()
        except StoreError as error:
            self.report(str(error))

    def _look_at_lanes(self, txn: Transaction, databases: Databases) -> None:
        for key, value in txn.cursor(databases.lanes):
            try:
                lane = NUMBER.unpack(key)[0]
                self._lanes[lane] = unpack_lane(value, lane)
            except _DAMAGE as error:
                self.report(f"lane {bytes(key).hex()} cannot be read: {error}")

    def _look_at_messages(
        self, txn: Transaction, databases: Databases, progress: Callable[[int, int], object]
    ) -> None:
        total = txn.stat(databases.messages)["entries"]
        for number, (key, value) in enumerate(txn.cursor(databases.messages)):
            if number % _STEP == 0:
                progress(number, total)
            try:
                lane, place = KEY.unpack(key)
                size = unpack_message(value, place, 0).size
            except _DAMAGE as error:
                self.report(f"message {bytes(key).hex()} cannot be read: {error}")
                continue
            messages, octets, _ = self._seen.get(lane, (0, 0, 0))
            self._seen[lane] = (messages + 1, octets + size, place)
        progress(total, total)

    def _compare(self) -> None:
        """Compare the totals that lanes state with the messages found."""
        for lane in sorted(self._seen.keys() - self._lanes.keys()):
            self.report(f"lane {lane} is not there, but {self._seen[lane][0]} messages of it are")
        for lane, state in self._lanes.items():
            messages, octets, last_place = self._seen.get(lane, (0, 0, 0))
            name = f"lane {lane} ({state.queue!a})"
            if messages != state.messages:
                self.report(f"{name} says that it has {state.messages} messages, not {messages}")
            if octets != state.octets:
                self.report(f"{name} says that it has {state.octets} octets, not {octets}")
            if last_place > state.last_place:
                self.report(
                    f"{name} ends at place {state.last_place}, its messages at {last_place}"
                )

    def _look_at_marks(self, txn: Transaction, databases: Databases) -> None:
        for key, value in txn.cursor(databases.marks):
            try:
                lane, place = KEY.unpack(key)
                NUMBER.unpack(value)
            except _DAMAGE as error:
                self.report(f"mark {bytes(key).hex()} cannot be read: {error}")
                continue
            if txn.get(bytes(key), db=databases.messages) is None:
                self.report(f"there is a mark, but no message, at place {place} of lane {lane}")

    def _look_at_records(self, txn: Transaction, databases: Databases) -> None:
        for key, value in txn.cursor(databases.records):
            try:
                name, _ = unpack_record(bytes(value))
            except _DAMAGE as error:
                self.report(f"record {bytes(key).hex()} cannot be read: {error}")
                continue
            if record_key(name) != key:
                self.report(f"record {name!a} is not where it should be")
