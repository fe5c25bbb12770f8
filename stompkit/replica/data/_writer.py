"""Writes batches of rows: all at once, or else as many as the database accepts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from stompkit.replica.data._plan import Batch
from stompkit.replica.data._reasons import Kind, Reason, RefusedRowError, reason_of
from stompkit.replica.data._runner import Runner

__all__ = ["Writer"]

#: Batch size up to which refused rows are tried one by one.
_FEW: Final = 8


class Writer:
    """Writes within the transaction of a connection, which continues after refusals."""

    def __init__(self, runner: Runner, backend: str) -> None:
        """Start without refused rows."""
        self.runner = runner
        self._connection = runner.connection
        self._backend = backend
        self._depth = 0
        #: Reasons for refused rows, by id.
        self.reasons: dict[bytes, Reason] = {}

    def write(self, batches: Sequence[Batch]) -> list[Batch]:
        """Write as many rows as possible; returns the refused ones."""
        if self.attempt(batches) is None:
            return []
        return self.settle(batches)

    def attempt(self, batches: Iterable[Batch]) -> Reason | None:
        """Write all rows or none; returns the reason for none."""
        try:
            with self.savepoint():
                for batch in batches:
                    self.runner.run(batch)
        except RefusedRowError as refused:
            return refused.reason
        return None

    def settle(self, batches: Sequence[Batch]) -> list[Batch]:
        """Write as many rows as possible, in rounds: a row may depend on another one."""
        pending = list(batches)
        while pending:
            refused = [left for batch in pending if (left := self._divide(batch)) is not None]
            if _size(refused) == _size(pending):
                return refused
            # If rows are written one by one, each may depend on the next.
            pending = [batch.ordered(reversed(range(len(batch)))) for batch in refused]
        return []

    def _divide(self, batch: Batch) -> Batch | None:
        """Write as many rows of a batch as possible; returns the refused ones."""
        reason = self.attempt([batch])
        size = len(batch)
        if reason is None:
            for id in batch.ids:
                self.reasons.pop(id, None)
            return None
        if size == 1:
            self.reasons[batch.ids[0]] = reason
            return batch
        step = 1 if size <= _FEW else (size + 1) // 2
        left = Batch(batch.shape)
        for start in range(0, size, step):
            refused = self._divide(batch.part(start, start + step))
            if refused is not None:
                left.ids += refused.ids
                left.rows += refused.rows
        return left if left.ids else None

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Return a context that is rolled back on an exception; refusals raise RefusedRowError."""
        self._depth += 1
        name = f"stompkit_data_{self._depth}"
        self._connection.exec_driver_sql(f"SAVEPOINT {name}")
        try:
            yield
        except Exception as error:
            reason = reason_of(error, self._backend)
            if reason is None:
                # The error concerns the transaction, which ends.
                raise
            self._connection.exec_driver_sql(f"ROLLBACK TO SAVEPOINT {name}")
            # Otherwise, all later savepoints would be nested in it.
            self._connection.exec_driver_sql(f"RELEASE SAVEPOINT {name}")
            raise RefusedRowError(reason) from None
        finally:
            self._depth -= 1
        self._connection.exec_driver_sql(f"RELEASE SAVEPOINT {name}")

    def kind(self, id: bytes) -> Kind | None:
        """Return the kind of reason for a refused row."""
        reason = self.reasons.get(id)
        return None if reason is None else reason.kind


def _size(batches: Iterable[Batch]) -> int:
    return sum(map(len, batches))
