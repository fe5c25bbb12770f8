"""A connection to a broker for programs that block, as drivers of databases make them.

:class:`Link` is :class:`stompkit.client.Client` on a reactor of its own, in a thread of its own:
it fails over, connects again, and sends again what no broker has confirmed. Nothing else in the
process has to know Twisted, and a program that runs a reactor can use it, too.
"""

from __future__ import annotations

from stompkit.replication.link._inbox import Delivery, Inbox
from stompkit.replication.link._link import Link
from stompkit.replication.link._thread import LinkClosed
from stompkit.replication.link._url import BrokerUrl

__all__ = ["BrokerUrl", "Delivery", "Inbox", "Link", "LinkClosed"]
