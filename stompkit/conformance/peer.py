"""A client that can say anything: one raw connection to the target, with a deadline on all."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from stompkit.conformance.verdict import Ending, Failed, WireEvent
from stompkit.frames import (
    Frame,
    FrameDecoder,
    Limits,
    RemoteProtocolError,
    Tolerance,
    Version,
    escape,
)

__all__ = ["Headers", "Peer", "Recorder", "describe", "frame_octets", "raw_value"]

Headers = Mapping[str, str] | Sequence[tuple[str, str]]

_READ_BYTES = 65_536
_SHOWN_BYTES = 4_096
#: What a target may send on one connection before the suite stops listening.
_MOST_BYTES = 256 * 1024 * 1024
#: The suite's own decoder takes whatever can be read, so that one fault fails one case.
_NO_LIMITS = Limits(
    max_command_bytes=4_096,
    max_header_line_bytes=_MOST_BYTES,
    max_headers=1_000_000,
    max_body_bytes=_MOST_BYTES,
    max_frame_bytes=_MOST_BYTES,
)
_UNPRINTABLE = re.compile(r"[^\n\x20-\x7e]")
_PASSCODE = re.compile(rb"(?<=\npasscode:)[^\r\n]*")


def frame_octets(
    command: str,
    headers: Headers = (),
    body: bytes = b"",
    *,
    version: Version = "1.2",
    length: bool = True,
    eol: str = "\n",
) -> bytes:
    """Put a frame together exactly as told; ``length`` adds content-length where there is a body.

    Header names and values are escaped by ``version``, but for CONNECT.
    """
    pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
    if body and length and all(name != "content-length" for name, _ in pairs):
        pairs.append(("content-length", str(len(body))))
    if command not in ("CONNECT", "STOMP"):
        pairs = [(escape(name, version), escape(value, version)) for name, value in pairs]
    lines = [command, *(f"{name}:{value}" for name, value in pairs), "", ""]
    return eol.join(lines).encode() + body + b"\0"


@dataclass
class Recorder:
    """What happened on the wire during one case."""

    events: list[WireEvent] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def note(self, connection: int, direction: str, octets: bytes) -> None:
        """Record octets, without the passcode and not more than can be read."""
        shown = _PASSCODE.sub(b"***", octets[:_SHOWN_BYTES])
        text = shown.decode("latin-1").replace("\0", "^@")
        text = _UNPRINTABLE.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
        if len(octets) > _SHOWN_BYTES:
            text += f"... {len(octets)} octets"
        at_ms = int((time.monotonic() - self.began) * 1000)
        self.events.append(WireEvent(connection, at_ms, direction, text))

    def say(self, connection: int, text: str) -> None:
        """Record an event that is not octets."""
        self.note(connection, ".", text.encode())


class Peer:
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
        self._number = number
        self._recorder = recorder
        self._timeout_s = timeout_s
        self._deadline = deadline
        self._lenient = FrameDecoder(limits=_NO_LIMITS, tolerance=Tolerance.LENIENT)
        self._strict: FrameDecoder | None = FrameDecoder(limits=_NO_LIMITS)
        self._received_bytes = 0
        self._is_over = False
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
        self._receipts = 0

    # Sending.

    def send(
        self, command: str, headers: Headers = (), body: bytes = b"", *, length: bool = True
    ) -> None:
        """Send one frame, escaped by the session's version."""
        self.send_raw(frame_octets(command, headers, body, version=self.version, length=length))

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
            readable, writable, _ = select.select([self._socket], [self._socket], [], left)
            if readable:
                self._read()
            if writable and not self._is_over:
                try:
                    view = view[self._socket.send(view) :]
                except (BlockingIOError, InterruptedError):
                    continue
                except OSError:
                    self._ended(Ending.DROPPED)

    def call(
        self, command: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Frame:
        """Send a frame with a receipt and wait for its RECEIPT."""
        receipt = self.new_receipt()
        self.send(command, {**(headers or {}), "receipt": receipt}, body)
        return self.expect_receipt(receipt)

    def new_receipt(self) -> str:
        """A receipt that this connection has not used."""
        self._receipts += 1
        return f"r{self._number}-{self._receipts}"

    # Receiving.

    def expect(self, command: str, headers: Mapping[str, str] | None = None) -> Frame:
        """Wait for a frame with this command and these headers, and take it from the inbox.

        Other frames stay there. An ERROR that was not asked for fails at once.
        """
        wanted = headers or {}

        def is_it(frame: Frame) -> bool:
            return frame.command == command and all(
                frame.headers.get(name) == value for name, value in wanted.items()
            )

        what = command + (f" with {dict(wanted)}" if wanted else "")
        return self._take(is_it, what, fail_on_error=command != "ERROR")

    def expect_receipt(self, receipt: str) -> Frame:
        """Wait for the RECEIPT of a frame."""
        return self.expect("RECEIPT", {"receipt-id": receipt})

    def expect_messages(self, number: int) -> list[Frame]:
        """Wait for that many MESSAGE frames."""
        return [self.expect("MESSAGE") for _ in range(number)]

    def expect_refusal(self, receipt: str) -> Frame | None:
        """Wait for an ERROR, or for the end of the connection, instead of a RECEIPT.

        Gives the ERROR frame, or ``None`` where the target just closed.
        """

        def is_answer(frame: Frame) -> bool:
            return frame.command == "ERROR" or frame.headers.get("receipt-id") == receipt

        frame = self._wait(is_answer, None)
        if frame is not None and frame.command != "ERROR":
            raise Failed(f"the frame was accepted: {describe(frame)}")
        if frame is None and not self._is_over:
            self._hang("neither ERROR nor the end of the connection came")
        return frame

    def expect_answer(self, receipt: str) -> Frame:
        """Wait for a RECEIPT or an ERROR."""

        def is_answer(frame: Frame) -> bool:
            return frame.command == "ERROR" or frame.headers.get("receipt-id") == receipt

        return self._take(is_answer, "RECEIPT or ERROR", fail_on_error=False)

    def acknowledge(
        self, message: Frame, *, command: str = "ACK", transaction: str | None = None
    ) -> None:
        """Send the ACK or NACK of a MESSAGE, as the version wants it, and wait for RECEIPT."""
        if self.version == "1.2":
            headers = {"id": _header(message, "ack")}
        else:
            headers = {"message-id": _header(message, "message-id")}
            if self.version == "1.1":
                headers["subscription"] = _header(message, "subscription")
        if transaction is not None:
            headers["transaction"] = transaction
        self.call(command, headers)

    def expect_close(self, timeout_s: float | None = None) -> None:
        """Wait until the target closes the connection; frames go to the inbox meanwhile."""
        self._wait(lambda frame: False, timeout_s)
        if not self._is_over:
            self._hang("the target does not close the connection")

    def expect_nothing(self, seconds: float, command: str = "MESSAGE") -> None:
        """Fail if a frame with this command arrives within the time."""
        frame = self._wait(lambda frame: frame.command == command, seconds)
        if frame is not None:
            raise Failed(f"unexpected {describe(frame)}")

    def collect(self, seconds: float) -> list[Frame]:
        """All frames in the inbox and those that arrive within the time."""
        self._wait(lambda frame: False, seconds)
        frames, self.inbox = self.inbox, []
        return frames

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

    def _take(self, is_it: Callable[[Frame], bool], what: str, *, fail_on_error: bool) -> Frame:
        def ends(frame: Frame) -> bool:
            return is_it(frame) or (fail_on_error and frame.command == "ERROR")

        frame = self._wait(ends, None)
        if frame is not None and is_it(frame):
            return frame
        if frame is not None:
            raise Failed(f"expected {what}, got {describe(frame)}")
        if self._is_over:
            raise Failed(f"expected {what}, but the target closed the connection")
        self._hang(f"expected {what}, but nothing like it came")

    def _wait(self, ends: Callable[[Frame], bool], timeout_s: float | None) -> Frame | None:
        """Read until a frame satisfies ``ends``; ``None`` at the end of time or connection."""
        until = self._until(timeout_s)
        checked = 0
        while True:
            for index in range(checked, len(self.inbox)):
                if ends(self.inbox[index]):
                    return self.inbox.pop(index)
            checked = len(self.inbox)
            left = until - time.monotonic()
            if self._is_over or left <= 0:
                return None
            readable, _, _ = select.select([self._socket], [], [], left)
            if readable:
                self._read()

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
            raise Failed(f"the target sent more than {_MOST_BYTES} octets")
        self._decode(octets)

    def _decode(self, octets: bytes) -> None:
        if self._strict is not None:
            try:
                _feed(self._strict, octets)
            except RemoteProtocolError as error:
                self.violation = error.message
                self._strict = None
        try:
            frames = _feed(self._lenient, octets)
        except RemoteProtocolError as error:
            raise Failed(f"what the target sends can't be read: {error.message}") from None
        self.eols = self._lenient.eols
        self.inbox += frames
        self.frames += frames

    # The end.

    def _ended(self, ending: Ending) -> None:
        self._is_over = True
        self.ending = max(self.ending, ending, key=lambda each: each.rank)
        word = "reset" if ending is Ending.DROPPED else "closed"
        self._recorder.say(self._number, f"the target {word} the connection")

    def _hang(self, reason: str) -> NoReturn:
        self.ending = Ending.HUNG
        self._recorder.say(self._number, "waited in vain")
        raise Failed(reason)

    def finish_sending(self) -> None:
        """Half-close: say that nothing more comes, and go on reading."""
        self._recorder.say(self._number, "the suite closed its sending side")
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close in an orderly way, without DISCONNECT."""
        self._socket.close()

    def reset(self) -> None:
        """Cut the connection off: the target gets a reset."""
        self._recorder.say(self._number, "the suite reset the connection")
        linger_now = struct.pack("ii", 1, 0)
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_now)
        self._socket.close()


def _feed(decoder: FrameDecoder, octets: bytes) -> list[Frame]:
    """Decode all there is; in the handshake, only up to the frame that ends it."""
    frames = decoder.feed(octets)
    if frames and decoder.version is not None:
        frames += decoder.feed(b"")
    return frames


def _header(frame: Frame, name: str) -> str:
    value = frame.headers.get(name)
    if value is None:
        raise Failed(f"{frame.command} has no {name} header")
    return value


def raw_value(frame: Frame, name: str) -> bytes:
    """The octets of a received header's value as they came, escapes and all.

    Raises :class:`Failed` where the frame has no header of that (unescaped) name.
    """
    for line in (frame.head or b"").split(b"\n")[1:]:
        key, _, value = line.partition(b":")
        if key == name.encode():
            return value
    raise Failed(f"{frame.command} has no header {name}")


def describe(frame: Frame) -> str:
    """A frame in a few words, for a reason."""
    headers = frame.headers
    if frame.command == "ERROR":
        text = headers.get("message") or frame.body[:200].decode("utf-8", "replace").strip()
        return f"ERROR {text!r}"
    return f"{frame.command} with {dict(list(headers.items())[:8])} and {len(frame.body)} octets"
