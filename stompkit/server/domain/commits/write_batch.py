"""Write batches: operations that the store applies as a whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stompkit.server.domain.deliveries import ConnectionBase, MessageReference
from stompkit.server.domain.settlements import Acknowledged
from stompkit.server.interfaces import (
    Mark,
    MessageStore,
    Operation,
    SetRecord,
    StoreError,
)

__all__ = ["Completion", "StoreCall", "WriteBatch", "without_older"]


class WriteBatch:
    """Operations that are applied together, and their dependent actions.

    ``puts`` are the references that can be delivered once the batch is done, whether stored or in
    memory. ``taken`` are those that a transaction has settled; they return to their queues if the
    batch fails, as do those of ``gone``, which may be very many. ``sender`` is the connection to
    notify, with the receipt that it wants. ``done`` is called in any case. ``undo`` is called only
    if the batch fails, which is then not tried again, and ``kept`` only if it succeeds.
    """

    __slots__ = (
        "done",
        "gone",
        "kept",
        "octets",
        "operations",
        "puts",
        "receipt",
        "sender",
        "taken",
        "undo",
    )

    def __init__(self) -> None:
        """Start empty."""
        self.operations: list[Operation] = []
        self.puts: list[MessageReference] = []
        self.taken: list[MessageReference] = []
        self.gone: Acknowledged | None = None
        self.octets = 0
        self.sender: ConnectionBase | None = None
        self.receipt: str | None = None
        self.done: Callable[[StoreError | None], None] | None = None
        self.undo: Callable[[], None] | None = None
        self.kept: Callable[[], None] | None = None


class Completion:
    """Reports when several write batches are completed, with the first error of any."""

    __slots__ = ("_done", "_error", "_left")

    def __init__(self, done: Callable[[StoreError | None], None]) -> None:
        """Start without batches; ``done`` is called once, after :meth:`end` and all batches."""
        self._done = done
        self._error: StoreError | None = None
        #: Number of batches not completed, plus one until no more batches follow.
        self._left = 1

    def add(self, batch: WriteBatch) -> None:
        """Include a batch that is not passed to the store yet."""
        self._left += 1
        earlier = batch.done

        def completed(error: StoreError | None) -> None:
            if earlier is not None:
                earlier(error)
            self._complete(error)

        batch.done = completed

    def end(self) -> None:
        """Include no more batches."""
        self._complete(None)

    def _complete(self, error: StoreError | None) -> None:
        self._left -= 1
        if self._error is None:
            self._error = error
        if not self._left:
            self._done(self._error)


class StoreCall:
    """Write batches passed to the store in one call."""

    __slots__ = ("batches", "is_done", "operations", "store")

    def __init__(
        self, store: MessageStore, batches: Sequence[WriteBatch], operations: Sequence[Operation]
    ) -> None:
        """Start with the batches and their combined operations."""
        self.store = store
        self.batches = batches
        self.operations = operations
        #: True once they are applied; set in the store's thread before anybody else is notified.
        self.is_done = False

    def make(self) -> None:
        """Apply the operations to the store."""
        self.store.apply(self.operations)
        self.is_done = True


def _what_is_set(operation: Operation) -> object:
    """Return the key of a value that the operation overwrites, or None."""
    if isinstance(operation, SetRecord):
        return operation.key
    if isinstance(operation, Mark):
        return operation.lane, operation.place
    return None


def without_older(batches: list[WriteBatch], operations: Sequence[Operation]) -> list[WriteBatch]:
    """Remove operations from batches that set values which *operations* overwrite."""
    keys = set(map(_what_is_set, operations)) - {None}
    if not keys:
        return batches
    for batch in batches:
        batch.operations = [each for each in batch.operations if _what_is_set(each) not in keys]
    return [batch for batch in batches if batch.operations]
