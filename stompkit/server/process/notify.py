"""What systemd is told: that the broker listens, waits, reads its file again, ends, is not stuck.

The protocol is that of ``sd_notify(3)``: lines of ``NAME=VALUE`` in one datagram to the Unix
socket that ``NOTIFY_SOCKET`` names. Whoever else starts processes that way is served, too.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

__all__ = ["Notifier"]

_log: Final = Logger()

#: Octets of the line that ``systemctl status`` shows.
_MOST_STATUS: Final = 1_000


class Notifier:
    """Tells whoever has started the process; where nobody wants to know, it does nothing."""

    def __init__(self, clock: IReactorTime, environment: Mapping[str, str] = os.environ) -> None:
        """Look into the environment; ``clock`` is the reactor, whose turning the watchdog is of."""
        self._clock = clock
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self._pause_s = None if self._address is None else _pause_s(environment)
        self._beat: IDelayedCall | None = None

    def status(self, text: str) -> None:
        """Say in a line what the broker does now."""
        self._send(f"STATUS={_line(text)}")

    def ready(self, text: str) -> None:
        """Say that it works, for the first time or again; from now on the watchdog is fed."""
        self._send("READY=1", f"STATUS={_line(text)}")
        if self._pause_s is not None and self._beat is None:
            self._feed()

    def reloading(self) -> None:
        """Say that it reads its settings again; :meth:`ready` follows."""
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000
        self._send("RELOADING=1", f"MONOTONIC_USEC={now}")

    def stopping(self) -> None:
        """Say that it ends, in good order."""
        # It goes on to be fed: to say goodbye to many clients may take longer than the watchdog has
        # patience.
        self._send("STOPPING=1", "STATUS=saying goodbye to the clients")

    def close(self) -> None:
        """Feed the watchdog no more."""
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None

    def _feed(self) -> None:
        assert self._pause_s is not None  # or nobody would call this
        self._beat = self._clock.callLater(self._pause_s, self._feed)
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                # A broker must not wait for who does not read what it is told.
                sender.setblocking(False)
                sender.connect(self._address)
                sender.send("\n".join(lines).encode())
        except OSError as error:
            _log.warn(
                "can't tell {socket}, which NOTIFY_SOCKET names, {what}: {error}",
                socket=os.fsdecode(self._address),
                what=lines[0],
                error=error.strerror,
            )


def _address(name: str) -> bytes | None:
    """What to connect to: a path, or with ``@`` in front a name that is in no file system."""
    if name.startswith("@"):
        return b"\0" + os.fsencode(name[1:])
    if name.startswith("/"):
        return os.fsencode(name)
    if name:
        _log.warn(
            "nobody is told that the broker is ready: NOTIFY_SOCKET is {name}, and has to begin"
            " with / or @",
            name=name,
        )
    return None


def _pause_s(environment: Mapping[str, str]) -> float | None:
    """Seconds between two signs of life, where they are wanted: half of the time that there is."""
    # A number in it that is not ours means another process, which has started this one.
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    microseconds = environment.get("WATCHDOG_USEC", "")
    is_number = microseconds.isascii() and microseconds.isdigit()
    return int(microseconds) / 2_000_000 if is_number and int(microseconds) > 0 else None


def _line(text: str) -> str:
    """What can be the value of a line."""
    return " ".join(text.split()).encode()[:_MOST_STATUS].decode(errors="ignore")
