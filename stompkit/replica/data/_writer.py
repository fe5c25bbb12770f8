"""Writes batches of rows: all at once if the database lets them, else as many as it lets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from stompkit.replica.data._plan import Batch
from stompkit.replica.data._reasons import Kind, Reason, Refused, reason_of
from stompkit.replica.data._runner import Runner

__all__ = ["Writer"]

#: So many rows are tried one by one, where they are refused together.
_FEW: Final = 8


class Writer:
    """Writes within the transaction of a connection, which goes on whatever is refused."""

    def __init__(self, runner: Runner, backend: str) -> None:
        """Begin with nothing refused."""
        self.runner = runner
        self._connection = runner.connection
        self._backend = backend
        self._depth = 0
        #: Why rows were refused, by their ids.
        self.reasons: dict[bytes, Reason] = {}

    def write(self, batches: Sequence[Batch]) -> list[Batch]:
        """Write what can be written; gives what is refused."""
        if self.attempt(batches) is None:
            return []
        return self.settle(batches)

    def attempt(self, batches: Iterable[Batch]) -> Reason | None:
        """Write all or nothing; gives the reason why it is nothing."""
        try:
            with self.savepoint():
                for batch in batches:
                    self.runner.run(batch)
        except Refused as refused:
            return refused.reason
        return None

    def settle(self, batches: Sequence[Batch]) -> list[Batch]:
        """Write what can be written, in rounds: one row may wait for what another one does."""
        pending = list(batches)
        while pending:
            refused = [left for batch in pending if (left := self._divide(batch)) is not None]
            if _size(refused) == _size(pending):
                return refused
            # One by one, each row may have waited for the next.
            pending = [batch.ordered(reversed(range(len(batch)))) for batch in refused]
        return []

    def _divide(self, batch: Batch) -> Batch | None:
        """Write what can be written of a batch; gives what is refused."""
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
        """A context that is undone if it raises; what is refused in it is :class:`Refused`."""
        self._depth += 1
        name = f"stompkit_data_{self._depth}"
        self._connection.exec_driver_sql(f"SAVEPOINT {name}")
        try:
            yield
        except Exception as error:
            reason = reason_of(error, self._backend)
            if reason is None:
                # It is about the transaction, which ends.
                raise
            self._connection.exec_driver_sql(f"ROLLBACK TO SAVEPOINT {name}")
            # Else all later ones were within it.
            self._connection.exec_driver_sql(f"RELEASE SAVEPOINT {name}")
            raise Refused(reason) from None
        finally:
            self._depth -= 1
        self._connection.exec_driver_sql(f"RELEASE SAVEPOINT {name}")

    def kind(self, id: bytes) -> Kind | None:
        """The kind of reason why a row was refused."""
        reason = self.reasons.get(id)
        return None if reason is None else reason.kind


def _size(batches: Iterable[Batch]) -> int:
    return sum(map(len, batches))
