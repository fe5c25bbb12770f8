"""Destinations without room: refusals that end by themselves, and how a route reports them."""

from __future__ import annotations

from typing import Final

from twisted.logger import Logger

from stompkit.bridge._status import RouteStatus
from stompkit.client import BrokerError

__all__ = ["FullDestination", "is_for_now", "text_of_error"]

_log: Final = Logger()
#: Codes of a stompkit broker that say nothing about the message: later it accepts the same one.
_FOR_NOW: Final = frozenset({"queue-full", "store-failed", "store-full", "too-many-destinations"})


def is_for_now(error: BrokerError) -> bool:
    """Return True if the broker may accept the refused message later."""
    return error.headers.get("stompkit-code") in _FOR_NOW


def text_of_error(error: BrokerError) -> str:
    """Return the message of an ERROR, and the first line of its body."""
    body = error.body[:300].decode("utf-8", "replace").strip().partition("\n")[0]
    return f"{error.message}: {body}" if body and body != error.message else error.message


class FullDestination:
    """Shows in the status of a route that its destination has no room, and since when it has."""

    def __init__(self, status: RouteStatus) -> None:
        """Start with room."""
        self._status = status
        self._is_full = self._is_running = False
        self._logged = ""

    def put_off(self, error: BrokerError, delay_s: float) -> None:
        """Report that a message is sent again after a delay."""
        status = self._status
        if not self._is_full:
            self._is_full, self._is_running = True, status.state == "running"
        problem = f"{status.to} takes no message for now: {text_of_error(error)}"
        status.state, status.problem = "waiting", problem
        # The same reason is logged once.
        (_log.warn if problem != self._logged else _log.debug)(
            "route {name}: {reason}; trying again in {delay:.1f} s",
            name=status.name,
            reason=problem,
            delay=delay_s,
        )
        self._logged = problem

    def confirmed(self) -> None:
        """Report that the destination accepts messages again."""
        if self._is_full:
            self._is_full = False
            self._status.problem = ""
            self._status.state = "running" if self._is_running else "starting"

    def running(self) -> None:
        """Report that the route runs, at the latest when there is room."""
        self._is_running = True
        if not self._is_full:
            self._status.state = "running"
            self._status.problem = ""
