"""A connection to a broker for blocking programs, such as database drivers.

:class:`Link` runs :class:`stompkit.client.Client` on a separate reactor in a separate thread. It
fails over, reconnects, and resends messages that no broker has confirmed. The rest of the process
needs no knowledge of Twisted. A program that already runs a reactor can also use it.
"""

from __future__ import annotations

from stompkit._common.moved import renamed
from stompkit.client.blocking._durable import durable_subscription
from stompkit.client.blocking._inbox import Delivery, Inbox
from stompkit.client.blocking._link import Link
from stompkit.client.blocking._thread import LinkClosedError
from stompkit.client.blocking._url import BrokerUrl

__all__ = ["BrokerUrl", "Delivery", "Inbox", "Link", "LinkClosedError", "durable_subscription"]

renamed(
    __name__,
    LinkClosed="LinkClosedError",
)
