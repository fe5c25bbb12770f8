"""The bytes of a connection, with heart-beats, and the frames among them."""

from __future__ import annotations

import select
import socket
import time
from collections import deque

from tests.conformance.second_client.escapes import Lost
from tests.conformance.second_client.frames import Codec, Frame, Headers, Pairs
from tests.conformance.second_client.switches import Switch


class Stream:
    """Sends and receives frames on a connection."""

    def __init__(self, connection: socket.socket, switch: Switch) -> None:
        """Start on a new connection."""
        self._connection = connection
        self.has = switch.has
        self._codec = Codec(switch)
        #: Frames read ahead, and the headers of the last MESSAGE among them.
        self.frames: deque[Frame] = deque()
        self.newest: Headers = {}
        #: Interval in seconds of heart-beats to the server and from it; 0 for none.
        self.send_s = self.receive_s = 0.0
        self._last_sent = self._last_heard = time.monotonic()

    @property
    def version(self) -> bytes:
        """The version of the protocol; empty before CONNECTED."""
        return self._codec.version

    @version.setter
    def version(self, version: bytes) -> None:
        self._codec.version = version

    # Writing.

    def send(self, command: bytes, headers: Pairs, body: bytes = b"") -> None:
        """Send a frame."""
        self._write(self._codec.encode(command, headers, body))

    def _write(self, octets: bytes) -> None:
        """Send bytes."""
        size = 3 if self.has("writes in small pieces") else len(octets)
        for place in range(0, len(octets), size):
            self._connection.sendall(octets[place : place + size])
        self._last_sent = time.monotonic()

    # Reading.

    def receive(self, until: float | None = None) -> Frame:
        """Wait for a frame; complete frames after it are read as well."""
        while not self.frames:
            self._read_ahead()
            if not self.frames:
                self._fill(until)
        return self.frames.popleft()

    def _read_ahead(self) -> None:
        """Read all complete frames, or only one before CONNECTED."""
        while frame := self._codec.next_frame():
            if self.has("takes only whole frames for signs of life"):
                self._last_heard = time.monotonic()
            self.frames.append(frame)
            if frame[0] == b"MESSAGE":
                self.newest = frame[1]
            if not self.version:
                return

    def _fill(self, until: float | None = None) -> None:
        """Wait for bytes, and send heart-beats meanwhile."""
        beat, dead = self._next_beat(), self._deadline()
        times = [each for each in (beat, dead, until) if each is not None]
        wait_s = max(0.0, min(times) - time.monotonic()) if times else None
        if select.select([self._connection], [], [], wait_s)[0]:
            self._read()
            return
        now = time.monotonic()
        if beat is not None and now >= beat:
            self._beat()
        if dead is not None and now >= dead:
            raise Lost("no heart-beat came")
        if until is not None and now >= until:
            raise TimeoutError

    def _read(self) -> None:
        """Read the bytes that have arrived."""
        octets = self._connection.recv(65_536)
        if not octets:
            raise Lost("the server has closed the connection")
        is_choosy = self.has("takes only line ends for signs of life")
        is_choosy = is_choosy or self.has("takes only whole frames for signs of life")
        if not octets.strip(b"\r\n") or not is_choosy:
            self._last_heard = time.monotonic()
        self._codec.feed(octets)

    # Heart-beats.

    def _next_beat(self) -> float | None:
        """Return the time of the next heart-beat to the server."""
        if not self.send_s:
            return None
        pace = 1.6 if self.has("beats 1.6 times late") else 0.5
        if self.has("beats five times as often"):
            pace = 0.2
        last = self._last_sent
        if self.has("beats only while it hears nothing"):
            last = max(last, self._last_heard)
        return last + self.send_s * pace

    def _deadline(self) -> float | None:
        """Return the time after which a silent server is lost."""
        if not self.receive_s:
            return None
        patience = 2.0 if self.has("expects beats sooner than agreed") else 4.0
        # With short intervals, a busy machine would cause missed heart-beats.
        if self.receive_s > 1.0 and self.has("forgives no late beat"):
            patience = 1.0
        return self._last_heard + self.receive_s * patience

    def _beat(self) -> None:
        """Send a heart-beat."""
        is_cr = self.has("beats by CR LF on 1.1") and self.version == b"1.1"
        is_cr = is_cr or (self.has("beats by CR LF on 1.2") and self.version == b"1.2")
        self._write(b"\r\n" if is_cr else b"\n")
