"""TCP connections that copy large frames less often than Twisted's, and end in time.

Twisted joins all output before each write, and sends and receives at most 128 and 64 KiB at a time.
For a body of 1 MiB this is most of the work. Here the kernel takes output from the pieces in which
the broker has it, and a read takes as much as is missing of the current frame.

A connection of Twisted that has to end first waits for its output to be read, without a limit. The
layers above are not told before. Under TLS it can end without them: a peer says that it closes, or
breaks the protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from errno import ENOBUFS, EWOULDBLOCK
from functools import partial
from typing import Any, Final, cast

from twisted.internet.interfaces import IDelayedCall, IListeningPort, IReactorTime
from twisted.internet.main import CONNECTION_LOST
from twisted.internet.tcp import Port, Server

__all__ = ["LargeFrameServer", "copy_less", "read_bytes_of"]

#: Size in bytes of reads. A larger read takes the rest of a large frame, and not much more: the
#: frames of a read are handled together, and other clients wait for that.
_READ_BYTES: Final = 1 << 16
_LARGE_READ_BYTES: Final = 1 << 18
_LARGEST_READ_BYTES: Final = 1 << 20
#: Minimum number of missing bytes for a larger read.
_LARGE_REST_BYTES: Final = 1 << 12
#: Minimum size in bytes of output that is sent in pieces. Below, one joined piece is cheaper.
_LARGE_OUTPUT_BYTES: Final = 1 << 15
#: Maximum number of pieces in a call of the kernel (IOV_MAX of Linux).
_PIECES: Final = 1024


class LargeFrameServer(Server):
    """A TCP connection of a server; its protocol may set :attr:`read_bytes` before each read."""

    #: Maximum size in bytes of the next read.
    read_bytes: int = _READ_BYTES

    def __init__(self, *arguments: Any, drain_s: Callable[[], float]) -> None:
        """Take what Twisted gives; ``drain_s`` returns the time for the last output, in seconds."""
        super().__init__(*arguments)
        self._drain_s = drain_s
        self._end: IDelayedCall | None = None

    def loseConnection(self) -> None:
        """Close when the output is sent, or abort when the peer has had time to read it."""
        super().loseConnection()  # type: ignore[no-untyped-call]  # Twisted's
        if self.connected and self._end is None:
            clock = cast("IReactorTime", self.reactor)
            self._end = clock.callLater(self._drain_s(), self.abortConnection)

    def connectionLost(self, reason: Any) -> None:
        """Tell the protocol."""
        if self._end is not None and self._end.active():
            self._end.cancel()
        super().connectionLost(reason)

    def doRead(self) -> Any:
        """Read up to :attr:`read_bytes`, and pass them to the protocol."""
        try:
            data = self.socket.recv(self.read_bytes)
        except OSError as error:
            return None if error.errno == EWOULDBLOCK else CONNECTION_LOST
        return self._dataReceived(data)

    def doWrite(self) -> Any:
        """Send as much output as the kernel takes."""
        waiting = len(self.dataBuffer) - self.offset + self._tempDataLen
        if waiting >= _LARGE_OUTPUT_BYTES:
            try:
                self._drop(self.socket.sendmsg(self._pieces()))
            except OSError as error:
                return None if error.errno in (EWOULDBLOCK, ENOBUFS) else CONNECTION_LOST
            if self._tempDataLen or self.offset < len(self.dataBuffer):
                return None
        return super().doWrite()  # type: ignore[no-untyped-call]  # Twisted's

    def writeSomeData(self, data: bytes) -> Any:
        """Send bytes; empty ones follow output that was sent in pieces."""
        return super().writeSomeData(data) if data else 0

    def _pieces(self) -> list[bytes | memoryview]:
        """Return the first pieces of the output."""
        pieces: list[bytes | memoryview] = []
        if self.offset < len(self.dataBuffer):
            pieces.append(memoryview(self.dataBuffer)[self.offset :])
        return pieces + self._tempDataBuffer[: _PIECES - 1]

    def _drop(self, sent: int) -> None:
        """Remove bytes from the beginning of the output."""
        first = len(self.dataBuffer) - self.offset
        if sent < first:
            self.offset += sent
            return
        sent -= first
        queue, count = self._tempDataBuffer, 0
        self.dataBuffer, self.offset = b"", 0
        for piece in queue:
            count += 1
            self._tempDataLen -= len(piece)
            if sent < len(piece):
                self.dataBuffer, self.offset = piece, sent
                break
            sent -= len(piece)
        del queue[:count]


def read_bytes_of(missing_bytes: int) -> int:
    """Return the size of the next read, with this many bytes missing of the current frame."""
    if missing_bytes < _LARGE_REST_BYTES:
        return _READ_BYTES
    return min(max(missing_bytes, _LARGE_READ_BYTES), _LARGEST_READ_BYTES)


def copy_less(port: IListeningPort, drain_s: Callable[[], float]) -> None:
    """Make a TCP port create connections of this module; ports of other types stay unchanged.

    ``drain_s`` returns how long a connection that ends waits for its peer to read, in seconds.
    """
    if isinstance(port, Port) and port.transport is Server:
        made: Any = partial(LargeFrameServer, drain_s=drain_s)
        port.transport = made
