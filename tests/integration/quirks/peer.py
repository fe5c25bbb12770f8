"""One end of a STOMP connection that says what it is told to, and takes whatever comes."""

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

#: What has become of a connection: it answers, it has been closed, or neither.
Fate = Literal["open", "closed", "silent"]

#: How long anything may take that has to come, in seconds.
_PATIENCE_S: Final = 10.0

Shown = tuple[str, dict[str, str], bytes]


def shown(frame: Frame, *headers: str) -> Shown:
    """What of a frame two brokers can have in common: command, some headers, and the body."""
    body = frame.body if frame.command == "MESSAGE" else b""
    some = {name: frame.headers[name] for name in headers if name in frame.headers}
    return frame.command, some, body


@dataclass
class Site:
    """A broker to talk to, and the name of the one that it is or plays."""

    broker: RunningBroker
    name: str
    quiet_s: float = 0.15
    """How long to look for what may still come when the broker has answered, in seconds."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def is_morbidq(self) -> bool:
        """Whether it knows no receipts."""
        return self.name == "morbidq"

    def queue(self) -> str:
        """A queue that nobody else uses."""
        return f"/queue/quirks-{time.time_ns():x}-{next(self._numbers)}"

    def topic(self) -> str:
        """A topic that nobody else uses."""
        return self.queue().replace("/queue/", "/topic/")

    def raw(self) -> Peer:
        """A connection on which nothing has been sent."""
        return Peer(self)

    def peer(self, version: Version | None = "1.1", **headers: str) -> Peer:
        """A connection that has logged in; ``None``: without accept-version."""
        peer = Peer(self)
        peer.connect(version, **headers)
        connected = peer.frame()
        assert connected is not None and connected.command == "CONNECTED", connected
        return peer


class Peer:
    """A client of which nothing is expected; context manager."""

    def __init__(self, site: Site) -> None:
        """Connect."""
        self._site = site
        broker = site.broker
        self._socket = socket.create_connection((broker.host, broker.port), _PATIENCE_S)
        self._pending = b""
        #: Frames that have been looked at, and are still to be given.
        self._early: deque[Frame] = deque()
        self._version: Version = "1.0"
        self._fences = count(1)
        #: All that has come.
        self.octets = b""
        self.is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close, without a word."""
        self._socket.close()

    def leave(self) -> None:
        """Say no more, and wait until the broker has closed: then it knows of that."""
        self._socket.shutdown(socket.SHUT_WR)
        while not self.is_closed:
            self._read(_PATIENCE_S)

    # Saying something.

    def write(self, octets: bytes) -> None:
        """Send octets."""
        with suppress(OSError):
            self._socket.sendall(octets)

    def send(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        """Send a frame; header values are on the wire as they are here, names with - for _."""
        entries = {name.replace("_", "-"): value for name, value in headers.items()}
        if body:
            entries.setdefault("content-length", str(len(body)))
        lines = "".join(f"{name}:{value}\n" for name, value in entries.items())
        self.write(f"{command}\n{lines}\n".encode() + body + b"\0")

    def connect(self, version: Version | None = "1.1", /, **headers: str) -> None:
        """Send CONNECT; the answer is not read."""
        broker = self._site.broker
        own = {"host": broker.vhost}
        if version is not None:
            own["accept_version"] = version
        if broker.login is not None:
            own |= {"login": broker.login, "passcode": broker.passcode or ""}
        self.send("CONNECT", **own | headers)

    def call(self, command: str, body: bytes = b"", /, **headers: str) -> list[Frame]:
        """Send a frame with a receipt, and give what comes, up to its RECEIPT or an ERROR."""
        receipt = f"call-{next(self._fences)}"
        self.send(command, body, receipt=receipt, **headers)
        frames = []
        while frame := self.frame():
            frames.append(frame)
            if frame.command == "ERROR" or frame.headers.get("receipt-id") == receipt:
                break
        return frames

    def subscribe(self, **headers: str) -> None:
        """Subscribe; messages that come before the RECEIPT are given as if they came behind it."""
        frames = self.call("SUBSCRIBE", **headers)
        assert frames[-1].command == "RECEIPT", frames
        self._early.extend(frames[:-1])

    # Hearing something.

    def frame(self, patience_s: float = _PATIENCE_S) -> Frame | None:
        """The next frame; ``None`` where the end came first. Raises TimeoutError."""
        if self._early:
            return self._early.popleft()
        deadline = time.monotonic() + patience_s
        while True:
            frame = self._taken()
            if frame is not None or self.is_closed:
                return frame
            self._read(deadline - time.monotonic())

    def message(self) -> Frame:
        """The next MESSAGE; other frames are passed over."""
        while frame := self.frame():
            if frame.command == "MESSAGE":
                return frame
        raise AssertionError("the connection was closed")

    def messages(self, number: int) -> list[bytes]:
        """The bodies of the next MESSAGE frames."""
        return [self.message().body for _ in range(number)]

    def rest(self) -> list[Frame]:
        """What comes before the broker has nothing more to say."""
        frames, fate = self.fate()
        if fate == "open":
            with suppress(TimeoutError):
                while frame := self.frame(self._site.quiet_s):
                    frames.append(frame)
        return frames

    def fate(self, patience_s: float = _PATIENCE_S) -> tuple[list[Frame], Fate]:
        """Have the broker answer something; gives what came before that, and whether it did."""
        name = self._site.queue().rpartition("/")[2]
        if self._site.is_morbidq:
            # It would lose this together with what it does not understand, if it came with that.
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
        """The frame that the octets begin with that have come."""
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
        # Whatever the header says, where MorbidQ wrote it.
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
