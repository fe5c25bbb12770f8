"""One connection to a broker, for a client that runs only while a method is called."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Final, NoReturn

from stompkit._common.clock import monotonic
from stompkit.frames import (
    AFTER_LOGIN,
    VERSIONS,
    Frame,
    FrameDecoder,
    HeartBeat,
    RemoteProtocolError,
    Tolerance,
    Version,
)
from stompkit.testing.client.errors import (
    BrokerSaidError,
    ClientFailureError,
    ConnectionLostError,
    NothingReceivedError,
)
from stompkit.testing.client.trail import Trail, unread

__all__ = ["ClientStream"]

#: More than the size of a TLS record: the rest of a partly read record would not show as readable.
_READ_BYTES: Final = 65_536
#: Maximum number of bytes read and discarded before the connection is closed.
_DRAINED_BYTES: Final = 1024 * 1024
#: A socket option that only Linux has.
_QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
#: Errors of a non-blocking socket that is not ready.
_NOT_NOW: Final = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class ClientStream:
    """Sends and receives bytes and the frames in them, with a timeout on every wait.

    It reads everything that can be parsed; anything else ends the connection.
    """

    def __init__(
        self, connection: socket.socket, timeout_s: float, secrets: tuple[str, ...] = ()
    ) -> None:
        """Take over a connected socket; ``secrets`` are texts that no message may show."""
        connection.setblocking(False)
        self._socket = connection
        self._owner = os.getpid()
        self._decoder = FrameDecoder(limits=AFTER_LOGIN, tolerance=Tolerance.LENIENT)
        self.trail = Trail(secrets)
        #: The reason why the connection ended, as a sentence; empty while it is open.
        self._ending = ""
        self.timeout_s = timeout_s
        #: Schedule of the heart-beats; none until they have been negotiated.
        self.heart_beat = HeartBeat(monotonic())
        #: All frames received, and those of them that were not taken yet.
        self.received: list[Frame] = []
        self.inbox: list[Frame] = []
        #: Number of heart-beats received. The first line end after a frame is not counted: some
        #: brokers end their frames with one.
        self.beats = 0
        self._is_behind_frame = False
        self.is_closed_by_broker = False

    @property
    def version(self) -> Version | None:
        """The version by whose rules frames are parsed; ``None`` until CONNECTED has come."""
        return self._decoder.version

    # Sending.

    def send(self, octets: bytes, frame: Frame | None = None) -> None:
        """Send bytes and read meanwhile; ``frame`` is the frame that they encode, if any.

        Raises :class:`ConnectionLostError`, :class:`BrokerSaidError` if an ERROR was the reason,
        and
        :class:`ClientFailureError` if the broker does not take them in time.
        """
        self.trail.sent(octets if frame is None else frame)
        until = monotonic() + self.timeout_s
        left = memoryview(octets)
        while left:
            if self._ending:
                self._lost("not all was sent")
            if monotonic() >= until:
                taken = f"{len(octets) - len(left)} of {len(octets)} octets"
                reason = f"the broker took only {taken} in {self.timeout_s:g} s"
                raise self.trail.failure(ClientFailureError, reason)
            ready = self._ready(until, selectors.EVENT_READ | selectors.EVENT_WRITE)
            if ready & selectors.EVENT_READ:
                self._read()
            if ready & selectors.EVENT_WRITE and not self._ending:
                left = left[self._write(left) :]
        self.heart_beat.last_sent = monotonic()

    def _write(self, octets: memoryview) -> int:
        """Write bytes to the socket and return how many it took."""
        try:
            return self._socket.send(octets)
        except _NOT_NOW:
            return 0
        except OSError:
            # Data that the broker sent before it closed may still be readable.
            while not self._ending:
                self._read(at_end=True)
            return 0

    # Receiving.

    def wait(
        self, is_it: Callable[[Frame], bool], what: str, timeout_s: float | None = None
    ) -> Frame:
        """Take the first frame that satisfies ``is_it`` from the inbox; others stay there.

        ``what`` names it. Raises :class:`BrokerSaidError` with an ERROR that came before it, which
        is taken from the inbox, else as :meth:`wait_until` does.
        """
        found: list[Frame] = []
        checked = 0

        def is_there() -> bool:
            """Look at the frames that are new in the inbox."""
            nonlocal checked
            for index in range(checked, len(self.inbox)):
                if is_it(self.inbox[index]):
                    found.append(self.inbox.pop(index))
                    return True
                if self.inbox[index].command == "ERROR":
                    self._raise_error(index, f"no {what} came")
            checked = len(self.inbox)
            return False

        self.wait_until(is_there, what, timeout_s)
        return found[0]

    def wait_until(
        self, condition: Callable[[], bool], what: str, timeout_s: float | None = None
    ) -> None:
        """Read until ``condition`` is true.

        Raises :class:`NothingReceivedError` after ``timeout_s`` seconds, by default the
        connection's timeout. Raises :class:`ConnectionLostError` if the connection ends, or
        :class:`BrokerSaidError` if an ERROR was the reason.
        """
        seconds = self.timeout_s if timeout_s is None else timeout_s
        until = monotonic() + seconds
        is_time_left = True
        while not condition():
            if self._ending:
                self._lost(f"no {what} came")
            if not is_time_left:
                reason = f"no {what} came in {seconds:g} s{unread(self.inbox)}"
                raise self.trail.failure(NothingReceivedError, reason)
            is_time_left = self.pump(until)

    def watch(self, is_it: Callable[[Frame], bool], what: str, for_s: float) -> Frame | None:
        """Read for ``for_s`` seconds; return the first frame that satisfies ``is_it``, if any came.

        The frame stays in the inbox. Raises :class:`ConnectionLostError` if the connection ends in
        this time, or :class:`BrokerSaidError` if an ERROR comes: nothing else could come then.
        """
        until = monotonic() + for_s
        while True:
            is_time_left = self.pump(until)
            found = next(filter(is_it, self.inbox), None)
            if found is not None or not is_time_left:
                return found
            is_cut_off = self._ending or any(frame.command == "ERROR" for frame in self.inbox)
            if is_cut_off and monotonic() < until:
                self._lost(f"whether a {what} comes within {for_s:g} s cannot be known")

    def pump(self, until: float) -> bool:
        """Read once and send due heart-beats; return False when the time ``until`` is reached.

        ``until`` is a time of ``monotonic``. After the end of the connection it returns at once,
        and does not wait: the caller has to notice the end.
        """
        if self._ending:
            return monotonic() < until
        now = monotonic()
        if self.heart_beat.must_send(now):
            # If the broker does not accept the heart-beat now, other pending bytes serve the same
            # purpose.
            self._write(memoryview(b"\n"))
            self.heart_beat.last_sent = now
        due = self.heart_beat.next_deadline()
        if self._ready(until if due is None else min(until, due), selectors.EVENT_READ):
            self._read()
            return True
        return monotonic() < until

    def _ready(self, until: float, events: int) -> int:
        """Wait until the socket is ready for one of these events, and return the ready ones."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, events)
            ready = selector.select(max(0.0, until - monotonic()))
        return ready[0][1] if ready else 0

    def _read(self, *, at_end: bool = False) -> None:
        """Read the available bytes; with ``at_end``, the broker sends nothing more."""
        octets: bytes | None = None
        try:
            octets = self._socket.recv(_READ_BYTES)
        except _NOT_NOW:
            if not at_end:
                return
        except OSError:
            pass
        if octets:
            self._count_beats(octets)
            self._decode(octets)
        else:
            did = "reset" if octets is None else "closed"
            self._end(f"the broker {did} the connection", by_broker=True)
        if _QUICK_ACK is not None:
            # A broker that writes two small pieces holds the second one back until the first is
            # acknowledged, 40 ms later by default. The option must be set again after each read.
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)

    def _count_beats(self, octets: bytes) -> None:
        """Count the line ends that are not part of a frame."""
        if octets.strip(b"\r\n"):
            self._is_behind_frame = octets.endswith(b"\0")
        elif not self._decoder.pending_bytes:
            self.beats += octets.count(b"\n") - self._is_behind_frame
            self._is_behind_frame = False

    def _decode(self, octets: bytes) -> None:
        decoder = self._decoder
        try:
            while frames := decoder.feed(octets):
                octets = b""
                self.received += frames
                self.inbox += frames
                self.trail.received(frames)
                if decoder.version is None and frames[-1].command == "CONNECTED":
                    named = frames[-1].headers.get("version", "1.0")
                    decoder.negotiated(next((v for v in VERSIONS if v == named), "1.0"))
        except RemoteProtocolError as error:
            self._end(f"what the broker sent cannot be read ({error.message})", by_broker=False)

    # The end.

    def _raise_error(self, index: int, problem: str) -> NoReturn:
        """Remove the ERROR frame at this index from the inbox and raise it."""
        error = self.inbox.pop(index)
        reason = f"{problem}: the broker said ERROR {self.trail.said(error)}"
        raise self.trail.failure(BrokerSaidError, reason, error)

    def _lost(self, problem: str) -> NoReturn:
        """Raise the error for the end of the connection, or for an ERROR that came first."""
        for index, frame in enumerate(self.inbox):
            if frame.command == "ERROR":
                self._raise_error(index, problem)
        reason = f"{problem}: {self._ending}{unread(self.inbox)}"
        raise self.trail.failure(ConnectionLostError, reason)

    def _end(self, ending: str, *, by_broker: bool) -> None:
        if not self._ending:
            self._ending = ending
            self.is_closed_by_broker = by_broker
            self.trail.ended(ending)

    def close(self) -> None:
        """Close the connection in order, without DISCONNECT; harmless the second time.

        A forked child only closes its copy.
        """
        if os.getpid() == self._owner:
            self._finish()
        self._socket.close()
        self._end("the client has closed the connection", by_broker=False)

    def _finish(self) -> None:
        """End both directions.

        Bytes that have arrived are read first. Unread bytes would turn the close into a reset,
        which can make the broker lose the last bytes that were sent.
        """
        with contextlib.suppress(OSError, ValueError):
            for _ in range(_DRAINED_BYTES // _READ_BYTES):
                if not self._socket.recv(_READ_BYTES):
                    break
        if isinstance(self._socket, ssl.SSLSocket):
            # Sends the TLS close notification, and does not wait for the answer.
            with contextlib.suppress(OSError, ValueError):
                self._socket.unwrap()
        # A forked child may have a copy, which would keep the connection open.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Abort the connection: the broker gets a reset (RST). A forked child closes its copy."""
        if os.getpid() == self._owner:
            with contextlib.suppress(OSError):
                linger_now = struct.pack("ii", 1, 0)
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_now)
        self._socket.close()
        self._end("the client has reset the connection", by_broker=False)
