"""One connection of the client under test; the suite is the server at its other end."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from stompkit.conformance.peer import Headers, Peer, Recorder, describe, frame_octets
from stompkit.conformance.verdict import FailedError
from stompkit.conformance.wire.octets import header_lines
from stompkit.frames import VERSIONS, Frame, HeartBeatOffer, Version, parse_heart_beat

__all__ = ["IN", "OUT", "Caller", "Message", "shown"]

#: The queues from which the client receives messages, and to which it sends its own.
IN = "/queue/in"
OUT = "/queue/out"
_SHOWN_OCTETS = 60
#: Maximum time in seconds that a piece of a frame waits until the previous one is read.
_APART_S = 0.001


#: Bodies that tell the agent to do something, by their first word.
_INSTRUCTIONS: Final = frozenset(
    {b"quit", b"nack", b"subscribe", b"describe", b"header", b"commit", b"abort"}
)


@dataclass(frozen=True, slots=True)
class Message:
    """A MESSAGE for the client, with the values that its acknowledgement must have."""

    octets: bytes
    message_id: str
    ack: str
    #: ``None`` if SUBSCRIBE had no id, as 1.0 allows.
    subscription: str | None


class Caller(Peer):
    """A connection that the client has opened.

    A frame that requests a receipt gets it once it has been read, but never in the middle of data
    that a case sends.
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
        """Take over an accepted connection."""
        super().__init__(connection, number, recorder, timeout_s=timeout_s, deadline=deadline)
        #: Commands whose receipts are left to the case; CONNECT cannot request any.
        self.withholds = {"CONNECT", "STOMP"}
        self._is_held = False
        self._has_finished = False
        self._answered = 0
        self._messages = 0
        self._instructions: set[bytes] = set()

    # Properties that the client has reported.

    @property
    def opening(self) -> Frame:
        """The CONNECT or STOMP frame at the start of the connection."""
        return self.frames[0]

    @property
    def offered(self) -> list[Version]:
        """The known versions that the client offers, oldest first."""
        if not self.frames:
            return []
        names = self.opening.headers.get("accept-version", "1.0").split(",")
        return [version for version in VERSIONS if version in map(str.strip, names)]

    @property
    def heart_beat(self) -> HeartBeatOffer:
        """The heart-beat values of CONNECT in milliseconds; zeros if they cannot be parsed."""
        try:
            return parse_heart_beat(self.opening.headers.get("heart-beat"))
        except ValueError:
            return 0, 0

    @property
    def subscribe(self) -> Frame | None:
        """The first SUBSCRIBE frame."""
        return next((frame for frame in self.frames if frame.command == "SUBSCRIBE"), None)

    # Start of a session.

    def expect_connect(self) -> Frame:
        """Wait for the first frame, which must be CONNECT or STOMP."""
        frame = self._wait(lambda frame: True, None)
        if frame is None and self.is_closed_by_target:
            raise FailedError("expected CONNECT, but the client closed the connection")
        if frame is None:
            self._hang("expected CONNECT, but the client says nothing")
        if frame.command not in ("CONNECT", "STOMP"):
            raise FailedError(f"expected CONNECT, got {describe(frame)}")
        return frame

    def welcome(
        self,
        version: Version,
        *,
        heart_beat: str | None = "0,0",
        names_version: bool = True,
        names_session: bool = True,
        lines: Sequence[str] = (),
    ) -> None:
        """Send CONNECTED, and apply the rules of a version from now on.

        ``lines`` are header lines that are sent unchanged. Headers that 1.0 does not define are
        sent only if the client has requested them, as by a server that supports several versions.
        """
        asked = self.opening.headers
        head = ["CONNECTED", *(["session:conformance"] if names_session else [])]
        if names_version and (version != "1.0" or "accept-version" in asked):
            head.append(f"version:{version}")
        if heart_beat is not None and (version != "1.0" or "heart-beat" in asked):
            head.append(f"heart-beat:{heart_beat}")
        self.send_raw("\n".join([*head, *lines, "", "\0"]).encode())
        self.switch(version)

    # Messages to the client.

    def message(
        self,
        body: bytes = b"",
        headers: Headers = (),
        *,
        lines: Sequence[bytes] = (),
        length: bool = True,
        eol: str = "\n",
    ) -> Message:
        """Return a MESSAGE for the client's first subscription.

        ``headers`` are added to the default headers, or replace them; ``lines`` are raw header
        lines that come first. ``length`` adds a content-length.
        """
        self._messages += 1
        if body.partition(b" ")[0] in _INSTRUCTIONS:
            self._instructions.add(body)
        own = {
            "destination": IN,
            "message-id": f"message-{self._messages}",
            "ack": f"ack-{self._messages}",
        }
        if self.subscribe is not None and "id" in self.subscribe.headers:
            own["subscription"] = self.subscribe.headers["id"]
        if length:
            own["content-length"] = str(len(body))
        own.update(headers)
        names = Message(b"", own["message-id"], own["ack"], own.get("subscription"))
        if self.version != "1.2":
            del own["ack"]
        octets = frame_octets("MESSAGE", own, body, version=self.version, length=False, eol=eol)
        end = eol.encode()
        command, _, rest = octets.partition(end)
        octets = end.join([command, *lines, rest])
        return Message(octets, names.message_id, names.ack, names.subscription)

    @property
    def undone(self) -> str:
        """The instruction that the agent has sent back, as any other body; empty if there is none.

        In a transaction it was told to do so.
        """
        if any(frame.command == "BEGIN" for frame in self.frames):
            return ""
        sent = (frame.body for frame in self.frames if frame.command == "SEND")
        return next((body.decode() for body in sent if body in self._instructions), "")

    def deliver(
        self,
        body: bytes = b"",
        headers: Headers = (),
        *,
        lines: Sequence[bytes] = (),
        length: bool = True,
    ) -> Message:
        """Send a MESSAGE; see :meth:`message`."""
        message = self.message(body, headers, lines=lines, length=length)
        self.send_raw(message.octets)
        return message

    def trickle(self, octets: bytes) -> None:
        """Send bytes one by one, in separate segments as far as TCP allows."""
        with self.holding():
            for place in range(len(octets)):
                self.send_raw(octets[place : place + 1])
                self._wait(lambda frame: False, _APART_S)

    # Responses of the client.

    def expect_send(self, body: bytes) -> Frame:
        """Wait for the next SEND, which must have this body."""
        frame = self.expect("SEND")
        if frame.body != body:
            raise FailedError(f"the client sent {shown(frame.body)}, not {shown(body)}")
        return frame

    def echo(
        self,
        body: bytes,
        headers: Headers = (),
        *,
        lines: Sequence[bytes] = (),
        length: bool = True,
    ) -> Frame:
        """Send a MESSAGE, and wait for the SEND that returns its body."""
        self.deliver(body, headers, lines=lines, length=length)
        return self.expect_send(body)

    def expect_read(self, line: bytes, header: str) -> None:
        """Send a raw header line, and check the header that the client decodes from it.

        ``header`` is its name, ``=`` and its value.
        """
        self.deliver(b"describe", lines=[line])
        read = self.expect("SEND").body
        if read != header.encode():
            raise FailedError(f"the client reads {shown(line)} as {shown(read)}")

    def expect_kept(self, line: bytes, header: str) -> None:
        """Check that the client decodes a line as ``header``, and encodes it to the same line."""
        self.expect_read(line, header)
        self.expect_written(header, line)

    def expect_written(self, header: str, line: bytes) -> None:
        """Make the client send a header, and check the raw line.

        ``header`` is its name, ``=`` and its value.
        """
        self.deliver(b"header " + header.encode())
        frame = self.expect("SEND")
        written = header_lines(frame, self.version)
        if line not in written:
            theirs = [each for each in written if each[:2].lower() == b"x-"]
            what = " and ".join(map(shown, theirs)) or "nothing"
            raise FailedError(f"the client sends {header!r} as {what}, not as {shown(line)}")

    def settle(self) -> None:
        """Wait until the client has acknowledged a message, if it acknowledges at all."""
        self._wait(lambda frame: frame.command == "ACK", None)

    # Receipts.

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Hold all receipts back within the context, so that a frame can be sent in pieces."""
        is_held, self._is_held = self._is_held, True
        try:
            yield
        finally:
            self._is_held = is_held
        self._answer()

    def send_raw(self, octets: bytes) -> None:
        """Send raw bytes, and afterwards the receipts that were requested meanwhile."""
        with self.holding():
            super().send_raw(octets)

    def receipt(self, frame: Frame) -> None:
        """Send the receipt of a frame that requests one."""
        if "receipt" in frame.headers:
            self.send("RECEIPT", {"receipt-id": frame.headers["receipt"]})

    def _read(self) -> None:
        super()._read()
        self._answer()

    def _answer(self) -> None:
        """Send the due receipts, unless other data is being sent."""
        while not (self._is_held or self._has_finished) and self._answered < len(self.frames):
            frame = self.frames[self._answered]
            self._answered += 1
            if frame.command not in self.withholds:
                self.receipt(frame)

    # The end.

    def finish_sending(self) -> None:
        """Close the sending direction as a server does at its end, and continue to read."""
        self._has_finished = True
        super().finish_sending()

    def abort(self) -> None:
        """Close the connection; thread-safe: waiting methods return."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has ended


def shown(octets: bytes) -> str:
    """Quote bytes for a reason, shortened if they are long."""
    if len(octets) <= _SHOWN_OCTETS:
        return repr(octets)[1:]
    return f"{repr(octets[:_SHOWN_OCTETS])[1:]}... ({len(octets)} octets)"
