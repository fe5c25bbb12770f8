"""Servers that break one rule about headers or heart-beats; and some unusual ones that do not."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

from collections.abc import Iterable

from tests.conformance.proxy import NEW, Fault, answers, in_versions, requests
from tests.conformance.raw import Raw

# Encoding, repeated headers and heart-beats.


@answers(
    "",
    *in_versions(
        NEW, "encoding/decode-colon", "encoding/escape-outside-connect", "bnf/header-value-chars"
    ),
)
def colons_not_escaped(frame: Raw) -> None:
    """Does not escape colons."""
    frame.lines = [line.replace(b"\\c", b":") for line in frame.lines]


@requests("", *in_versions(NEW, "encoding/never-trim-pad"))
def trims(frame: Raw) -> None:
    """Strips spaces at the end of a header."""
    frame.lines = [line.rstrip(b" ") for line in frame.lines]


@requests("", *in_versions(NEW, "encoding/undefined-escape-fatal"))
def any_escape(frame: Raw) -> None:
    r"""Accepts undefined escapes, such as \t."""
    if frame.command not in (b"CONNECT", b"STOMP"):
        frame.lines = [line.replace(rb"\t", b" ").replace(rb"\r", b" ") for line in frame.lines]


@requests("", *in_versions(NEW, "utf8/must-support", "encoding/utf8-headers"))
def ascii_only(frame: Raw) -> None:
    """Replaces characters in headers that are not ASCII."""
    frame.lines = [
        line.decode("ascii", "replace").replace("\ufffd", "?").encode() for line in frame.lines
    ]


@requests("", "1.2/repeated/first-wins-server")
def last_header_wins(frame: Raw) -> None:
    """Uses the last of repeated headers."""
    frame.lines.reverse()


class NoBeats(Fault):
    """Offers heart-beats but sends none."""

    found_by = in_versions(NEW, "heartbeat/sender-in-time")

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        if frame.command:
            yield frame


# Unusual, but permitted.


class CrLf(Fault):
    """Ends its lines in CR LF on 1.2."""

    found_by = ()
    version = ""

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        self.version = frame.get("version") or self.version
        if self.version == "1.2":
            frame.eol = b"\r\n"
        yield frame


class LineEndsBetween(Fault):
    """Sends line ends after every frame."""

    found_by = ()

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        yield frame
        yield Raw(b"", body=b"\n\n")


@answers("")
def talkative(frame: Raw) -> None:
    """Adds private headers to every frame."""
    frame.lines += [b"served-by:me", b"weather:fine"]


class InPieces(Fault):
    """Sends every byte in a separate write."""

    found_by = ()

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        for octet in frame.octets():
            yield Raw(b"", body=bytes([octet]))
