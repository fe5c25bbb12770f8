"""Job ids: every message has one, and keeps it across restarts of the broker.

The identifier of a message consists of the id of a broker process and the number of the message in
that process. A job id encodes both in 64 bits. The upper half is the index of the process, 0 for
the first that served workers. The lower half is the number. The indices are kept in the store. Ids
therefore grow in the order of sending, as those of beanstalkd do.
"""

from __future__ import annotations

from typing import Final

import msgspec

from stompkit.server.domain.broker import Broker
from stompkit.server.interfaces import SetRecord

__all__ = ["Numbers"]

_RECORD: Final = "beanstalk/processes"
#: Number of processes whose indices are kept; messages of older ones get new ids.
_MOST: Final = 10_000
_HALF: Final = 32
_LOWER: Final = (1 << _HALF) - 1
#: Ids from here on are for messages with other forms of identifiers, and are not kept.
_OTHERS: Final = 1 << 62


class _Processes(msgspec.Struct):
    """The stored record: the identifiers of processes, and the index of the first of them."""

    first: int = 0
    names: list[str] = []


class Numbers:
    """Converts message identifiers to job ids and back."""

    def __init__(self, broker: Broker) -> None:
        """Read the stored indices; the broker is open, and nothing uses its store now."""
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
        """Return the job id of a message."""
        process, _, number = message_id.partition("-")
        index = self._indices.get(process)
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            return self.other(message_id)
        if index is None:
            index = self._index(process)
        return index << _HALF | int(number)

    def other(self, key: str) -> int:
        """Return a unique id for a key, always the same for the same key."""
        number = self._others.get(key)
        if number is None:
            if len(self._others) >= _MOST:
                del self._others[next(iter(self._others))]
            self._last_other += 1
            number = self._others[key] = self._last_other
        return number

    def message_id(self, number: int) -> str | None:
        """Return the identifier of the message with a job id, or None if there can be none."""
        at = (number >> _HALF) - self._processes.first
        if 0 <= at < len(self._processes.names):
            return f"{self._processes.names[at]}-{number & _LOWER}"
        return None

    def is_own(self, number: int) -> bool:
        """Return True if an id belongs to a message that this process has accepted."""
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
        value = msgspec.json.encode(kept)
        self._broker.commit_queue.record(SetRecord(_RECORD, value))
        return index
