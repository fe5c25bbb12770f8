"""Notify systemd of readiness, status, reload and stop, and feed its watchdog.

The protocol is that of ``sd_notify(3)``: lines of ``NAME=VALUE`` in one datagram to the Unix socket
in ``NOTIFY_SOCKET``. It also works with other service managers that use it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from stompkit._common.files import reason_of
from stompkit.server.log import process_events

__all__ = ["Notifier"]


#: Maximum length in bytes of the status line of ``systemctl status``.
_MOST_STATUS: Final = 1_000


class Notifier:
    """Notifies the service manager; does nothing without one."""

    def __init__(self, clock: IReactorTime, environment: Mapping[str, str] = os.environ) -> None:
        """Read the environment; ``clock`` is the reactor that the watchdog monitors."""
        self._clock = clock
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self._pause_s = None if self._address is None else _pause_s(environment)
        self._beat: IDelayedCall | None = None

    def status(self, text: str) -> None:
        """Report the current status in one line."""
        self._send(f"STATUS={_line(text)}")

    def ready(self, text: str) -> None:
        """Report readiness, initially or after a reload; from now on the watchdog is fed."""
        self._send("READY=1", f"STATUS={_line(text)}")
        self._begin_to_feed()

    def standing_by(self, text: str) -> None:
        """Report the status of a standby, which is not ready; from now on the watchdog is fed.

        Service managers that do not wait for the readiness watch a standby, too.
        """
        self.status(text)
        self._begin_to_feed()

    def reloading(self) -> None:
        """Report that settings are being reloaded; :meth:`ready` follows."""
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000
        self._send("RELOADING=1", f"MONOTONIC_USEC={now}")

    def stopping(self) -> None:
        """Report a regular stop."""
        # The watchdog is still fed, since disconnecting many clients may take longer than its
        # timeout.
        self._send("STOPPING=1", "STATUS=saying goodbye to the clients")

    def close(self) -> None:
        """Stop feeding the watchdog."""
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None

    def _begin_to_feed(self) -> None:
        if self._pause_s is not None and self._beat is None:
            self._feed()

    def _feed(self) -> None:
        assert self._pause_s is not None  # only called with a watchdog
        self._beat = self._clock.callLater(self._pause_s, self._feed)
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                # The broker must not block on a service manager that does not read.
                sender.setblocking(False)
                sender.connect(self._address)
                sender.send("\n".join(lines).encode())
        except OSError as error:
            process_events.notify_failed(
                path=os.fsdecode(self._address),
                state=lines[0],
                error=reason_of(error),
            )


def _address(name: str) -> bytes | None:
    """Return the socket address: a path, or an abstract name for a leading ``@``."""
    if name.startswith("@"):
        return b"\0" + os.fsencode(name[1:])
    if name.startswith("/"):
        return os.fsencode(name)
    if name:
        process_events.notify_socket_invalid(path=name)
    return None


def _pause_s(environment: Mapping[str, str]) -> float | None:
    """Return the watchdog interval in seconds, half of its timeout, or None without a watchdog."""
    # A different process id means that the watchdog is for the parent process.
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    microseconds = environment.get("WATCHDOG_USEC", "")
    is_number = microseconds.isascii() and microseconds.isdigit()
    return int(microseconds) / 2_000_000 if is_number and int(microseconds) > 0 else None


def _line(text: str) -> str:
    """Return a text as a valid value of a line."""
    return " ".join(text.split()).encode()[:_MOST_STATUS].decode(errors="ignore")
