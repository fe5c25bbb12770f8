"""The words of the three specifications: versions, tolerances and limits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto
from typing import Final, Literal, get_args

__all__ = [
    "AFTER_LOGIN",
    "BEFORE_LOGIN",
    "VERSIONS",
    "Limits",
    "Tolerance",
    "Version",
]

Version = Literal["1.0", "1.1", "1.2"]

#: Every version that this package speaks, oldest first.
VERSIONS: Final[tuple[Version, ...]] = get_args(Version)

#: Commands whose headers are never escaped, in any version (1.1 and 1.2, "Value Encoding"), so
#: that a 1.0 peer can read them.  STOMP is CONNECT by another name.
UNESCAPED_COMMANDS: Final = frozenset({"CONNECT", "STOMP", "CONNECTED"})


class Tolerance(Flag):
    """Departures from the specifications that a decoder or an encoder accepts.

    ``NONE`` is the strict mode and the default. ``LENIENT`` accepts every departure that real peers
    are known to send and that has a single interpretation.
    """

    NONE = 0
    #: A raw colon in a header value on 1.1 and 1.2, which should be escaped.
    RAW_COLON = auto()
    #: Lines that end in CR LF on 1.0 and 1.1.
    CRLF = auto()
    #: A backslash that starts no known escape sequence stands for itself.
    UNKNOWN_ESCAPE = auto()
    #: Header bytes that are not UTF-8, kept as lone surrogates (``surrogateescape``).
    INVALID_UTF8 = auto()
    #: NUL bytes between frames.
    EXTRA_NUL = auto()
    #: A body on a frame that may not have one; it ends at the first NUL, whatever
    #: ``content-length`` says, and is dropped.
    BODY = auto()
    #: Header lines followed by NUL, as in the DISCONNECT example of the 1.2 specification.
    NO_BLANK_LINE = auto()
    #: Blanks around names and values on 1.0, as in the examples of its specification.
    PADDING = auto()
    LENIENT = (
        RAW_COLON | CRLF | UNKNOWN_ESCAPE | INVALID_UTF8
        | EXTRA_NUL | BODY | NO_BLANK_LINE | PADDING
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limits:
    """Maximum sizes of the input of a decoder; larger frames are refused."""

    #: Length of the command, in bytes. The longest in use is UNSUBSCRIBE, 11; RabbitMQ allows
    #: 32, ActiveMQ 1,024.
    max_command_bytes: int = 64
    #: Length of one header line, in bytes, without its line end. ActiveMQ allows 10 KiB,
    #: RabbitMQ 100 KiB.
    max_header_line_bytes: int = 65_536
    #: Header entries in one frame. RabbitMQ allows 100, ActiveMQ 1,000.
    max_headers: int = 1_000
    #: Length of the body, in bytes. ActiveMQ allows 100 MiB, RabbitMQ 4 MiB for the frame.
    max_body_bytes: int = 64 * 1024 * 1024
    #: Length of a whole frame, in bytes: the maximum that the decoder buffers for one connection.
    max_frame_bytes: int = 66 * 1024 * 1024


#: Limits before login: CONNECT needs little.
BEFORE_LOGIN: Final = Limits(
    max_header_line_bytes=8_192, max_headers=100, max_body_bytes=1_024, max_frame_bytes=65_536
)
AFTER_LOGIN: Final = Limits()
