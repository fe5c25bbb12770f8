"""The event loop of the proxy; imported on demand, since asyncio imports slowly."""

from __future__ import annotations

import asyncio

from stompkit._common.clock import monotonic

__all__ = ["ProxyLoop"]


class ProxyLoop(asyncio.SelectorEventLoop):
    """A loop whose delays also end while a test has frozen the time."""

    def time(self) -> float:
        """Return the time in seconds that delays are measured in."""
        return monotonic()
