"""The reactor of a client that is given none."""

from __future__ import annotations

import asyncio
import sys
from typing import cast

from twisted.internet.interfaces import IReactorTime

__all__ = ["running_reactor"]

_INSTALLED = "twisted.internet.reactor"


def running_reactor() -> IReactorTime:
    """Return Twisted's reactor, which runs, or will run.

    Raises ``RuntimeError`` in an asyncio program without a running reactor: a client would wait for
    ever, and ``await`` on one of its Deferreds would raise "Task got bad yield".
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        reactor = sys.modules.get(_INSTALLED)
        # A reactor on this very loop needs no start of its own.
        is_on_loop = getattr(reactor, "_asyncioEventloop", None) is loop
        if not (getattr(reactor, "running", False) or is_on_loop):
            raise RuntimeError(
                "stompkit.client.Client needs Twisted's reactor, which does not run in this asyncio"
                " program: use stompkit.client.aio.Client, which has the same methods"
            )
    from twisted.internet import reactor as installed

    return cast("IReactorTime", installed)
