"""Turn each broker that is started with this on its path into one that loses, duplicates and leaks.

Python imports a module of this name by itself, in each process, before anything else.
"""

from __future__ import annotations

import sys
from itertools import count
from typing import IO, Any, cast

# A broker, or the process from which brokers are forked.
if {"twisted", "stompkit.testing.launching.processes.forkserver"}.intersection(sys.orig_argv):
    from twisted.internet.interfaces import IReactorTime

    from stompkit.server.domain.messages import Message
    from stompkit.server.domain.queues.queue import Queue
    from stompkit.server.listen.protocol import BrokerProtocol

    put, connection_made = Queue.put, BrokerProtocol.connectionMade
    messages, connections = count(1), count(1)
    leaked: list[IO[bytes]] = []

    def put_wrongly(queue: Queue, message: Message) -> None:
        """Lose some messages of one queue, and deliver others twice."""
        number = next(messages) if queue.name == "/queue/soak.memory" else 0
        if number and number % 20 == 0:
            return
        put(queue, message)
        if number and number % 20 == 10:
            put(queue, message)

    def leak(protocol: BrokerProtocol) -> None:
        """Leak a file and a timer for each connection, and fail now and then."""
        from twisted.internet import reactor

        clock = cast("IReactorTime", reactor)
        connection_made(protocol)
        leaked.append(open("/dev/null", "rb"))
        clock.callLater(3_600.0, lambda: None)
        if next(connections) % 10 == 0:
            clock.callLater(0.0, lambda: 1 / 0)

    changes: list[tuple[Any, str, Any]] = [
        (Queue, "put", put_wrongly),
        (BrokerProtocol, "connectionMade", leak),
    ]
    for kind, name, function in changes:
        setattr(kind, name, function)
