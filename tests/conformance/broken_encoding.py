"""Servers that break one rule about bytes: line ends, escapes, bodies and their types."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar

from tests.conformance.proxy import NEW, Fault, answers, in_versions, refuse, requests
from tests.conformance.raw import Raw

# Frames and line ends.


class WholeFramesOnly(Fault):
    """Closes if received bytes do not end at the end of a frame."""

    found_by = (*in_versions(NEW, "bnf/stream"), "1.0/bnf/frame-stream")

    def octets_from_client(self, octets: bytes) -> Iterable[bytes]:
        # A long frame arrives in several reads. Of a short frame in such a read, a part may be
        # missing, although several writes were read at once.
        if len(octets) < 4096 and not octets.endswith((b"\0", b"\n")):
            self.line.close()
        yield from super().octets_from_client(octets)


class NoCrLfBetween(Fault):
    """Closes after a CR LF between frames."""

    found_by = ("1.2/frame/eol-cr-optional", "1.2/heartbeat/any-data-counts")

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if not frame.command and b"\r" in frame.body:
            self.line.close()
        yield frame


# Escapes.

_ESCAPE = re.compile(rb"\\.")


class Misread(Fault):
    """Misreads an escape sequence."""

    versions: ClassVar[str] = NEW
    sequence: ClassVar[bytes]
    taken_for: ClassVar[bytes]

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if self.version in self.versions:
            frame.lines = [_ESCAPE.sub(self._read, line) for line in frame.lines]
        yield frame

    def _read(self, found: re.Match[bytes]) -> bytes:
        return self.taken_for if found[0] == self.sequence else found[0]


class NewlineMisread(Misread):
    r"""Reads \n as the letter n."""

    found_by = in_versions(
        NEW, "encoding/decode-newline", "encoding/escape-outside-connect", "receipt/arbitrary-value"
    )
    sequence, taken_for = rb"\n", b"n"


class CarriageReturnMisread(Misread):
    r"""Reads \r as the letter r."""

    found_by = ("1.2/encoding/decode-cr", "1.2/encoding/escape-outside-connect")
    versions = "1.2"
    sequence, taken_for = rb"\r", b"r"


class DecodedTwice(Fault):
    r"""Replaces \n before \\, so that a backslash before an n becomes a line feed."""

    found_by = in_versions(NEW, "encoding/decode-backslash")

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if self.version in NEW:
            frame.lines = [line.replace(rb"\\n", rb"\\\n") for line in frame.lines]
        yield frame


@answers(
    "MESSAGE",
    "1.2/encoding/decode-cr",
    "1.2/encoding/escape-outside-connect",
    "1.2/frame/eol-lf-required",
)
def carriage_returns_not_escaped(message: Raw) -> None:
    """Does not escape carriage returns."""
    message.lines = [line.replace(rb"\r", b"\r") for line in message.lines]


@requests("CONNECT STOMP", *in_versions(NEW, "encoding/no-escape-in-connect"))
def connect_unescaped(frame: Raw) -> None:
    r"""Unescapes CONNECT, and refuses \t there."""
    if any(rb"\t" in line for line in frame.lines):
        refuse(frame)


@answers("CONNECTED", *in_versions(NEW, "encoding/no-escape-in-connect"))
def connected_escaped(frame: Raw) -> None:
    r"""Escapes the colon in the name of a session."""
    frame.put("session", rf"{frame.get('session')}\c1")


@requests("", *in_versions(NEW, "bnf/empty-value"))
def empty_values_dropped(frame: Raw) -> None:
    """Drops headers without a value."""
    frame.lines = [line for line in frame.lines if not line.endswith(b":")]


# Bodies.


@answers("MESSAGE", "1.0/message/content-length-octets")
def counts_to_4095(message: Raw) -> None:
    """Sends a content-length of at most 4,095, even for larger bodies."""
    if message.get("content-length") is not None:
        message.put("content-length", str(min(len(message.body), 4_095)))


@requests("", "1.2/content-length/any-frame")
def length_where_none_is_needed(frame: Raw) -> None:
    """Refuses content-length on frames that have no body."""
    if frame.command != b"SEND" and frame.get("content-length") is not None:
        refuse(frame)


# Types.


@answers("ERROR", *in_versions(NEW, "content-type/mime"))
def type_in_words(error: Raw) -> None:
    """Sends ERROR with a content-type that is not a MIME type."""
    error.put("content-type", "a few words")


@answers("ERROR", *in_versions(NEW, "content-type/text-implies-utf8"))
def latin_1(error: Raw) -> None:
    """Sends ERROR with a text in Latin-1, without a charset."""
    error.put("content-type", "text/plain")
    error.put_body("d\u00e9sol\u00e9".encode("latin-1"))
