"""Replies in the order of their commands, each sent once the store has its changes."""

from __future__ import annotations

from collections import deque
from typing import Final

from twisted.internet.defer import Deferred

from stompkit.server.beanstalk.client import Client
from stompkit.server.interfaces import StoreError, StoreFullError

__all__ = ["INTERNAL_ERROR", "NOT_FOUND", "OUT_OF_MEMORY", "Replies"]

INTERNAL_ERROR: Final = b"INTERNAL_ERROR\r\n"
NOT_FOUND: Final = b"NOT_FOUND\r\n"
OUT_OF_MEMORY: Final = b"OUT_OF_MEMORY\r\n"


class _Slot:
    """The place of a reply in the order of replies."""

    __slots__ = ("is_done", "reply")

    def __init__(self, reply: bytes) -> None:
        """Create a slot whose reply can be sent."""
        self.reply = reply
        self.is_done = True


class Replies:
    """The replies of one client."""

    def __init__(self, client: Client) -> None:
        """Start without replies."""
        self._client = client
        self._slots: deque[_Slot] = deque()
        self._uncommitted: dict[str, _Slot] = {}
        self._barriers: dict[str, Deferred[StoreError | None]] = {}
        self._last_key = 0

    @property
    def are_sent(self) -> bool:
        """True if no reply waits for the store."""
        return not self._slots

    def add(self, reply: bytes) -> None:
        """Send a reply that does not wait for the store itself."""
        self._slots.append(_Slot(reply))
        self._flush()

    def add_stored(self, reply: bytes) -> bool:
        """Send a reply once the store has its changes; return True if the client has to wait."""
        slot = _Slot(reply)
        self._slots.append(slot)
        must_wait = self._commit(slot)
        self._flush()
        return must_wait

    def _commit(self, slot: _Slot) -> bool:
        broker = self._client.broker
        key = str(self._last_key + 1)
        if not broker.commit_queue.cut(self._client, key):
            return False
        self._last_key += 1
        slot.is_done = False
        self._uncommitted[key] = slot
        return broker.wait_for_store(self._client)

    async def barrier(self) -> None:
        """Wait until the store has all changes made so far."""
        commit_queue = self._client.broker.commit_queue
        if not commit_queue.has_store:
            return
        self._last_key += 1
        key = str(self._last_key)
        done: Deferred[StoreError | None] = Deferred()
        self._barriers[key] = done
        commit_queue.barrier(self._client, key)
        error = await done
        if error is not None:
            raise error

    def committed(self, key: str, error: StoreError | None) -> bool:
        """Send the reply that has waited for the store; return False if none has."""
        barrier = self._barriers.pop(key, None)
        if barrier is not None and not barrier.called:
            barrier.callback(error)
            return False
        slot = self._uncommitted.pop(key, None)
        if slot is None:
            return False
        slot.is_done = True
        if error is not None:
            slot.reply = OUT_OF_MEMORY if isinstance(error, StoreFullError) else INTERNAL_ERROR
        self._flush()
        return True

    def _flush(self) -> None:
        while self._slots and self._slots[0].is_done:
            reply = self._slots.popleft().reply
            if not self._client.is_closing:
                self._client.emit(reply)
