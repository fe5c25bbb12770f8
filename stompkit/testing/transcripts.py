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

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stompkit._common.moved import renamed
from stompkit.testing._frames.events import Closed, Event, Octets, Opened, SeenFrame
from stompkit.testing._frames.log import FrameLog
from stompkit.testing._transcripts.format import TranscriptError
from stompkit.testing._transcripts.replay_client import play_client
from stompkit.testing._transcripts.replay_server import ReplayServer
from stompkit.testing._transcripts.replaying import ReplayFailedError
from stompkit.testing._transcripts.transcript import Transcript

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
    "assert_golden",
    "play_client",
]

_UPDATE_VARIABLE: Final = "STOMPKIT_UPDATE_GOLDEN"


class TranscriptDiffersError(AssertionError):
    """The recorded events differ from the golden file; the message contains the difference."""


def assert_golden(
    seen: Transcript | FrameLog,
    path: str | Path,
    *,
    update: bool = False,
    replacements: Mapping[str, str] | None = None,
) -> None:
    """Compare recorded events with a golden file.

    The function first waits for a log to :meth:`~FrameLog.settle`. Both sides are normalised, with
    ``replacements`` in the recorded events, and put into the order of connections: see
    ``Transcript.normalised`` and ``Transcript.by_connection``. With ``update``, or with
    ``STOMPKIT_UPDATE_GOLDEN=1`` in the environment, the file is written instead.

    Raises TranscriptDiffersError with the difference of the texts, or if the file does not exist.
    Raises TranscriptError for an invalid file.
    """
    path = Path(path)
    if isinstance(seen, FrameLog):
        seen.settle()
        seen = seen.transcript()
    actual = seen.by_connection().normalised(replacements)
    if update or os.environ.get(_UPDATE_VARIABLE, "") not in ("", "0"):
        path.parent.mkdir(parents=True, exist_ok=True)
        actual.save(path)
        return
    remedy = (
        "to write it anew run pytest with --mq-update-golden, or anything with "
        f"{_UPDATE_VARIABLE}=1 in the environment"
    )
    if not path.exists():
        raise TranscriptDiffersError(f"there is no golden file {path}; {remedy}")
    expected = Transcript.load(path).by_connection().normalised()
    if str(actual) != str(expected):
        difference = difflib.unified_diff(
            str(expected).split("\n"), str(actual).split("\n"), str(path), "seen", lineterm=""
        )
        lines = [f"what was seen is not what {path} says; {remedy}", *difference]
        raise TranscriptDiffersError("\n".join(lines))


renamed(
    __name__,
    ReplayFailed="ReplayFailedError",
    TranscriptDiffers="TranscriptDiffersError",
)
