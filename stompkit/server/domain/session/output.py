"""Output of a connection: bytes, written at the end of a cycle."""

from __future__ import annotations

from typing import Any

from mypy_extensions import mypyc_attr

from stompkit.server.domain.broker import Broker
from stompkit.server.domain.deliveries import ConnectionBase
from stompkit.server.interfaces import Outlet

__all__ = ["Output"]

#: Number of pieces in which a frame or a reply is emitted.
_PIECES = 3
#: Mean size in bytes of pieces that are not joined. Many consumers of a topic can then share the
#: bytes of one body until they are sent.
_LARGE_PIECE = 4096


@mypyc_attr(allow_interpreted_subclasses=True)
class Output(ConnectionBase):
    """Writes to the outlet of one client."""

    def __init__(self, broker: Broker, outlet: Outlet, now: float) -> None:
        """Start before any input."""
        self.broker = broker
        self.scheduler = broker.scheduler
        self.outlet = outlet
        self.id = broker.new_connection()
        #: Time of day.
        self.connected_at = broker.scheduler.date_of(now)
        self.peer = outlet.peer
        # An outlet without this attribute knows only the address that counts for limits.
        self.address = str(getattr(outlet, "address", "")) or outlet.peer
        #: True if the outlet has this method; others get the pieces joined.
        self._takes_pieces = hasattr(outlet, "write_pieces")
        self._out: list[bytes] = []
        self._out_bytes = 0
        #: Maximum size in bytes of a write with several frames; 0 for no limit.
        self._largest_write_bytes = 0
        #: Minimum size in bytes of a write, except for the last one of a cycle.
        self._write_from_bytes = broker.config.write_batch_bytes
        self._closing = False

    @property
    def is_closing(self) -> bool:
        """True if no more input is processed."""
        return self._closing

    def emit(self, head: bytes, lines: bytes = b"", tail: bytes = b"") -> None:
        """Write bytes at the end of the cycle, or as soon as there are enough for one write."""
        out = self._out
        if not out:
            self.scheduler.wrote(self)
        out.append(head)
        out.append(lines)
        out.append(tail)
        self._out_bytes += len(head) + len(lines) + len(tail)
        if self._out_bytes >= self._write_from_bytes:
            if self._out_bytes > self._largest_write_bytes > 0:
                self._write_without_last()
            else:
                self.write_out()

    def limit_writes(self, limit_bytes: int) -> None:
        """Limit the size in bytes of a write that contains several frames."""
        self._largest_write_bytes = limit_bytes
        self._write_from_bytes = limit_bytes or self.broker.config.write_batch_bytes

    def _write_without_last(self) -> None:
        """Write the output, with the last frame in a separate write."""
        last = self._out[-_PIECES:]
        del self._out[-_PIECES:]
        self.write_out()
        self._out += last
        self._out_bytes = sum(map(len, last))
        if self._out_bytes >= self._largest_write_bytes:
            self.write_out()

    def write_out(self) -> None:
        """Write the output."""
        out = self._out
        if not out:
            return
        if self._takes_pieces and self._out_bytes >= _LARGE_PIECE * len(out):
            self._out = []
            self._out_bytes = 0
            outlet: Any = self.outlet
            outlet.write_pieces(out)
        else:
            data = b"".join(out)
            out.clear()
            self._out_bytes = 0
            self.outlet.write(data)
