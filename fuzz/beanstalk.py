"""The front end for beanstalkd's clients: scripts of several, and one of STOMP on the same queues.

Steps are those of ``fuzz.stomp``; ``a`` stands for the id of a job that the client has received.
The client ``4`` speaks STOMP.
"""

from __future__ import annotations

import re
from typing import Final, cast

from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IReactorTime

from fuzz._brokers import check_empty, check_queues, make_broker, step_of_stream
from fuzz._driver import main
from fuzz._input import script, steps
from fuzz._logs import no_errors
from stompkit.server.beanstalk import BeanstalkFactory
from stompkit.server.settings.beanstalk import BeanstalkSettings
from stompkit.testing.memory import MemoryBroker, MemoryClient
from stompkit.testing.memory._transport import HalfCloseableTransport

__all__ = ["SEEDS", "check"]

_CLIENTS: Final = "01234"
_NUMBERED: Final = re.compile(rb"^(?:INSERTED|RESERVED|FOUND|BURIED) (\d+)", re.MULTILINE)
#: Beginnings of replies, as listed in protocol.txt.
_ANSWER: Final = re.compile(
    rb"(?:INSERTED \d+|BURIED(?: \d+)?|EXPECTED_CRLF|JOB_TOO_BIG|DRAINING|USING \S+|DEADLINE_SOON"
    rb"|TIMED_OUT|RESERVED \d+ (\d+)|DELETED|NOT_FOUND|RELEASED|TOUCHED|WATCHING \d+|NOT_IGNORED"
    rb"|FOUND \d+ (\d+)|KICKED(?: \d+)?|OK (\d+)|PAUSED|OUT_OF_MEMORY|INTERNAL_ERROR|BAD_FORMAT"
    rb"|UNKNOWN_COMMAND)\r\n"
)
_STOMP: Final = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"

_BODIES: Final = (
    (b"put 1 0 60 5\r\nhello\r\nreserve\r\n", b"delete ", "aa", b"\r\nstats\r\nquit\r\n"),
    (
        b"use a\r\nput 0 5 10 0\r\n\r\nput 4294967295 0 1 1\r\nx\r\n", "1",
        b"watch a\r\nignore default\r\nreserve-with-timeout 10\r\n", "t", "T",
        b"release ", "aa", b" 5 3\r\n", "T", b"reserve\r\nbury ", "aa", b" 7\r\nkick 10\r\n",
    ),
    (
        b"watch b\r\nreserve\r\n", "1", b"use b\r\nput 1 0 2 3\r\nabc\r\n", "0", "t", "t",
        b"touch ", "aa", b"\r\nreserve-with-timeout 0\r\nstats-job ", "aa", b"\r\n", "T",
        b"list-tubes\r\nlist-tube-used\r\nlist-tubes-watched\r\nstats-tube b\r\n",
    ),
    (
        b"put 1 0 9 1\r\nx\r\npeek-ready\r\npeek-delayed\r\npeek-buried\r\npeek ", "aa", b"\r\n",
        b"pause-tube default 5\r\nreserve-with-timeout 6\r\n", "t", "T", b"kick-job ", "aa",
        b"\r\nreserve-job ", "aa", b"\r\n", "x",
    ),
    (
        "4", _STOMP + b"SUBSCRIBE\ndestination:/queue/default\nid:0\nack:client\n\n\0",
        b"SEND\ndestination:/queue/default\nbeanstalk-pri:7\nbeanstalk-ttr:3\n\nx\0",
        b"SEND\ndestination:/dlq/default\n\nx\0", "0",
        b"put 1 0 9 1\r\nx\r\nreserve\r\npeek-buried\r\nkick 5\r\nreserve-with-timeout 1\r\n", "d",
    ),
    (
        b"put 1 0 9 99999\r\n", b"x" * 300, b"\r\nput 1 2\r\nput 1 0 1 3\r\nabcd\r\n",
        b"x" * 230, b"\r\nwatch -x\r\nuse " + b"y" * 201 + b"\r\nnothing\r\n\0\r\nreserve \r\n",
    ),
    (b"put 1 0 1 1\r\nx\r\n" * 8, "s", b"reserve\r\n" * 8, "w", "e", "T"),
)  # fmt: skip
SEEDS: Final = tuple(
    script((settings,), *body)
    for number, body in enumerate(_BODIES)
    for settings in (number % 12, 16 + (number + 4) % 12, 16 + 32 + 64 + (number + 8) % 12)
)


class _Worker:
    """A client of beanstalkd, with all bytes that it has received."""

    def __init__(self, broker: MemoryBroker, factory: BeanstalkFactory, number: int) -> None:
        peer = IPv4Address("TCP", "127.0.0.1", 60_000 + number)
        self.transport = HalfCloseableTransport(broker.clock, peer)
        self._octets = bytearray()
        self.transport.open(factory.buildProtocol(peer))

    def write(self, data: bytes) -> None:
        self.transport.deliver(data)

    def octets(self) -> bytes:
        self._octets += self.transport.take()
        return bytes(self._octets)

    def told_of(self, which: bytes) -> bytes:
        """Return the id of a job: of the last one for ``a``, of the one before for ``b``..."""
        numbers = _NUMBERED.findall(self.octets())
        number = (which or b"a")[0] - ord("a")
        return numbers[-1 - number] if 0 <= number < len(numbers) else b"1"

    def check(self) -> None:
        """Check that the received bytes are a sequence of replies."""
        self.transport.start_reading()
        octets, at = self.octets(), 0
        while at < len(octets):
            found = _ANSWER.match(octets, at)
            assert found is not None, octets[at : at + 100]
            at = found.end()
            size = next((each for each in found.groups() if each is not None), None)
            if size is not None:
                at += int(size) + 2
                assert octets[at - 2 : at] == b"\r\n", octets[at - 50 : at + 50]


def check(data: bytes) -> None:
    """Run a script, and check the final state."""
    settings, rest = (data or b"\0")[0], data[1:]
    with no_errors():
        broker, config = make_broker(settings)
        factory = BeanstalkFactory(
            broker.broker,
            BeanstalkSettings(max_job_octets=200, max_watched=4, max_reserved=3, max_known_jobs=4),
            cast("IReactorTime", broker.clock),
        )
        clients: dict[str, _Worker | MemoryClient] = {}

        def client_of(name: str) -> _Worker | MemoryClient:
            if name not in clients:
                is_stomp = name == _CLIENTS[-1]
                clients[name] = (
                    broker.connect() if is_stomp else _Worker(broker, factory, int(name))
                )
            return clients[name]

        now, held = "0", b""
        for what, text in steps(rest):
            client = client_of(now)
            if what == "a":
                told = client.told_of(text[:1]) if isinstance(client, _Worker) else b"none"
                held += told + text[1:]
                continue
            if held:
                client.write(held)
            if what in _CLIENTS and what:
                now = what
            elif what != "|" and not step_of_stream(broker, client.transport, what):
                text = what.encode("latin-1") + text
            held = text
        if held:
            client_of(now).write(held)
        for client in clients.values():
            if isinstance(client, _Worker):
                client.check()
            client.transport.lose(ConnectionError())
        broker.clock.advance(20)
        assert not factory.hub.clients and not factory.hub.reserved
        assert not +factory.hub.using and not +factory.hub.watching
        check_empty(broker)
        check_queues(broker, config, is_exact=False)
        check_empty(broker)
        broker.broker.close()


if __name__ == "__main__":
    main(__file__)
