"""A connection whose every wait ends: octets out, octets in and what they mean."""

from __future__ import annotations

import contextlib
import math
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

from stompkit.conformance._recorder import Recorder
from stompkit.conformance.verdict import Ending, Failed
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
#: What a target may send on one connection before the suite stops listening.
_MOST_BYTES: Final = 128 * 1024 * 1024
_MOST_FRAMES: Final = 200_000
#: What is read, without looking at it, before a connection is closed.
_DRAINED_BYTES: Final = 1024 * 1024
#: The suite's own decoder takes whatever can be read, so that one fault fails one case.
_NO_LIMITS: Final = Limits(
    max_command_bytes=4_096,
    max_header_line_bytes=_MOST_BYTES,
    max_headers=1_000_000,
    max_body_bytes=_MOST_BYTES,
    max_frame_bytes=_MOST_BYTES,
)


class Stream:
    """One TCP connection to the target.

    Frames are read by a decoder that takes whatever can be understood; the first departure from
    the strict grammar is in ``violation``.  Every wait ends: by what was waited for, after
    ``timeout_s``, or at ``deadline``, the end of the time that the whole case has.
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
        #: Why nothing more is read, once the octets make no sense any more.
        self._unreadable = ""
        #: How the connection has ended, or would if it were closed now.
        self.ending = Ending.CLEAN
        #: The version that frames are escaped and read by.
        self.version: Version = "1.2"
        #: Frames received and not yet asked for; all frames received.
        self.inbox: list[Frame] = []
        self.frames: list[Frame] = []
        #: The first octets received that the grammar does not allow, in words.
        self.violation = ""
        #: When octets arrived, in seconds of ``time.monotonic``, with their number.
        self.arrivals: list[tuple[float, int]] = []
        #: Line ends received between frames.
        self.eols = 0

    @property
    def is_closed_by_target(self) -> bool:
        """Whether the target has ended the connection."""
        return self._is_over

    def switch(self, version: Version) -> None:
        """Read and write by the rules of a version from now on."""
        self.version = version
        self._lenient.negotiated(version, _NO_LIMITS)
        if self._strict is not None:
            self._strict.negotiated(version, _NO_LIMITS)
        self._decode(b"")

    def send_raw(self, octets: bytes) -> None:
        """Send octets as they are, reading meanwhile what the target sends.

        Raises :class:`Failed` if the target does not take them in time. Octets to a connection
        that the target has closed are lost without an error: what it said is in the inbox.
        """
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
        """Read what a target that has reset the connection said before."""
        while not self._is_over and self._poll(select.POLLIN, 0):
            self._read()
        if self.ending is not Ending.DROPPED:
            self._ended(Ending.DROPPED)

    def _wait(self, ends: Callable[[Frame], bool], timeout_s: float | None) -> Frame | None:
        """Read until a frame satisfies ``ends``; ``None`` at the end of time or connection."""
        until = self._until(timeout_s)
        checked = 0
        while True:
            for index in range(checked, len(self.inbox)):
                if ends(self.inbox[index]):
                    return self.inbox.pop(index)
            checked = len(self.inbox)
            if self._unreadable:
                raise Failed(self._unreadable)
            left = until - time.monotonic()
            if self._is_over or left <= 0:
                return None
            if self._poll(select.POLLIN, left):
                self._read()

    def _poll(self, events: int, seconds: float) -> int:
        """Wait until the connection is readable or writable, has ended, or time is up."""
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
                self.violation = error.message
                self._strict = None
        try:
            for frames in _decoded(self._lenient, octets, self.version):
                self.inbox += frames
                self.frames += frames
        except RemoteProtocolError as error:
            self._unreadable = f"what the target sends can't be read: {error.message}"
        self.eols = self._lenient.eols

    def _ended(self, ending: Ending) -> None:
        self._is_over = True
        self.ending = max(self.ending, ending, key=lambda each: each.rank)
        word = "reset" if ending is Ending.DROPPED else "closed"
        self._recorder.say(self._number, f"the target {word} the connection")

    def _hang(self, reason: str) -> NoReturn:
        self.ending = Ending.HUNG
        self._recorder.say(self._number, "waited in vain")
        raise Failed(reason)

    def extend_deadline(self, seconds: float) -> None:
        """Give the case more time."""
        self._deadline += seconds

    def finish_sending(self) -> None:
        """Half-close: say that nothing more comes, and go on reading."""
        self._recorder.say(self._number, "the suite closed its sending side")
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close in an orderly way, without DISCONNECT.

        What has arrived is read first: to leave it would turn the close into a reset, which can
        take from the target what was sent last.
        """
        with contextlib.suppress(OSError):
            for _ in range(_DRAINED_BYTES // _READ_BYTES):
                octets = self._socket.recv(_READ_BYTES)
                if not octets:
                    break
                self._recorder.note(self._number, "<", octets)
        self._socket.close()

    def reset(self) -> None:
        """Cut the connection off: the target gets a reset."""
        self._recorder.say(self._number, "the suite reset the connection")
        linger_now = struct.pack("ii", 1, 0)
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_now)
        self._socket.close()


def _decoded(decoder: FrameDecoder, octets: bytes, version: Version) -> Iterator[list[Frame]]:
    """Decode all there is; behind CONNECTED by the rules of the version that it chooses.

    Where it names none that there is, those of ``version``, the one under test, are as good as any.
    """
    while frames := decoder.feed(octets):
        yield frames
        octets = b""
        if frames[-1].command == "CONNECTED" and decoder.version is None:
            named = frames[-1].headers.get("version", "1.0")
            decoder.negotiated(next((v for v in VERSIONS if v == named), version), _NO_LIMITS)
