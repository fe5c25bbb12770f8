"""Stops of reactors: several signals, errors and threads can ask for the same stop."""

from __future__ import annotations

from contextlib import suppress
from typing import cast

from twisted.internet.error import ReactorNotRunning
from twisted.internet.interfaces import IReactorCore

__all__ = ["stop_reactor"]


def stop_reactor(reactor: object) -> None:
    """Stop a reactor; do nothing if it is stopping already, or does not run."""
    with suppress(ReactorNotRunning):
        cast("IReactorCore", reactor).stop()
