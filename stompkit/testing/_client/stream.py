"""One connection to a broker, for a client that is awake only while it is called."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import Final, NoReturn

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
from stompkit.testing._client.errors import (
    BrokerSaidError,
    ClientFailure,
    ConnectionLost,
    NothingReceived,
)
from stompkit.testing._client.trail import Trail, unread

__all__ = ["ClientStream"]

#: More than a record of TLS has: what a read leaves of one would not show as having arrived.
_READ_BYTES: Final = 65_536
#: What is read, without looking at it, before the connection is closed.
_DRAINED_BYTES: Final = 1024 * 1024
#: An option of the system's; only Linux has it.
_QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
#: A socket that does not block says so by these.
_NOT_NOW: Final = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class ClientStream:
    """Octets out, octets in and the frames that they make, with a deadline on every wait.

    Whatever can be understood is read; what can't ends the connection.
    """

    def __init__(
        self, connection: socket.socket, timeout_s: float, secrets: tuple[str, ...] = ()
    ) -> None:
        """Take over a connected socket; ``secrets`` are texts that no message may show."""
        connection.setblocking(False)
        self._socket = connection
        self._decoder = FrameDecoder(limits=AFTER_LOGIN, tolerance=Tolerance.LENIENT)
        self.trail = Trail(secrets)
        #: How the connection has ended, as a sentence; empty while it is open.
        self._ending = ""
        self.timeout_s = timeout_s
        #: When line ends are due; without any until it has been negotiated.
        self.heart_beat = HeartBeat(time.monotonic())
        #: All frames received; those of them that nobody has asked for.
        self.received: list[Frame] = []
        self.inbox: list[Frame] = []
        #: Heart-beats received. The first line end behind a frame is not counted: some brokers
        #: end their frames so.
        self.beats = 0
        self._is_behind_frame = False
        self.is_closed_by_broker = False

    @property
    def version(self) -> Version | None:
        """The version by whose rules frames are read; ``None`` until CONNECTED has come."""
        return self._decoder.version

    # Sending.

    def send(self, octets: bytes, frame: Frame | None = None) -> None:
        """Send octets, reading meanwhile; ``frame`` is what they are, if they are one.

        Raises :class:`ConnectionLost`, :class:`BrokerSaidError` if that was why, and
        :class:`ClientFailure` if the broker does not take them in time.
        """
        self.trail.sent(octets if frame is None else frame)
        until = time.monotonic() + self.timeout_s
        left = memoryview(octets)
        while left:
            if self._ending:
                self._lost("not all was sent")
            if time.monotonic() >= until:
                taken = f"{len(octets) - len(left)} of {len(octets)} octets"
                reason = f"the broker took only {taken} in {self.timeout_s:g} s"
                raise self.trail.failure(ClientFailure, reason)
            ready = self._ready(until, selectors.EVENT_READ | selectors.EVENT_WRITE)
            if ready & selectors.EVENT_READ:
                self._read()
            if ready & selectors.EVENT_WRITE and not self._ending:
                left = left[self._write(left) :]
        self.heart_beat.last_sent = time.monotonic()

    def _write(self, octets: memoryview) -> int:
        """Hand octets to the system; how many it took."""
        try:
            return self._socket.send(octets)
        except _NOT_NOW:
            return 0
        except OSError:
            # What the broker said before it hung up may still be there to be read.
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

        Raises :class:`NothingReceived` after ``timeout_s`` seconds, by default the connection's,
        and :class:`ConnectionLost` at its end, or :class:`BrokerSaidError` if that was why.
        """
        seconds = self.timeout_s if timeout_s is None else timeout_s
        until = time.monotonic() + seconds
        is_time_left = True
        while not condition():
            if self._ending:
                self._lost(f"no {what} came")
            if not is_time_left:
                reason = f"no {what} came in {seconds:g} s{unread(self.inbox)}"
                raise self.trail.failure(NothingReceived, reason)
            is_time_left = self.pump(until)

    def pump(self, until: float) -> bool:
        """Read what comes next, and send the beats that are due; false when ``until`` has come.

        ``until`` is a time of ``time.monotonic``.
        """
        if self._ending:
            return False
        now = time.monotonic()
        if self.heart_beat.must_send(now):
            # If the broker does not take it now, octets are on their way to it that do as well.
            self._write(memoryview(b"\n"))
            self.heart_beat.last_sent = now
        due = self.heart_beat.next_deadline()
        if self._ready(until if due is None else min(until, due), selectors.EVENT_READ):
            self._read()
            return True
        return time.monotonic() < until

    def _ready(self, until: float, events: int) -> int:
        """Wait until the socket is ready for one of these events, and return for which."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, events)
            ready = selector.select(max(0.0, until - time.monotonic()))
        return ready[0][1] if ready else 0

    def _read(self, *, at_end: bool = False) -> None:
        """Take what has arrived; with ``at_end``, nothing more is to come."""
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
            # A broker that writes two small pieces holds the second back until the first has been
            # acknowledged, 40 ms later unless this is said, which it has to be each time.
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)

    def _count_beats(self, octets: bytes) -> None:
        """Count the line ends that are not part of anything."""
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
            self._end(f"what the broker sent can't be read ({error.message})", by_broker=False)

    # The end.

    def _raise_error(self, index: int, problem: str) -> NoReturn:
        """Raise the ERROR at this place of the inbox, and take it away."""
        error = self.inbox.pop(index)
        reason = f"{problem}: the broker said ERROR {self.trail.said(error)}"
        raise self.trail.failure(BrokerSaidError, reason, error)

    def _lost(self, problem: str) -> NoReturn:
        """Say that the connection has ended, or that an ERROR came first."""
        for index, frame in enumerate(self.inbox):
            if frame.command == "ERROR":
                self._raise_error(index, problem)
        reason = f"{problem}: {self._ending}{unread(self.inbox)}"
        raise self.trail.failure(ConnectionLost, reason)

    def _end(self, ending: str, *, by_broker: bool) -> None:
        if not self._ending:
            self._ending = ending
            self.is_closed_by_broker = by_broker
            self.trail.ended(ending)

    def close(self) -> None:
        """Close in an orderly way, without a word of STOMP; harmless the second time.

        What has arrived is read first: to leave it would turn the close into a reset, which can
        take from the broker what was sent last.
        """
        with contextlib.suppress(OSError, ValueError):
            for _ in range(_DRAINED_BYTES // _READ_BYTES):
                if not self._socket.recv(_READ_BYTES):
                    break
        if isinstance(self._socket, ssl.SSLSocket):
            # Says goodbye in TLS; the answer is not waited for.
            with contextlib.suppress(OSError, ValueError):
                self._socket.unwrap()
        self._socket.close()
        self._end("the client has closed the connection", by_broker=False)

    def reset(self) -> None:
        """Cut the connection off: the broker gets a reset (RST)."""
        with contextlib.suppress(OSError):
            linger_now = struct.pack("ii", 1, 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_now)
        self._socket.close()
        self._end("the client has reset the connection", by_broker=False)
