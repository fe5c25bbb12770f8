"""Servers that break one rule about the boundaries and the encoding of frames."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.conformance.proxy import ALL, NEW, Fault, answers, in_versions, refuse, requests
from tests.conformance.raw import Raw

_HEADER_LINE = re.compile(rb"[\w-]+:[\w-]+")

# Reading.


class OneFrameEachRead(Fault):
    """Loses BEGIN after BEGIN and SEND after SUBSCRIBE, if both arrive in one read."""

    found_by = (
        "1.0/frame/null-ends-frame",
        "1.0/bnf/frame-stream",
        *in_versions(NEW, "frame/null-terminator", "bnf/stream"),
    )
    before = b""

    def octets_from_client(self, octets: bytes) -> Iterable[bytes]:
        self.before = b""
        yield from super().octets_from_client(octets)

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if (self.before, frame.command) not in ((b"BEGIN", b"BEGIN"), (b"SUBSCRIBE", b"SEND")):
            yield frame
        self.before = frame.command


@requests(
    "DISCONNECT",
    *in_versions(NEW, "frame/zero-headers-allowed"),
    "1.0/bnf/header-count-any",
    "1.0/disconnect/graceful",
)
def needs_headers(frame: Raw) -> None:
    """Refuses frames without headers."""
    if not frame.lines:
        refuse(frame)


@requests("SEND", *in_versions(NEW, "frame/blank-line"), "1.0/frame/blank-line-ends-headers")
def headers_in_body(send: Raw) -> None:
    """Reads the first line of a body as a header, if it looks like one."""
    line, end, rest = send.body.partition(b"\n")
    if end and _HEADER_LINE.fullmatch(line):
        send.lines.append(line)
        send.put_body(rest)


@requests(
    "SEND",
    "1.0/send/null-terminates-without-content-length",
    "1.0/message/content-length-recommended",
    *in_versions(NEW, "message/content-length-should"),
)
def nul_is_body(send: Raw) -> None:
    """Includes the final NUL in a body without content-length."""
    if send.body and send.get("content-length") is None:
        send.body += b"\0"
        send.put("content-length", str(len(send.body)))


# Writing.


@answers("MESSAGE", "1.0/bnf/body-optional", "1.0/message/content-length-octets")
def no_empty_bodies(message: Raw) -> None:
    """Replaces an empty body by a line end."""
    if not message.body:
        message.put_body(b"\n")


@answers(
    "MESSAGE",
    "1.0/message/null-ends-without-content-length",
    "1.0/message/content-length-octets",
    "1.0/send/content-length-read-through-nulls",
    *in_versions(NEW, "content-length/must-with-nulls", "content-length/must-read"),
    *in_versions(ALL, "send/body-is-message"),
    *in_versions(NEW, "message/content-type-should", "encoding/utf8-headers"),
)
def nuls_not_counted(message: Raw) -> None:
    """Sends no content-length for a body with NUL."""
    if b"\0" in message.body:
        message.drop("content-length")


def _in_one_write(frame: Raw, octets: bytes) -> Raw:
    """Return a frame with further bytes, so that a client receives both together."""
    return Raw(b"", body=frame.octets() + octets)


class SecondNul(Fault):
    """Ends MESSAGE and ERROR with two NULs."""

    found_by = (
        *in_versions(ALL, "server-frames/closed-set"),
        "1.0/error/content-length-octets",
    )

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        if frame.command in (b"MESSAGE", b"ERROR"):
            yield _in_one_write(frame, b"\0")
        else:
            yield frame


class BadAfterCommit(Fault):
    """Base of faults that send an unreadable ERROR for a COMMIT without a receipt."""

    last = b""

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        self.last = frame.command or self.last
        yield frame

    def is_it(self, frame: Raw) -> bool:
        """Return True if a frame is this ERROR."""
        is_error = frame.command == b"ERROR" and frame.get("receipt-id") is None
        return is_error and self.last == b"COMMIT"


#: Cases that send such a COMMIT, and read the reply.
_REFUSED_COMMIT = (
    *in_versions(ALL, "server-frames/closed-set", "bnf/header-name-chars"),
    "1.0/bnf/header-value-non-empty",
    "1.0/bnf/ascii-headers",
    "1.2/error/must-close",
    "1.2/frame/eol-lf-required",
)


class Goodbye(BadAfterCommit):
    """Sends a frame with an invented command after an ERROR about COMMIT."""

    found_by = _REFUSED_COMMIT

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        yield _in_one_write(frame, b"GOODBYE\n\n\0") if self.is_it(frame) else frame


class NamelessHeader(BadAfterCommit):
    """Sends a header without a name in an ERROR about COMMIT."""

    found_by = _REFUSED_COMMIT

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        if self.is_it(frame):
            frame.lines.append(b":unknown")
        yield frame


# Rules of 1.0 only.


class OldEscapes(Fault):
    """Escapes headers on 1.0 like later versions."""

    found_by = ("1.0/bnf/no-escaping", "1.0/bnf/header-value-may-hold-colon")

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        if self.version == "1.0" and frame.command == b"MESSAGE":
            frame.lines = [_escaped(line) for line in frame.lines]
        yield frame


def _escaped(line: bytes) -> bytes:
    name, colon, value = line.partition(b":")
    return name + colon + value.replace(b"\\", rb"\\").replace(b":", rb"\c")


class EmptyValues(Fault):
    """Sends a header without a value on 1.0."""

    found_by = ("1.0/bnf/header-value-non-empty",)

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        if self.version == "1.0" and frame.command == b"MESSAGE":
            frame.lines.append(b"priority:")
        yield frame


class OldAccents(Fault):
    """Sends a header in UTF-8 on 1.0, which has ASCII only."""

    found_by = ("1.0/bnf/ascii-headers",)

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        if self.version == "1.0" and frame.command == b"MESSAGE":
            frame.put("server-in", "K\u00f6ln")
        yield frame
