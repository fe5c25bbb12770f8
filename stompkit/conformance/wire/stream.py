"""A connection with a timeout on every wait, which sends and receives bytes and frames."""

from __future__ import annotations

import contextlib
import math
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

from stompkit.conformance.verdict import Ending, FailedError, UnsupportedError
from stompkit.conformance.wire.recorder import Recorder
from stompkit.frames import (
    VERSIONS,
    Frame,
    FrameDecoder,
    Limits,
    RemoteProtocolError,
    Tolerance,
    Version,
)

__all__ = ["Stream"]

_READ_BYTES: Final = 65_536
#: Maximum number of bytes from a target on one connection before the suite stops reading.
_MOST_BYTES: Final = 128 * 1024 * 1024
_MOST_FRAMES: Final = 200_000
#: Maximum number of bytes read and discarded before a connection is closed.
_DRAINED_BYTES: Final = 1024 * 1024
#: The suite's own decoder has no limits, so that one fault fails one case.
_NO_LIMITS: Final = Limits(
    max_command_bytes=4_096,
    max_header_line_bytes=_MOST_BYTES,
    max_headers=1_000_000,
    max_body_bytes=_MOST_BYTES,
    max_frame_bytes=_MOST_BYTES,
)


class Stream:
    """One TCP connection to the target.

    Frames are parsed by a lenient decoder; ``violation`` has the first deviation from the strict
    grammar.  Every wait ends: by the awaited event, after ``timeout_s``, or at ``deadline``, the
    end of the time for the whole case.
    """

    def __init__(
        self,
        connection: socket.socket,
        number: int,
        recorder: Recorder,
        *,
        timeout_s: float,
        deadline: float,
    ) -> None:
        """Take over a connected socket."""
        connection.setblocking(False)
        self._socket = connection
        self._poller = select.poll()
        self._poller.register(connection)
        self._number = number
        self._recorder = recorder
        self._timeout_s = timeout_s
        self._deadline = deadline
        self._lenient = FrameDecoder(limits=_NO_LIMITS, tolerance=Tolerance.LENIENT)
        self._strict: FrameDecoder | None = FrameDecoder(limits=_NO_LIMITS)
        self._received_bytes = 0
        self._is_over = False
        self._is_given_up = False
        #: Number of pieces that were sent.
        self._pieces = 0
        #: Reason why reading has stopped after invalid bytes.
        self._unreadable = ""
        #: The way the connection has ended, or would end if it were closed now.
        self.ending = Ending.CLEAN
        #: The version whose escapes and rules apply to frames.
        self.version: Version = "1.2"
        #: Frames received and not yet taken, and all frames received.
        self.inbox: list[Frame] = []
        self.frames: list[Frame] = []
        #: Description of the first received bytes that violate the grammar, and its code.
        self.violation = ""
        self.violation_code = ""
        #: Times at which data arrived, in seconds of ``time.monotonic``, with the number of bytes.
        self.arrivals: list[tuple[float, int]] = []
        #: Number of line ends received between frames.
        self.eols = 0

    @property
    def is_closed_by_target(self) -> bool:
        """True if the target has closed the connection."""
        return self._is_over

    def switch(self, version: Version) -> None:
        """Parse and encode by the rules of a version from now on."""
        self.version = version
        self._lenient.negotiated(version, _NO_LIMITS)
        if self._strict is not None:
            self._strict.negotiated(version, _NO_LIMITS)
        self._decode(b"")

    def send_raw(self, octets: bytes) -> None:
        """Send raw bytes, and read meanwhile.

        Raises :class:`FailedError` if the target does not take them in time. Bytes sent to a
        connection that the target has closed are lost without an error; its last frames are in the
        inbox.
        """
        self._pieces += 1
        self._recorder.note(self._number, ">", octets)
        view = memoryview(octets)
        until = self._until(None)
        while view and not self._is_over:
            left = until - time.monotonic()
            if left <= 0:
                self._hang("the target does not take what is sent to it")
            ready = self._poll(select.POLLIN | select.POLLOUT, left)
            if ready & ~select.POLLOUT:
                self._read()
            if ready & select.POLLOUT and not self._is_over:
                try:
                    view = view[self._socket.send(view) :]
                except (BlockingIOError, InterruptedError):
                    continue
                except OSError:
                    self._hear_out()

    def _hear_out(self) -> None:
        """Read the data that a target sent before it reset the connection."""
        while not self._is_over and self._poll(select.POLLIN, 0):
            self._read()
        if self.ending is not Ending.DROPPED:
            self._ended(Ending.DROPPED)

    def _wait(self, ends: Callable[[Frame], bool], timeout_s: float | None) -> Frame | None:
        """Read until a frame satisfies ``ends``; return ``None`` at a timeout or the end."""
        until = self._until(timeout_s)
        checked = 0
        while True:
            for index in range(checked, len(self.inbox)):
                if ends(self.inbox[index]):
                    return self.inbox.pop(index)
            checked = len(self.inbox)
            if self._unreadable:
                raise FailedError(self._unreadable)
            left = until - time.monotonic()
            if self._is_over:
                return None
            if left <= 0:
                self._check_deadline()
                return None
            if self._poll(select.POLLIN, left):
                self._read()

    def _poll(self, events: int, seconds: float) -> int:
        """Wait until the connection is readable or writable, has ended, or the time has passed."""
        self._poller.modify(self._socket, events)
        ready = self._poller.poll(math.ceil(seconds * 1000))
        return ready[0][1] if ready else 0

    def _until(self, timeout_s: float | None) -> float:
        now = time.monotonic()
        return min(self._deadline, now + (self._timeout_s if timeout_s is None else timeout_s))

    def _read(self) -> None:
        try:
            octets = self._socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._ended(Ending.DROPPED)
            return
        if not octets:
            self._ended(Ending.CLOSED)
            return
        self._recorder.note(self._number, "<", octets)
        self.arrivals.append((time.monotonic(), len(octets)))
        self._received_bytes += len(octets)
        if self._received_bytes > _MOST_BYTES:
            self._unreadable = f"the target sent more than {_MOST_BYTES} octets"
        elif len(self.frames) > _MOST_FRAMES:
            self._unreadable = f"the target sent more than {_MOST_FRAMES} frames"
        else:
            self._decode(octets)

    def _decode(self, octets: bytes) -> None:
        if self._strict is not None:
            try:
                for _ in _decoded(self._strict, octets, self.version):
                    pass
            except RemoteProtocolError as error:
                self.violation, self.violation_code = error.message, error.code
                self._strict = None
        try:
            for frames in _decoded(self._lenient, octets, self.version):
                self.inbox += frames
                self.frames += frames
        except RemoteProtocolError as error:
            self._unreadable = f"what the target sends cannot be read: {error.message}"
        self.eols = self._lenient.eols

    def _ended(self, ending: Ending) -> None:
        self._is_over = True
        self.ending = max(self.ending, ending, key=lambda each: each.rank)
        word = "reset" if ending is Ending.DROPPED else "closed"
        self._recorder.say(self._number, f"the target {word} the connection")

    def _check_deadline(self) -> None:
        """Raise :class:`UnsupportedError` at the end of the time for the case.

        A target that is only slow has violated nothing. One that does not answer at all fails
        before, at the first timeout.
        """
        if time.monotonic() >= self._deadline:
            raise UnsupportedError(
                "the case takes more time than it has: a longer --timeout gives more"
            )

    def _hang(self, reason: str) -> NoReturn:
        self._check_deadline()
        self.ending = Ending.HUNG
        self._recorder.say(self._number, "waited in vain")
        raise FailedError(reason)

    def extend_deadline(self, seconds: float) -> None:
        """Give the case more time."""
        self._deadline += seconds

    def finish_sending(self) -> None:
        """Close the sending direction (half-close), and continue to read."""
        self._recorder.say(self._number, "the suite closed its sending side")
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close in order, without DISCONNECT.

        Data that has arrived is read first. Unread data would turn the close into a reset, which
        can make the target lose the last data that was sent.
        """
        self._is_given_up = True
        with contextlib.suppress(OSError):
            for _ in range(_DRAINED_BYTES // _READ_BYTES):
                octets = self._socket.recv(_READ_BYTES)
                if not octets:
                    break
                self._recorder.note(self._number, "<", octets)
        self._socket.close()

    def reset(self) -> None:
        """Abort the connection: the target gets a reset."""
        self._is_given_up = True
        self._recorder.say(self._number, "the suite reset the connection")
        linger_now = struct.pack("ii", 1, 0)
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_now)
        self._socket.close()


def _decoded(decoder: FrameDecoder, octets: bytes, version: Version) -> Iterator[list[Frame]]:
    """Decode all data; after CONNECTED by the rules of the version that it names.

    If it names no known version, the rules of ``version`` apply, the one under test.
    """
    while frames := decoder.feed(octets):
        yield frames
        octets = b""
        if frames[-1].command == "CONNECTED" and decoder.version is None:
            named = frames[-1].headers.get("version", "1.0")
            decoder.negotiated(next((v for v in VERSIONS if v == named), version), _NO_LIMITS)
