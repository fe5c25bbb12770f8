"""Asynchronous line reader for files that may block, such as pipes."""

from __future__ import annotations

import os
import threading
from collections import deque
from select import select
from typing import BinaryIO, Final

from twisted.internet.defer import Deferred

from stompkit._commands.shared.session import Session

__all__ = ["LineReader"]

#: Read-ahead limits: lines and bytes.
_MOST_LINES: Final = 1000
_MOST_BYTES: Final = 16 * 1024 * 1024
_READ_BYTES: Final = 65_536


class LineReader:
    """Reads lines in a daemon thread.

    A blocked read of a pipe cannot be cancelled, so the process does not wait for the thread.
    """

    def __init__(self, session: Session, file: BinaryIO) -> None:
        """Start to read."""
        self._reactor = session.reactor
        self._file = file
        self._changed = threading.Condition()
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._is_over = False
        self._error: OSError | None = None
        self._waiting: Deferred[None] | None = None
        session.on_signal(self._stop)
        threading.Thread(target=self._read, name="stompkit-lines", daemon=True).start()

    async def take(self) -> list[bytes]:
        """Wait for lines and return all available ones without line ends; empty at the end.

        Raises the ``OSError`` of a read that failed, after the lines before it.
        """
        while True:
            with self._changed:
                if self._lines or self._is_over:
                    lines = list(self._lines)
                    self._lines.clear()
                    self._size = 0
                    self._changed.notify_all()
                    if not lines and self._error is not None:
                        raise self._error
                    return lines
                self._waiting = waiting = Deferred[None]()
            await waiting

    def _read(self) -> None:
        """Read until the end, in the thread."""
        # Bypasses the file's buffer, which cannot be closed at exit while it is being read.
        rest: list[bytes] = []
        try:
            while piece := self._piece():
                first, *more = piece.split(b"\n")
                rest.append(first)
                if more:
                    self._put([b"".join(rest), *more[:-1]])
                    rest = [more[-1]]
            if last := b"".join(rest):
                self._put([last])
        except OSError as error:  # the line that it interrupts is incomplete
            self._end(error)
        else:
            self._end(None)

    def _piece(self) -> bytes:
        """Wait for input and return it; empty at the end."""
        while True:
            try:
                return os.read(self._file.fileno(), _READ_BYTES)
            except BlockingIOError:  # another process has set the pipe to O_NONBLOCK
                select([self._file], [], [])

    def _end(self, error: OSError | None) -> None:
        with self._changed:
            if not self._is_over:
                self._is_over, self._error = True, error
                self._wake()

    def _put(self, lines: list[bytes]) -> None:
        with self._changed:
            self._lines += lines
            self._size += sum(map(len, lines))
            self._wake()
            self._changed.wait_for(
                lambda: len(self._lines) < _MOST_LINES and self._size < _MOST_BYTES
            )

    def _stop(self) -> None:
        """Stop reading; called in the reactor's thread."""
        with self._changed:
            self._is_over = True
            self._lines.clear()
            self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._reactor.callFromThread(waiting.callback, None)
