"""Limits and placement rules that a decoder enforces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stompkit.frames._commands import COMMANDS
from stompkit.frames._errors import RemoteProtocolError, refusal
from stompkit.frames._frame import Frame
from stompkit.frames._grammar import AFTER_LOGIN, BEFORE_LOGIN, Limits, Tolerance, Version
from stompkit.frames._head import receipt_in
from stompkit.frames._numbers import parse_number

__all__ = ["BODYLESS", "Checks", "check_nul", "first_unusual", "no_blank_line"]

#: Commands of frames that may not have a body.
BODYLESS: Final = frozenset(name for name, row in COMMANDS.items() if not row.body)

_NUL: Final = 0
_LF: Final = 10
#: Maximum number of digits in a length: more than any body in a machine's address space has.
_MOST_DIGITS: Final = 19
_TOO_LONG: Final = "header-too-large"
_LONGEST_COMMAND: Final = max(map(len, COMMANDS))


class Checks:
    """The rules and limits for input of one version, or of the handshake.

    Input that breaks them raises :class:`RemoteProtocolError`. The object keeps no state of the
    stream.
    """

    __slots__ = (
        "crlf",
        "limits",
        "max_body",
        "max_frame",
        "small_head",
        "small_line",
        "tolerance",
        "version",
    )

    def __init__(
        self, version: Version | None, limits: Limits | None, tolerance: Tolerance
    ) -> None:
        """Use the given limits, or the default ones of the handshake or the session."""
        self.version = version
        self.tolerance = tolerance
        if limits is None:
            limits = BEFORE_LOGIN if version is None else AFTER_LOGIN
        self.limits = limits
        self.max_body = limits.max_body_bytes
        self.max_frame = limits.max_frame_bytes
        #: True if lines may end in CR LF.
        self.crlf = version in (None, "1.2") or bool(tolerance & Tolerance.CRLF)
        #: A head up to this size cannot break a limit. A header line has at least two bytes, and no
        #: known command exceeds its limit.
        self.small_head = min(
            limits.max_header_line_bytes, 2 * limits.max_headers, limits.max_frame_bytes - 2
        )
        if limits.max_command_bytes < _LONGEST_COMMAND:
            self.small_head = 0
        #: A line, command or header, up to this size cannot break a limit.
        self.small_line = min(limits.max_command_bytes, limits.max_header_line_bytes)

    def check_head(self, head: bytes) -> None:
        """Refuse a complete head that breaks a limit."""
        broken = self.broken_limit(head.split(b"\n", self.limits.max_headers + 1), 0)
        if broken is not None:
            raise refusal(*broken, receipt=receipt_in(head))
        if len(head) + 2 > self.limits.max_frame_bytes:
            raise self.too_large(receipt_in(head))

    def broken_limit(
        self, lines: Sequence[bytes | bytearray], before: int
    ) -> tuple[str, str] | None:
        """Return the error text and code for lines of a head that follow *before* others.

        Return None if they break no limit.
        """
        limits = self.limits
        if before + len(lines) > limits.max_headers + 1:
            return f"too many headers: at most {limits.max_headers}", "too-many-headers"
        if not before and self._length(lines[0]) > limits.max_command_bytes:
            return f"command too long: at most {limits.max_command_bytes} octets", _TOO_LONG
        most = limits.max_header_line_bytes
        if any(self._length(line) > most for line in (lines if before else lines[1:])):
            return f"header line too long: at most {most} octets", _TOO_LONG
        return None

    def _length(self, line: bytes | bytearray) -> int:
        """Return the number of bytes in a line, without the carriage return of its end."""
        return len(line) - (self.crlf and line.endswith(b"\r"))

    def too_large(self, receipt: str | None) -> RemoteProtocolError:
        """Return the error that refuses a frame whose total or body size exceeds its limit.

        ``receipt`` is the frame's ``receipt`` header.
        """
        limits = self.limits
        when = " before login" if self.version is None else ""
        return refusal(
            f"frame too large: at most {limits.max_body_bytes} octets of body and"
            f" {limits.max_frame_bytes} octets in all{when}",
            "frame-too-large",
            receipt=receipt,
        )

    def declared(self, frame: Frame) -> int:
        """Return the length of the body in bytes, as given by content-length."""
        value = frame.get("content-length") or ""
        if not (value.isascii() and value.isdigit()):
            raise refusal(
                f"content-length {value[:40]!a} is not a number of octets",
                "bad-content-length",
                receipt=frame.get("receipt"),
            )
        length = parse_number(value, _MOST_DIGITS)
        if length is None or length > self.limits.max_body_bytes:
            raise self.too_large(frame.get("receipt"))
        return length

    def ignores_length(self, frame: Frame) -> bool:
        """Return True if content-length is ignored because this command cannot have a body.

        Some clients copy the header from a MESSAGE into their ACK. Waiting for that many bytes
        would consume the frames that follow. A frame that must not have a body is therefore refused
        at once.
        """
        if frame.command not in BODYLESS:
            return False
        if self.version == "1.0" or self.tolerance & Tolerance.BODY:
            return True
        if parse_number(frame.get("content-length") or "", _MOST_DIGITS):
            raise self._body_not_allowed(frame)
        return False  # zero, or invalid and refused elsewhere

    def dropped_body(self, frame: Frame) -> bytes:
        """Ignore, or refuse, the body of a frame that may not have one."""
        if self.version == "1.0" or self.tolerance & Tolerance.BODY:
            return b""  # 1.0, "SUBSCRIBE": the body is ignored
        raise self._body_not_allowed(frame)

    @staticmethod
    def _body_not_allowed(frame: Frame) -> RemoteProtocolError:
        declared = (frame.get("content-length") or "")[:40]
        says = f", and its content-length is {declared!a}" if declared else ""
        return refusal(
            f"the frame {frame.command} must not have a body{says}",
            "body-not-allowed",
            receipt=frame.get("receipt"),
        )

    def gap_missing(self, data: bytes, start: int, nul: int) -> tuple[int, int]:
        """Return the end of the head and the start of the body for a NUL before the blank line.

        The grammar would allow NUL within a header value. A receiver could then never distinguish a
        missing blank line from a long header; no broker in the field accepts it. Raises
        RemoteProtocolError unless tolerated.
        """
        if self.tolerance & Tolerance.NO_BLANK_LINE and data[nul - 1] == _LF:
            return nul - 1, nul
        head = data[start:nul]
        self.check_head(head)
        raise no_blank_line(head)


def no_blank_line(head: bytes) -> RemoteProtocolError:
    """Return the error for a frame whose head ends with NUL."""
    return refusal(
        "a NUL octet stands before the blank line that ends the headers",
        "bad-header",
        receipt=receipt_in(head),
    )


def check_nul(octet: int, receipt: str | None) -> None:
    """Refuse a counted body that is followed by anything but NUL."""
    if octet != _NUL:
        raise refusal(
            "the octet after the body that content-length declares is not NUL",
            "bad-content-length",
            receipt=receipt,
        )


def first_unusual(frames: list[Frame], start: int, usual: dict[str, tuple[str, ...]]) -> int:
    """Return the index of the first frame, from *start* on, that is not of a usual kind.

    Return the number of frames if all are. ``usual`` maps commands to the headers that each needs.
    """
    for index in range(start, len(frames)):
        frame = frames[index]
        names = usual.get(frame.command)
        if names is None:
            return index
        for name in names:
            if frame.get(name) is None:
                return index
    return len(frames)
