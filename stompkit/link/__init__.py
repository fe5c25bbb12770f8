"""A connection to a broker for programs that block, as drivers of databases make them.

:class:`Link` is :class:`stompkit.client.Client` on a reactor of its own, in a thread of its own:
it fails over, connects again, and sends again what no broker has confirmed. Nothing else in the
process has to know Twisted, and a program that runs a reactor can use it, too.
"""

from __future__ import annotations

from stompkit.link._durable import durable_subscription
from stompkit.link._inbox import Delivery, Inbox
from stompkit.link._link import Link
from stompkit.link._thread import LinkClosed
from stompkit.link._url import BrokerUrl

__all__ = ["BrokerUrl", "Delivery", "Inbox", "Link", "LinkClosed", "durable_subscription"]
