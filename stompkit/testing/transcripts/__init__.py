r"""Transcripts of the traffic between clients and a broker: files, comparison and replay.

A transcript comes from the ``frames`` of a broker or a proxy (``frames.transcript()``), or from a
file. ``play_client`` replays the clients of a transcript against a broker, ``ReplayServer`` replays
its broker to clients, and ``assert_golden`` compares recorded events with a file.

The format
----------

A ``.stomp`` file is UTF-8 text that people can read, compare and edit. It is lossless: all headers
and bytes are restored exactly::

    STOMP transcript 1

    === connection 1 opened at 0.000000 s

    === connection 1 received at 0.000310 s
    CONNECT
    accept-version:1.2
    host:localhost

    ^@

    === connection 1 sent at 0.000562 s
    CONNECTED
    version:1.2

    ^@

    === connection 1 closed by the client at 2.104388 s: it ended

The first line names the format and its version; 1 is the only version. Blank lines and lines that
begin with ``#`` are allowed between events; they are ignored and not kept. If earlier events were
dropped, ``=== N earlier events forgotten`` comes before the first event.

Each event begins with a line ``=== connection N WHAT``. Connections are numbered from 1 in the
order in which clients opened them. ``at S s`` is the time in seconds since the log began, to the
microsecond; either all events have it or none. WHAT is one of these:

``opened``
    A client connected.
``received`` or ``sent``
    A frame, seen from the broker: it ``received`` it from the client or ``sent`` it. The frame
    follows as the specifications of STOMP print it: the command, headers, a blank line, the body,
    and ``^@`` for the NUL, which ends the line. With ``, N octets cut`` the body was too long to be
    kept, and N bytes are missing at its end.
``received octets`` or ``sent octets``
    Data that is not a frame: bytes up to ``^@``, which is not part of them.
``closed``, ``closed by the client`` or ``closed by the broker``
    The connection ended. A colon and a reason may follow.

Headers are written without the escapes of STOMP, which depend on its version, and content-length
is a header like any other. Headers, reasons and raw bytes have these escapes: ``\\`` for a
backslash, ``\n``, ``\r`` and ``\t`` for line feed, carriage return and tab, and ``\c`` for a colon
in the name of a header. ``\xHH`` is any other byte in hexadecimal: bytes that are not UTF-8, bytes
of unprintable characters, a blank at the end of a line, and the caret of a literal ``^@``. A line
feed in a body is a line end. Line ends may be CR LF, since some tools convert them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompkit._common.lazy import imported
from stompkit._common.moved import renamed
from stompkit.testing.frames.events import Closed, Event, Octets, Opened, SeenFrame

if TYPE_CHECKING:
    from stompkit.testing.transcripts.format import TranscriptError
    from stompkit.testing.transcripts.golden import TranscriptDiffersError, assert_golden
    from stompkit.testing.transcripts.replay_client import play_client
    from stompkit.testing.transcripts.replay_server import ReplayServer
    from stompkit.testing.transcripts.replaying import ReplayFailedError
    from stompkit.testing.transcripts.transcript import Transcript
    from stompkit.testing.transcripts.transcript_file import TranscriptFile

__all__ = [
    "Closed",
    "Event",
    "Octets",
    "Opened",
    "ReplayFailedError",
    "ReplayServer",
    "SeenFrame",
    "Transcript",
    "TranscriptDiffersError",
    "TranscriptError",
    "TranscriptFile",
    "assert_golden",
    "play_client",
]

#: Module of this package that defines each name; frames use transcripts, and these frames.
_MODULES = {
    "ReplayFailedError": "replaying",
    "ReplayServer": "replay_server",
    "Transcript": "transcript",
    "TranscriptDiffersError": "golden",
    "TranscriptError": "format",
    "TranscriptFile": "transcript_file",
    "assert_golden": "golden",
    "play_client": "replay_client",
}


def __getattr__(name: str) -> Any:
    return imported(__name__, _MODULES, name)


renamed(
    __name__,
    ReplayFailed="ReplayFailedError",
    TranscriptDiffers="TranscriptDiffersError",
)
