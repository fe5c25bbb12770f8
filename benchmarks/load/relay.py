"""The relay of relay.c on Twisted: the minimum of a broker in Python, without parsing.

A client begins with a line, ``produce N`` or ``consume N``, and gets a line ``ok``. From then on
all that the producers of a group send goes to each of its consumers. While one of them does not
read, nothing is read from the producers.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import react
from twisted.python.failure import Failure
from zope.interface import implementer

__all__ = ["main"]


class _Group:
    """Clients that send to each other."""

    def __init__(self) -> None:
        self.producers: list[_Line] = []
        self.consumers: list[_Line] = []
        self.full: set[_Line] = set()
        """Consumers that do not read fast enough."""

    def forward(self, data: bytes) -> None:
        for line in self.consumers:
            line.tcp.write(data)

    def mark(self, line: _Line, *, full: bool) -> None:
        """Record that a consumer is full, or has room again."""
        (self.full.add if full else self.full.discard)(line)
        for producer in self.producers:
            if self.full:
                producer.tcp.pauseProducing()
            else:
                producer.tcp.resumeProducing()


_GROUPS: Final[defaultdict[bytes, _Group]] = defaultdict(_Group)


@implementer(IPushProducer)
class _Line(Protocol):
    """A client; also a producer for its transport, which can pause it."""

    group: _Group | None = None
    is_producer = False
    tcp: Any
    """The transport, whose type in Twisted lacks some methods."""

    def connectionMade(self) -> None:
        self.tcp = self.transport
        self.tcp.setTcpNoDelay(True)

    def dataReceived(self, data: bytes) -> None:
        if self.group is not None:
            self.group.forward(data)
        else:
            self._join(*data.split())

    def _join(self, word: bytes, name: bytes) -> None:
        """Join a group by the first line: it comes alone, since its sender waits for the answer."""
        self.group = group = _GROUPS[name]
        self.is_producer = word == b"produce"
        if self.is_producer:
            group.producers.append(self)
        else:
            group.consumers.append(self)
            self.tcp.registerProducer(self, True)
        self.tcp.write(b"ok\n")

    def connectionLost(self, reason: Failure | None = None) -> None:
        group = self.group
        if group is None:
            return
        if self.is_producer:
            group.producers.remove(self)
        else:
            group.consumers.remove(self)
            group.mark(self, full=False)

    def pauseProducing(self) -> None:
        assert self.group is not None
        self.group.mark(self, full=True)

    def resumeProducing(self) -> None:
        assert self.group is not None
        self.group.mark(self, full=False)

    def stopProducing(self) -> None:
        """Do nothing, as :meth:`connectionLost` follows."""


def _run(reactor: Any, port: str) -> Deferred[None]:
    reactor.listenTCP(int(port), Factory.forProtocol(_Line), interface="127.0.0.1")
    return Deferred()


def main() -> None:
    """Relay until killed; the port is the only argument."""
    react(_run, sys.argv[1:])


if __name__ == "__main__":
    main()
