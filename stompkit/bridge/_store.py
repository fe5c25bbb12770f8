"""Store-and-forward through the buffer of a route: writing to it, and forwarding from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from stompkit._common.files import describe
from stompkit.bridge._buffer import Buffer, InThread
from stompkit.bridge._status import RouteStatus
from stompkit.spool import Record

__all__ = ["Store"]

_log: Final = Logger()
#: Time in seconds before a failed disk operation is retried.
_DISK_S: Final = 2.0

_T = TypeVar("_T")


class Store:
    """Writes received messages to the buffer in batches, and forwards buffered messages in order.

    At most one window of messages is read beyond the confirmed position. After a crash, at most
    one window of messages is therefore sent again.
    """

    def __init__(
        self,
        buffer: Buffer,
        window: int,
        in_thread: InThread,
        clock: IReactorTime,
        forward: Callable[[Record], Awaitable[None]],
        failed: Callable[[Failure], None],
        status: RouteStatus,
    ) -> None:
        """Start at the buffer's position; ``forward`` returns when a message is confirmed."""
        self._buffer = buffer
        self._window = window
        self._in_thread = in_thread
        self._clock = clock
        self._forward = forward
        self._failed = failed
        self._status = status
        self._incoming: list[tuple[Record, bool, Deferred[None]]] = []
        self._is_writing = self._is_noting = False
        self._is_finishing = self._is_closed = False
        self._done: set[int] = set()
        self._confirmed = buffer.position
        self._change: Deferred[None] | None = None

    @property
    def count(self) -> int:
        """Number of messages in the buffer that the destination has not confirmed."""
        return self._buffer.head - self._confirmed

    async def keep(self, record: Record, *, is_redelivered: bool) -> None:
        """Write a message to the buffer; return when it is on disk."""
        done: Deferred[None] = Deferred()
        self._incoming.append((record, is_redelivered, done))
        if not self._is_writing:
            self._is_writing = True
            Deferred.fromCoroutine(self._write()).addErrback(self._failed)
        await done

    async def empty(self) -> None:
        """Forward buffered and new messages until :meth:`finish`."""
        at = self._confirmed
        while not self._is_finishing:
            end = min(self._buffer.head, self._buffer.position + self._window)
            if at >= end:
                change: Deferred[None] = Deferred()
                self._change = change
                await change
                continue
            begin, at = at, end
            records = await self._on_disk(lambda: self._buffer.read(begin, end))  # noqa: B023
            for ordinal, record in enumerate(records, begin):
                Deferred.fromCoroutine(self._one(ordinal, record)).addErrback(self._failed)

    def finish(self) -> None:
        """Stop forwarding."""
        self._is_finishing = True
        self._changed()

    async def close(self) -> None:
        """Stop writing; return when no write is in progress."""
        self._is_finishing = self._is_closed = True
        self._incoming.clear()
        self._changed()
        await self._in_thread(lambda: None)

    async def _write(self) -> None:
        try:
            while self._incoming and not self._is_closed:
                group, self._incoming = self._incoming, []
                records = [record for record, _, _ in group]
                again = [is_redelivered for _, is_redelivered, _ in group]
                new = await self._on_disk(lambda: self._buffer.append(records, again))  # noqa: B023
                self._note_known(len(group) - new)
                for *_, done in group:
                    done.callback(None)
                self._changed()
        finally:
            self._is_writing = False

    def _note_known(self, count: int) -> None:
        if count:
            self._status.known += count
            _log.info(
                "route {name}: the buffer has {count} redelivered messages already",
                name=self._status.name,
                count=count,
            )

    async def _one(self, ordinal: int, record: Record) -> None:
        await self._forward(record)
        self._done.add(ordinal)
        while self._confirmed in self._done:
            self._done.remove(self._confirmed)
            self._confirmed += 1
        if not self._is_noting:
            self._is_noting = True
            await self._note()

    async def _note(self) -> None:
        try:
            while self._confirmed > self._buffer.position and not self._is_closed:
                position = self._confirmed
                await self._on_disk(lambda: self._buffer.confirm(position))  # noqa: B023
                self._changed()
        finally:
            self._is_noting = False

    def _changed(self) -> None:
        change, self._change = self._change, None
        if change is not None:
            change.callback(None)

    async def _on_disk(self, work: Callable[[], _T]) -> _T:
        """Run *work* in the thread, and retry as long as the disk fails."""
        while True:
            try:
                found = await self._in_thread(work)
            except OSError as error:
                problem = f"the buffer cannot be used: {describe(error)}"
                if self._status.problem != problem:
                    _log.error("route {name}: {what}", name=self._status.name, what=problem)
                self._status.problem = problem
                waiting: Deferred[None] = Deferred()
                self._clock.callLater(_DISK_S, waiting.callback, None)
                await waiting
                if self._is_closed:
                    raise
            else:
                if self._status.problem.startswith("the buffer cannot be used"):
                    self._status.problem = ""
                return found
