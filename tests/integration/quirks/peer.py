"""One end of a STOMP connection that sends arbitrary frames, and accepts any answer."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Literal, Self

from stompkit.frames import Frame, Version, unescape
from stompkit.testing import RunningBroker

__all__ = ["Fate", "Peer", "Shown", "Site", "shown"]

#: The state of a connection: it answers, it has been closed, or neither.
Fate = Literal["open", "closed", "silent"]

#: Timeout of an expected answer, in seconds.
_PATIENCE_S: Final = 10.0

Shown = tuple[str, dict[str, str], bytes]


def shown(frame: Frame, *headers: str) -> Shown:
    """Return the comparable parts of a frame: command, some headers, and the body."""
    body = frame.body if frame.command == "MESSAGE" else b""
    some = {name: frame.headers[name] for name in headers if name in frame.headers}
    return frame.command, some, body


@dataclass
class Site:
    """A broker, and the name of the one that it is or emulates."""

    broker: RunningBroker
    name: str
    quiet_s: float = 0.15
    """Time in seconds to wait for further frames after an answer of the broker."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def is_morbidq(self) -> bool:
        """True if it does not support receipts."""
        return self.name == "morbidq"

    def queue(self) -> str:
        """Return a new queue."""
        return f"/queue/quirks-{time.time_ns():x}-{next(self._numbers)}"

    def topic(self) -> str:
        """Return a new topic."""
        return self.queue().replace("/queue/", "/topic/")

    def raw(self) -> Peer:
        """Return a connection on which nothing has been sent."""
        return Peer(self)

    def peer(self, version: Version | None = "1.1", **headers: str) -> Peer:
        """Return a connection that has logged in; ``None``: without accept-version."""
        peer = Peer(self)
        peer.connect(version, **headers)
        connected = peer.frame()
        assert connected is not None and connected.command == "CONNECTED", connected
        return peer


class Peer:
    """A client without expectations; context manager."""

    def __init__(self, site: Site) -> None:
        """Connect."""
        self._site = site
        broker = site.broker
        self._socket = socket.create_connection((broker.host, broker.port), _PATIENCE_S)
        self._pending = b""
        #: Frames that have been read ahead, and are returned next.
        self._early: deque[Frame] = deque()
        self._version: Version = "1.0"
        self._fences = count(1)
        #: All received bytes.
        self.octets = b""
        self.is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close without DISCONNECT."""
        self._socket.close()

    def leave(self) -> None:
        """Stop sending, and wait until the broker has closed its side."""
        self._socket.shutdown(socket.SHUT_WR)
        while not self.is_closed:
            self._read(_PATIENCE_S)

    # Sending.

    def write(self, octets: bytes) -> None:
        """Send bytes."""
        with suppress(OSError):
            self._socket.sendall(octets)

    def send(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        """Send a frame; header values are sent unescaped, names with - for _."""
        entries = {name.replace("_", "-"): value for name, value in headers.items()}
        if body:
            entries.setdefault("content-length", str(len(body)))
        lines = "".join(f"{name}:{value}\n" for name, value in entries.items())
        self.write(f"{command}\n{lines}\n".encode() + body + b"\0")

    def connect(self, version: Version | None = "1.1", /, **headers: str) -> None:
        """Send CONNECT without reading the answer."""
        broker = self._site.broker
        own = {"host": broker.vhost}
        if version is not None:
            own["accept_version"] = version
        if broker.login is not None:
            own |= {"login": broker.login, "passcode": broker.passcode or ""}
        self.send("CONNECT", **own | headers)

    def call(self, command: str, body: bytes = b"", /, **headers: str) -> list[Frame]:
        """Send a frame with a receipt; return all frames up to its RECEIPT or an ERROR."""
        receipt = f"call-{next(self._fences)}"
        self.send(command, body, receipt=receipt, **headers)
        frames = []
        while frame := self.frame():
            frames.append(frame)
            if frame.command == "ERROR" or frame.headers.get("receipt-id") == receipt:
                break
        return frames

    def subscribe(self, **headers: str) -> None:
        """Subscribe; messages that arrive before the RECEIPT are returned later."""
        frames = self.call("SUBSCRIBE", **headers)
        assert frames[-1].command == "RECEIPT", frames
        self._early.extend(frames[:-1])

    # Receiving.

    def frame(self, patience_s: float = _PATIENCE_S) -> Frame | None:
        """Return the next frame; ``None`` after the end. Raise TimeoutError."""
        if self._early:
            return self._early.popleft()
        deadline = time.monotonic() + patience_s
        while True:
            frame = self._taken()
            if frame is not None or self.is_closed:
                return frame
            self._read(deadline - time.monotonic())

    def message(self) -> Frame:
        """Return the next MESSAGE; skip other frames."""
        while frame := self.frame():
            if frame.command == "MESSAGE":
                return frame
        raise AssertionError("the connection was closed")

    def messages(self, number: int) -> list[bytes]:
        """Return the bodies of the next MESSAGE frames."""
        return [self.message().body for _ in range(number)]

    def rest(self) -> list[Frame]:
        """Return all frames until the broker is silent."""
        frames, fate = self.fate()
        if fate == "open":
            with suppress(TimeoutError):
                while frame := self.frame(self._site.quiet_s):
                    frames.append(frame)
        return frames

    def fate(self, patience_s: float = _PATIENCE_S) -> tuple[list[Frame], Fate]:
        """Make the broker answer; return the frames before the answer, and the state."""
        name = self._site.queue().rpartition("/")[2]
        if self._site.is_morbidq:
            # It would discard this together with unknown data if they arrived together.
            for _ in range(2):
                self._site.peer("1.0").close()
            self.send("SUBSCRIBE", destination=f"/topic/{name}")
            self.send("SEND", name.encode(), destination=f"/topic/{name}")
        else:
            self.send("SEND", destination="/topic/fence", receipt=name)
        frames: list[Frame] = []
        try:
            while frame := self.frame(patience_s):
                if name in (frame.headers.get("receipt-id"), frame.body.decode("latin-1")):
                    return frames, "open"
                frames.append(frame)
        except TimeoutError:
            return frames, "silent"
        return frames, "closed"

    def _read(self, patience_s: float) -> None:
        self._socket.settimeout(max(0.001, patience_s))
        try:
            data = self._socket.recv(65_536)
        except ConnectionError:
            data = b""
        self._pending += data
        self.octets += data
        self.is_closed = not data

    def _taken(self) -> Frame | None:
        """Return the first complete frame of the received bytes."""
        pending = self._pending.lstrip(b"\r\n")
        head, gap, rest = pending.partition(b"\n\n")
        if not gap:
            return None
        command, *lines = head.decode("utf-8", "surrogateescape").split("\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            if self._version != "1.0":
                value = unescape(value, "1.2", keep_unknown=True)
            headers.setdefault(name, value)
        # MorbidQ may send a wrong length in the header.
        end = rest.find(b"\0")
        if not self._site.is_morbidq and "content-length" in headers:
            end = int(headers["content-length"])
        if end < 0 or len(rest) <= end:
            return None
        self._pending = rest[end + 1 :]
        if command == "CONNECTED":
            version = headers.get("version")
            self._version = "1.2" if version == "1.2" else "1.1" if version == "1.1" else "1.0"
        return Frame(command, headers, rest[:end])
