"""Looks at everything in an LMDB store, and says what is wrong with it."""

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

#: Problems that are told one by one; more are only counted.
_MOST: Final = 100
#: Messages from one call of the progress function to the next.
_STEP: Final = 10_000
#: What octets raise that are not what they should be.
_DAMAGE: Final = (struct.error, ValueError)


def check(directory: Path, progress: Callable[[int, int], object]) -> list[str]:
    """Read all of the store below a broker's directory of data; nothing is changed.

    Returns a sentence for each problem, none for a store that is sound. ``progress`` is called
    with the number of messages that have been looked at, and that there are. Raises
    :class:`StoreError` if there is no store, or it can't be opened: it is of another version, or
    damaged where it begins.
    """
    environment = Environment(directory, read_only=True)
    environment.open()
    found = _Check()
    try:
        with environment.transaction() as (txn, databases):
            found.look(txn, databases, progress)
        found.look_at_log(environment)
    except StoreError as error:
        # LMDB's own structures are damaged: no way to what is behind.
        found.report(f"not everything can be read: {error}")
    finally:
        environment.close()
    return found.problems()


class _Check:
    """What has been seen."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._problems: list[str] = []
        self._untold = 0
        self._lanes: dict[int, LaneState] = {}
        #: Messages, octets and highest place that there really are, by lanes.
        self._seen: dict[int, tuple[int, int, int]] = {}

    def report(self, problem: str) -> None:
        """Note a problem."""
        if len(self._problems) < _MOST:
            self._problems.append(problem)
        else:
            self._untold += 1

    def problems(self) -> list[str]:
        """What was reported."""
        more = [f"{self._untold} more problems"] if self._untold else []
        return self._problems + more

    def look(
        self, txn: Transaction, databases: Databases, progress: Callable[[int, int], object]
    ) -> None:
        """Look at everything, in an order in which each is compared with what was seen."""
        self._look_at_lanes(txn, databases)
        self._look_at_messages(txn, databases, progress)
        self._compare()
        self._look_at_marks(txn, databases)
        self._look_at_records(txn, databases)

    def look_at_log(self, environment: Environment) -> None:
        """See whether what the database has not yet can be read."""
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
                self.report(f"lane {bytes(key).hex()} can't be read: {error}")

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
                self.report(f"message {bytes(key).hex()} can't be read: {error}")
                continue
            messages, octets, _ = self._seen.get(lane, (0, 0, 0))
            self._seen[lane] = (messages + 1, octets + size, place)
        progress(total, total)

    def _compare(self) -> None:
        """Compare what lanes say of their messages with what there is."""
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
                self.report(f"mark {bytes(key).hex()} can't be read: {error}")
                continue
            if txn.get(bytes(key), db=databases.messages) is None:
                self.report(f"there is a mark, but no message, at place {place} of lane {lane}")

    def _look_at_records(self, txn: Transaction, databases: Databases) -> None:
        for key, value in txn.cursor(databases.records):
            try:
                name, _ = unpack_record(bytes(value))
            except _DAMAGE as error:
                self.report(f"record {bytes(key).hex()} can't be read: {error}")
                continue
            if record_key(name) != key:
                self.report(f"record {name!a} is not where it should be")
