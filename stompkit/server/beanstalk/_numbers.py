"""Job ids: every message of the broker has one, and keeps it when the broker is started again.

The identifier of a message is that of a process of the broker with the number of the message in
that process. A job id has the same two in 64 bits: an index of the process in the upper half, 0
for the first that served workers, and the number in the lower half. The indices are kept in the
store. So ids grow in the order in which messages were sent, as those of beanstalkd do.
"""

from __future__ import annotations

from typing import Final

import msgspec

from stompkit.server.domain.broker import Broker
from stompkit.server.interfaces import SetRecord

__all__ = ["Numbers"]

_RECORD: Final = "beanstalk/processes"
#: Processes whose indices are kept; messages of older ones get new ids.
_MOST: Final = 10_000
_HALF: Final = 32
_LOWER: Final = (1 << _HALF) - 1
#: Ids from here on are of messages with identifiers of another form, and not kept.
_OTHERS: Final = 1 << 62


class _Processes(msgspec.Struct):
    """What the store keeps: the identifiers of processes, and the index of the first of them."""

    first: int = 0
    names: list[str] = []


class Numbers:
    """Turns identifiers of messages into numbers and back."""

    def __init__(self, broker: Broker) -> None:
        """Learn what the store has; the broker is open, and nothing uses its store now."""
        self._broker = broker
        self._processes = _Processes()
        value = None if broker.store is None else broker.store.records().get(_RECORD)
        if value is not None:
            self._processes = msgspec.json.decode(value, type=_Processes)
        names = self._processes.names
        self._indices = {name: self._processes.first + at for at, name in enumerate(names)}
        self._others: dict[str, int] = {}
        self._last_other = _OTHERS
        self._own = broker.new_session().partition("-")[0]
        self._index(self._own)

    def of(self, message_id: str) -> int:
        """The number of a message."""
        process, _, number = message_id.partition("-")
        index = self._indices.get(process)
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            return self.other(message_id)
        if index is None:
            index = self._index(process)
        return index << _HALF | int(number)

    def other(self, key: str) -> int:
        """A number that no other message has, always the same for the same key."""
        number = self._others.get(key)
        if number is None:
            if len(self._others) >= _MOST:
                del self._others[next(iter(self._others))]
            self._last_other += 1
            number = self._others[key] = self._last_other
        return number

    def message_id(self, number: int) -> str | None:
        """The identifier of the message with a number, if there can be one."""
        at = (number >> _HALF) - self._processes.first
        if 0 <= at < len(self._processes.names):
            return f"{self._processes.names[at]}-{number & _LOWER}"
        return None

    def is_own(self, number: int) -> bool:
        """Whether a number is of a message that this process has taken."""
        return number >> _HALF == self._indices[self._own]

    def _index(self, process: str) -> int:
        known = self._indices.get(process)
        if known is not None:
            return known
        kept = self._processes
        kept.names.append(process)
        index = self._indices[process] = kept.first + len(kept.names) - 1
        if len(kept.names) > _MOST:
            del self._indices[kept.names.pop(0)]
            kept.first += 1
        journal = self._broker.journal
        if journal is not None:
            journal.record(SetRecord(_RECORD, msgspec.json.encode(kept)))
        return index
