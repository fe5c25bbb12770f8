"""The send buffer: frames in order, within limits, and resent after a lost connection."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import count
from typing import Final

from twisted.internet.defer import Deferred, fail, succeed

from stompkit.client._entries import Entry, OnDone, Wire, size_of
from stompkit.client._errors import (
    BrokerError,
    BufferFullError,
    ClientClosedError,
    ConnectionGoneError,
)
from stompkit.client._gate import ReadingGate
from stompkit.client._settings import BufferLimits
from stompkit.client._waiters import Waiters
from stompkit.frames import Frame, Version

__all__ = ["Outbox"]

#: Prefix of generated receipts.
_PREFIX: Final = "stompkit-"
#: Size in bytes of the frames that are given to the transport at once; a single one may be larger.
_CHUNK: Final = 64 * 1024


_Line = OrderedDict[Entry, None]


class Outbox:
    """All frames that the client sends after CONNECT, and all pending receipts.

    Messages and the frames of transactions form one queue, in the order of the calls, and are
    written while the transport has room. Frames bound to a connection, such as SUBSCRIBE and ACK,
    bypass the queue.
    """

    def __init__(self, limits: BufferLimits, gate: ReadingGate) -> None:
        """Start without a connection."""
        #: Number of the connection, counted from 1.
        self.epoch = 0
        #: STOMP version of the current or last connection.
        self.version: Version = "1.2"
        #: True if the broker is CoilMQ, which needs its own acknowledgements.
        self.is_coilmq = False
        #: True if the broker is ActiveMQ, but not Artemis.
        self.is_activemq = False
        self._limits = limits
        self._gate = gate
        #: Error that ended the last connection.
        self.last_loss: Exception | None = None
        self._wire: Wire | None = None
        self._refusal: ClientClosedError | None = None
        self._line: _Line = OrderedDict()
        self._unconfirmed: dict[str, Entry] = {}
        self._outside: _Line = OrderedDict()  # waiting for room in the queue
        self._drains = Waiters[None]()
        self._receipts: set[str] = set()
        self._numbers = count(1)
        self._messages = 0
        self._bytes = 0
        self._is_pumping = False

    # The connection.

    def attach(self, wire: Wire, server: str) -> None:
        """Attach a connection; :meth:`pump` starts to send messages on it.

        *server* is the header of CONNECTED with the name of the broker.
        """
        self.is_coilmq = server.lower().startswith("coilmq")
        self.is_activemq = server.lower().startswith("activemq/")
        self.epoch += 1
        self.version = wire.version
        self._wire = wire

    def detach(self, reason: Exception) -> None:
        """Detach a lost connection: requeue the frames to resend, and drop the others.

        The frame named by the ``receipt-id`` of an ERROR was refused, and is not resent.
        """
        self._wire = None
        self.last_loss = reason
        refused = suspect = None
        if isinstance(reason, BrokerError):
            refused = self._unconfirmed.pop(reason.headers.get("receipt-id", ""), None)
            if "receipt-id" not in reason.headers and not reason.is_temporary:
                # Brokers process frames in order.
                suspect = next(iter(self._unconfirmed.values()), None)
        sent, line = list(self._unconfirmed.values()), list(self._line)
        self._unconfirmed.clear()
        self._line = OrderedDict.fromkeys(entry for entry in sent + line if entry.survives)
        self._gate.set_awaiting(self, awaiting=False)
        if refused is not None:
            self._finish(refused, reason)
        for entry in sent + line:
            if not entry.survives:
                gone = ConnectionGoneError(
                    written=entry.written, reason=reason, is_suspect=entry is suspect
                )
                self._finish(entry, gone)

    def is_current(self, epoch: int) -> bool:
        """Return True if the connection with this number is the current one."""
        return self._wire is not None and epoch == self.epoch

    @property
    def refusal(self) -> ClientClosedError | None:
        """Error of all calls if the client is closed."""
        return self._refusal

    def open(self) -> None:
        """Accept frames again."""
        self._refusal = None

    def close(self, error: ClientClosedError) -> None:
        """Accept no more frames, and fail all pending ones."""
        self._refusal = error
        entries = [*self._unconfirmed.values(), *self._line]
        waiting = list(self._outside)
        self._unconfirmed.clear()
        self._line.clear()
        self._outside.clear()
        self._gate.set_awaiting(self, awaiting=False)
        self._drains.errback(error)
        for entry in entries:
            self._finish(entry, error)
        for entry in waiting:
            self._forget_receipt(entry)
            entry.finish(error)

    # Sending.

    def send(self, frame: Frame, *, receipt: bool, wait: bool) -> Deferred[None]:
        """Send a message on this connection or a later one.

        Fails with :class:`BufferFullError` if the buffer is full and ``wait`` is false, and with
        :class:`ClientClosedError`. Raises ``ValueError`` for a receipt that is already pending.
        """
        if self._refusal is not None:
            return fail(self._refusal)
        size = size_of(frame)
        if self._outside or not self._has_room(size):
            if not wait or size > self._limits.send_bytes:
                return fail(self._buffer_full())
            entry = self._entry(frame, receipt=receipt, survives=True, size=size)
            self._outside[entry] = None
        else:
            entry = self._entry(frame, receipt=receipt, survives=True, size=size)
            self._enqueue(entry)
        return entry.done

    def enqueue(self, frame: Frame, on_done: OnDone, *, receipt: bool) -> None:
        """Queue a message for :meth:`pump`; ``on_done`` is called where a Deferred would fire.

        Raises :class:`BufferFullError`, :class:`ClientClosedError`, and ``ValueError`` for a
        receipt that is already pending; ``on_done`` is not called then.
        """
        if self._refusal is not None:
            raise self._refusal
        size = size_of(frame)
        if self._outside or not self._has_room(size):
            raise self._buffer_full()
        self._admit(self._entry(frame, receipt=receipt, survives=True, size=size, on_done=on_done))

    def send_here(self, frame: Frame, *, receipt: bool = False, counted: bool = False) -> Entry:
        """Queue a frame for this connection only; a ``counted`` frame is subject to the limits.

        Raises :class:`BufferFullError`, and :class:`ConnectionGoneError` if there is no connection.
        The entry's ``done`` fails with :class:`ConnectionGoneError` if the connection is lost
        first.
        """
        if self._wire is None or self._refusal is not None:
            raise ConnectionGoneError(written=False, reason=self._refusal)
        size = size_of(frame) if counted else 0
        if counted and (self._outside or not self._has_room(size)):
            raise self._buffer_full()
        entry = self._entry(frame, receipt=receipt, survives=False, size=size)
        self._enqueue(entry)
        return entry

    def send_now(self, frame: Frame, *, receipt: bool) -> Deferred[None]:
        """Send a frame ahead of the queue, on this connection only.

        Fails with :class:`ConnectionGoneError` if there is no connection, or if it is lost first.
        """
        if self._wire is None or self._wire.has_failed or self._refusal is not None:
            return fail(ConnectionGoneError(written=False, reason=self._refusal))
        entry = self._entry(frame, receipt=receipt, survives=False, size=0)
        self._write(self._wire, OrderedDict({entry: None}))
        return entry.done

    def send_all_now(self, frames: Sequence[Frame]) -> bool:
        """Send frames without receipts ahead of the queue; return False without a connection.

        Raises ``LocalProtocolError`` if a frame cannot be encoded; none is sent then.
        """
        if self._wire is None or self._wire.has_failed or self._refusal is not None:
            return False
        self._wire.write_all(frames)
        return True

    def send_last(self, frame: Frame, error: ClientClosedError) -> Deferred[None]:
        """Send a frame after all accepted ones, on this connection only; accept no more frames.

        Fires on its receipt. Later calls fail with ``error``.
        """
        self._refusal = error
        waiting, self._outside = self._outside, OrderedDict()
        for entry in waiting:
            self._admit(entry)
        last = self._entry(frame, receipt=True, survives=False, size=0)
        self._enqueue(last)
        return last.done

    def pump(self) -> None:
        """Write queued frames while the transport has room."""
        if self._is_pumping:  # callbacks of written frames may send, too
            return
        self._is_pumping = True
        try:
            while self._line and self._wire is not None and self._wire.is_writable:
                self._write(self._wire, self._line)
        finally:
            self._is_pumping = False

    def drain(self) -> Deferred[None]:
        """Fire when the buffer is at most half full; fails with :class:`ClientClosedError`."""
        if self._refusal is not None:
            return fail(self._refusal)
        if self._is_half_empty():
            return succeed(None)
        return self._drains.wait()

    def confirm(self, receipt: str) -> bool:
        """Process a RECEIPT; return False if the receipt is not pending."""
        entry = self._unconfirmed.pop(receipt, None)
        if entry is None:
            return False
        if not self._unconfirmed:
            self._gate.set_awaiting(self, awaiting=False)
        self._finish(entry)
        return True

    # Entries.

    def _entry(
        self,
        frame: Frame,
        *,
        receipt: bool,
        survives: bool,
        size: int,
        on_done: OnDone | None = None,
    ) -> Entry:
        name = None
        if receipt:
            name = frame.headers.get("receipt") or self._new_receipt()
            if name in self._receipts:
                raise ValueError(f"the receipt {name!a} is waited for already")
            self._receipts.add(name)
            frame.headers["receipt"] = name
        entry = Entry(frame, name, size, survives=survives, on_done=on_done)
        if on_done is None:
            entry.done = Deferred(lambda _: self._cancel(entry))
        return entry

    def _new_receipt(self) -> str:
        while (name := f"{_PREFIX}{next(self._numbers)}") in self._receipts:
            pass  # a caller has chosen it
        return name

    def _has_room(self, size: int) -> bool:
        return (
            self._messages < self._limits.send_messages
            and self._bytes + size <= self._limits.send_bytes
        )

    def _is_half_empty(self) -> bool:
        return not self._outside and (
            self._messages <= self._limits.send_messages // 2
            and self._bytes <= self._limits.send_bytes // 2
        )

    def _buffer_full(self) -> BufferFullError:
        return BufferFullError(
            f"{self._messages} messages with {self._bytes} octets are waiting;"
            f" the limits are {self._limits.send_messages} and {self._limits.send_bytes}"
        )

    def _enqueue(self, entry: Entry) -> None:
        self._admit(entry)
        self.pump()

    def _admit(self, entry: Entry) -> None:
        if entry.size:
            self._messages += 1
            self._bytes += entry.size
        self._line[entry] = None

    def _write(self, wire: Wire, line: _Line) -> None:
        """Write the first frames of a queue at once."""
        chunks: list[bytes] = []
        finished: list[Entry] = []
        size = 0
        refused: tuple[Entry, Exception] | None = None
        while line and size < _CHUNK and refused is None:
            entry, _ = line.popitem(last=False)
            entry.written = True
            try:
                data = wire.encode(entry.frame)
            except Exception as error:
                # The caller can then still withdraw the frames behind, as a transaction does.
                refused = (entry, error)
            else:
                chunks.append(data)
                size += len(data)
                if entry.receipt is None:
                    finished.append(entry)
                else:
                    self._unconfirmed[entry.receipt] = entry
        if self._unconfirmed:
            self._gate.set_awaiting(self, awaiting=True)
        if chunks:
            wire.write_encoded(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        for entry in finished:
            self._finish(entry)
        if refused is not None:
            self._finish(*refused)

    def _cancel(self, entry: Entry) -> None:
        """Withdraw an unsent frame; a frame already written is not resent."""
        if entry in self._outside:
            del self._outside[entry]
            self._forget_receipt(entry)
        elif entry in self._line:
            del self._line[entry]
            self._release(entry)
        else:
            entry.survives = False

    def _finish(self, entry: Entry, error: Exception | None = None) -> None:
        self._release(entry)
        entry.finish(error)

    def _forget_receipt(self, entry: Entry) -> None:
        if entry.receipt is not None:
            self._receipts.discard(entry.receipt)

    def _release(self, entry: Entry) -> None:
        """Release the frame's share of the limits."""
        self._forget_receipt(entry)
        if not entry.size:
            return
        self._messages -= 1
        self._bytes -= entry.size
        while self._outside:
            first = next(iter(self._outside))
            if not self._has_room(first.size):
                break
            del self._outside[first]
            self._admit(first)
        if self._line:
            self.pump()
        if self._drains and self._is_half_empty():
            self._drains.callback(None)
