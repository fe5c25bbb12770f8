"""Watches frames, for ``stompkit tap``."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any, Final

from stompkit._commands.shared.admin import Admin
from stompkit._commands.shared.documents import frame_document, now
from stompkit._commands.shared.signals import ended_by_signals
from stompkit._common.spelling import amount
from stompkit._common.style import Style
from stompkit._common.text import json_line, shown
from stompkit.frames import Frame
from stompkit.testing import format_address
from stompkit.testing.proxy import Direction, FrameLog, Proxy

__all__ = ["FrameLines", "tap_admin", "tap_proxy"]

_ENDED_BY: Final = (signal.SIGINT, signal.SIGTERM)
_ARROWS: Final = {"received": "<", "sent": ">"}
_DIRECTIONS: Final = {arrow: name for name, arrow in _ARROWS.items()}
#: Maximum number of bytes of a body to keep, which limits --body.
_MOST_BODY: Final = 1024 * 1024
_COLOURS: Final = {
    "ERROR": "red",
    "NACK": "red",
    "MESSAGE": "green",
    "SEND": "yellow",
    "RECEIPT": "magenta",
}


class FrameLines:
    """Prints the selected frames, each in a line."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Print as the options of the command specify."""
        self._options = options
        self._style = Style(sys.stdout, options.color)
        self._commands = frozenset(options.commands or ())
        destination = options.destination
        self._prefix = destination[:-1] if destination and destination.endswith("*") else None

    def frame(
        self,
        direction: str,
        peer: str,
        command: str,
        headers: Sequence[tuple[str, str]],
        body: bytes | None,
        body_octets: int,
    ) -> None:
        """Print a frame; the body is ``None`` if only its size is known."""
        if not self._is_wanted(direction, command, dict(reversed(headers))):
            return
        time = now()
        if self._options.json:
            cut = None if body is None else body[: self._options.body]
            document = frame_document(time, direction, peer, command, headers, cut, body_octets)
            self._print(json_line(document))
            return
        style = self._style
        colour = _COLOURS.get(command, "blue")
        words = [
            style(time[11:23], "dim"),
            style(shown(peer), "dim"),
            style(f"{_ARROWS[direction]} {shown(command)}", "bold", colour),
        ]
        words += [f"{style(shown(name), 'cyan')}:{shown(value)}" for name, value in headers]
        if body_octets:
            words.append(self._body(body, body_octets))
        self._print("  ".join(words))

    def note(self, text: str, **facts: object) -> None:
        """Print an event other than a frame; ``facts`` are for --json."""
        if self._options.json:
            self._print(json.dumps({"note": text, **facts}))
        else:
            self._print(self._style(text, "dim"))

    def _is_wanted(self, direction: str, command: str, headers: dict[str, str]) -> bool:
        if self._options.direction not in (None, direction):
            return False
        if self._commands and command not in self._commands:
            return False
        if self._options.destination is None:
            return True
        destination = headers.get("destination")
        if self._prefix is not None:
            return destination is not None and destination.startswith(self._prefix)
        return bool(destination == self._options.destination)

    def _body(self, body: bytes | None, octets: int) -> str:
        if body is None:
            return self._style(f"({amount(octets, 'octet')})", "dim")
        cut = body[: self._options.body]
        more = self._style(f" ... ({amount(octets, 'octet')})", "dim") if len(cut) < octets else ""
        try:
            # A truncated character would make text look like binary data.
            text = body.decode("utf-8")
        except UnicodeDecodeError:
            return f"hex {cut.hex(' ')}{more}"
        return f"'{shown(text.encode()[: self._options.body].decode('utf-8', 'ignore'))}'{more}"

    def _print(self, line: str) -> None:
        print(line, flush=True)


class _Printed(FrameLog):
    """A log of frames that prints each of them, and keeps none."""

    def __init__(self, lines: FrameLines) -> None:
        """Print with ``lines`` after the proxy's address was printed."""
        super().__init__(max_events=1, max_body_bytes=_MOST_BODY)
        self._lines = lines
        self._unreadable: set[tuple[int, Direction]] = set()
        self.begun = threading.Event()
        #: True while the output has a reader.
        self.is_read = True

    def record(self, direction: Direction, connection: int, frame: Frame) -> None:
        """Record a frame and print it."""
        super().record(direction, connection, frame)
        for seen in self.all:
            self._call(
                lambda seen=seen: self._lines.frame(
                    direction,
                    f"#{connection}",
                    seen.command,
                    [*seen.frame.items()],
                    seen.body,
                    len(seen.body) + seen.cut_bytes,
                )
            )

    def opened(self, connection: int) -> None:
        """Report a new client connection."""
        super().opened(connection)
        self._note(f"#{connection} opened", connection)

    def closed(self, connection: int, reason: str = "", *, by: Any = None) -> None:
        """Report the end of a connection."""
        super().closed(connection, reason, by=by)
        by_whom = f" by the {by}" if by is not None else ""
        self._note(f"#{connection} closed{by_whom}" + f": {reason}" * bool(reason), connection)

    def undecodable(self, direction: Direction, connection: int, octets: bytes) -> None:
        """Report once that the following bytes are not STOMP."""
        if (connection, direction) not in self._unreadable:
            self._unreadable.add((connection, direction))
            arrow = _ARROWS[direction]
            self._note(f"#{connection} {arrow} no STOMP from here on: it passes unread", connection)

    def _note(self, text: str, connection: int) -> None:
        self._call(lambda: self._lines.note(text, peer=f"#{connection}"))

    def _call(self, function: Any) -> None:
        self.begun.wait()
        if not self.is_read:
            return
        try:
            function()
        except BrokenPipeError:
            self.is_read = False
            # Sent to the process, not to this thread: another thread waits for it.
            os.kill(os.getpid(), signal.SIGTERM)


def tap_proxy(to: tuple[str, int], listen: tuple[str, int], lines: FrameLines) -> int:
    """Run a proxy until a signal; raises OSError, including BrokenPipeError."""
    log = _Printed(lines)
    host, port = listen
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDED_BY)
    try:
        with Proxy(*to, host=host, port=port, frames=log) as proxy:
            try:
                lines.note(f"{proxy.url} to {format_address(*to)}", url=proxy.url)
                log.begun.set()
                signal.sigwait(_ENDED_BY)
            finally:
                log.begun.set()
    finally:
        while signal.sigpending() & set(_ENDED_BY):  # several may be pending
            signal.sigwait(_ENDED_BY)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if not log.is_read:
        raise BrokenPipeError
    return 0


class _Ended(BaseException):
    """A signal has ended the command."""


def tap_admin(admin: Admin, lines: FrameLines) -> int:
    """Print a stompkit broker's frames until a signal; raises AdminError."""

    def end() -> None:
        raise _Ended

    try:
        with ended_by_signals(end):
            for name, event in admin.events("/api/v1/events", frames=1):
                if name == "frame":
                    _print_event(lines, event)
    except _Ended:
        return 0
    return 0


def _print_event(lines: FrameLines, event: dict[str, Any]) -> None:
    if "dropped" in event and "command" not in event:
        what = amount(event["dropped"], "frame")
        lines.note(f"{what} more than there is time for", dropped=event["dropped"])
        return
    headers = event["headers"]
    pairs = list(headers.items()) if isinstance(headers, dict) else [(n, v) for n, v in headers]
    direction = _DIRECTIONS.get(event["direction"], event["direction"])
    lines.frame(direction, str(event["peer"]), event["command"], pairs, None, event["body_octets"])
