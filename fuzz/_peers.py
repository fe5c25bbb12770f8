"""Decoders to compare: each reads a batch of streams."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import stomp.utils
from stomp.transport import BaseTransport

from fuzz._reference import COMPLETE, INCOMPLETE
from stompkit.frames import FrameDecoder, RemoteProtocolError, Version

__all__ = [
    "PEERS",
    "REFUSED",
    "Outcome",
    "Peer",
    "Seen",
    "Stream",
    "read_stompkit",
    "stomp_py",
    "stompjs",
]

#: End of a stream that a decoder has refused.
REFUSED: Final = "refused"
#: Decoders that can be selected, besides the reference.
PEERS: Final = ("stomp.py", "stompjs")


class Stream(NamedTuple):
    """Bytes, the version for decoding them, and the position that cuts them in two."""

    version: Version
    octets: bytes
    cut: int = 0


class Seen(NamedTuple):
    """A frame as a decoder has read it."""

    command: str
    headers: dict[str, str]
    body: bytes


class Outcome(NamedTuple):
    """The frames of a stream, and its end."""

    frames: list[Seen]
    end: str


Peer = Callable[[Sequence[Stream]], list[Outcome]]


def read_stompkit(stream: Stream) -> Outcome:
    """Read a stream with the decoder of ``stompkit.frames``, without any tolerance."""
    decoder = FrameDecoder(stream.version)
    frames = []
    end = COMPLETE
    try:
        for piece in (stream.octets[: stream.cut], stream.octets[stream.cut :]):
            got = decoder.feed(piece)
            while got:
                frames += got
                got = decoder.feed(b"")
        if decoder.pending_bytes:
            end = INCOMPLETE
    except RemoteProtocolError:
        end = REFUSED
    return Outcome([Seen(frame.command, frame.headers, frame.body) for frame in frames], end)


class _Transport(BaseTransport):  # type: ignore[misc]
    """The transport of stomp.py, which reads its bytes from a list instead of a socket."""

    def __init__(self, version: str) -> None:
        """Recognise line ends as the connection of that version does."""
        crlf = stomp.StompConnection12.is_eol
        is_eol = crlf if version == "1.2" else stomp.utils.is_eol_default
        super().__init__(auto_decode=False, is_eol_fc=is_eol)
        self.running = True
        self.blocking = False
        self.octets = b""
        self.frames: list[Seen] = []

    def receive(self) -> bytes:
        """Return all bytes once, then none."""
        octets, self.octets = self.octets, b""
        return octets

    def process_frame(self, frame: Any, octets: bytes) -> None:
        """Keep a frame."""
        if frame is not stomp.utils.HEARTBEAT_FRAME:
            self.frames.append(Seen(frame.cmd, frame.headers, frame.body))

    def read(self, octets: bytes) -> Outcome:
        """Read one stream."""
        self.octets = octets
        self.frames = []
        self._BaseTransport__recvbuf = b""
        while self.octets:
            self._BaseTransport__read_frames()
        left = self._BaseTransport__recvbuf.strip(b"\r\n")
        return Outcome(self.frames, INCOMPLETE if left else COMPLETE)


def stomp_py(streams: Sequence[Stream]) -> list[Outcome]:
    """Read streams with the transport of stomp.py."""
    transports = {version: _Transport(version) for version in ("1.0", "1.1", "1.2")}
    return [transports[stream.version].read(stream.octets) for stream in streams]


@contextmanager
def stompjs(command: Sequence[str]) -> Iterator[Peer]:
    """Run Node.js with the parser of stomp.js.

    ``command`` comes from ``Library.install``: the interpreter, and a program in the same folder as
    the package. A batch is written to the process as bytes; it replies with one line of JSON.
    """
    node, program = command
    script = Path(__file__).with_name("_stompjs.mjs")
    process = subprocess.Popen(
        [node, str(script), str(Path(program).parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    written, answered = process.stdin, process.stdout

    def read(streams: Sequence[Stream]) -> list[Outcome]:
        batch = b"".join(
            struct.pack("!I?", len(stream.octets), stream.version == "1.2") + stream.octets
            for stream in streams
        )
        written.write(struct.pack("!I", len(batch)) + batch)
        written.flush()
        line = answered.readline()
        if not line:
            raise RuntimeError(f"Node.js has ended with status {process.wait()}")
        return [
            Outcome(
                [Seen(name, dict(headers), body.encode("latin-1")) for name, headers, body in got],
                INCOMPLETE if more else COMPLETE,
            )
            for got, more in json.loads(line)
        ]

    with process:
        try:
            yield read
        finally:
            written.close()
