"""Brokers in memory for scripts of clients, and what has to hold of them in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.task import Clock

from stompkit.frames import Limits
from stompkit.server import BrokerConfig, DestinationConfig, StoreRunner
from stompkit.server.inspection import DestinationState, connections, destinations
from stompkit.server.interfaces import StoreError
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker, MemoryClient, MemoryTransport

__all__ = ["CONFIGS", "Bystander", "check_empty", "check_queues", "make_broker", "step_of_stream"]

#: How far a script can move the clock at once, in seconds.
_TIMES: Final = {"t": 1.0, "T": 60.0, "d": 86_400.0}
_TOPIC: Final = "/topic/bystander.of.nobody"
_QUEUE: Final = "/queue/bystander.of.nobody"

_FANOUT: Final = DestinationConfig(name="/fanout/f", children=("/queue/a", "/queue/b"))
_NARROW: Final = Limits(
    max_command_bytes=16,
    max_header_line_bytes=200,
    max_headers=12,
    max_body_bytes=200,
    max_frame_bytes=600,
)
#: Settings that have the same script take other ways.
CONFIGS: Final = (
    BrokerConfig(destinations=(_FANOUT,)),
    BrokerConfig(flow="one-in-flight", destinations=(_FANOUT,)),
    BrokerConfig(dialect="activemq", priority=True, window_messages=2),
    BrokerConfig(dialect="artemis", exclusive=True),
    BrokerConfig(dialect="rabbitmq", when_full="drop-oldest", max_queue_messages=3),
    BrokerConfig(dialect="plain", when_full="block", max_queue_messages=2),
    BrokerConfig(
        limits=_NARROW,
        max_subscriptions=3,
        max_transactions=2,
        max_transaction_frames=3,
        max_destinations=6,
        max_unacknowledged=5,
        max_delayed=2,
        max_durable_subscriptions=2,
    ),
    BrokerConfig(
        max_topic_backlog=2, slow_reader="disconnect", max_reply_backlog_bytes=100, prefetch=1
    ),
    BrokerConfig(ack_timeout_s=30.0, nack="dead-letter", max_deliveries=2, window_messages=3),
    BrokerConfig(message_ttl_s=90.0, expired="dead-letter", priority=True, window_bytes=300),
    BrokerConfig(slow_reader="drop-newest", max_topic_backlog=2, max_uncommitted_bytes=300),
    BrokerConfig(nack="requeue", require_heart_beat=True, heart_beat_ms=(500, 500)),
)


class _LateRunner:
    """Makes each call of a store in a turn of its own, when the clock is moved."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def run(
        self,
        work: Callable[[], object],
        done: Callable[[object], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        def call() -> None:
            try:
                result = work()
            except StoreError as error:
                failed(error)
            else:
                done(result)

        self._clock.callLater(0, call)

    def stop(self) -> None:
        # What was asked for is done before a broker ends.
        self._clock.advance(0)


def make_broker(settings: int) -> tuple[MemoryBroker, BrokerConfig]:
    """A broker by an octet: its configuration, its store, and how its streams end."""
    config = CONFIGS[settings % 16 % len(CONFIGS)]
    clock = Clock()
    has_store, is_late = bool(settings & 16), bool(settings & 32)
    runner: StoreRunner | None = _LateRunner(clock) if has_store and is_late else None
    store = MemoryStore() if has_store else None
    half_close = not settings & 64
    return MemoryBroker(
        config, half_close=half_close, clock=clock, store=store, runner=runner
    ), config


def step_of_stream(broker: MemoryBroker, transport: MemoryTransport, what: str) -> bool:
    """Have something happen to a client's stream, or to the clock; false for no such step."""
    if what in _TIMES:
        broker.clock.advance(_TIMES[what])
    elif what == "e":
        transport.end()
    elif what == "x":
        transport.lose(ConnectionError())
    elif what == "s":
        transport.stop_reading(0)
    elif what == "S":
        transport.stop_reading(500)
    elif what == "w":
        transport.read_waiting()
    elif what == "g":
        transport.start_reading()
    else:
        return False
    return True


class Bystander:
    """A client that does nothing wrong, and suffers nothing."""

    def __init__(self, broker: MemoryBroker) -> None:
        """Connect, subscribe to a topic, and send something to it."""
        self._broker = broker
        self._sent = 0
        self._client = self._connected()
        self._client.subscribe(_TOPIC, id="t")
        self.check()

    def _connected(self) -> MemoryClient:
        # The clock moves by a day at most before it can beat again.
        return self._broker.client(heart_beat="100000000,0")

    def check(self) -> None:
        """Send messages to itself; they have to come, whole and in their order."""
        client = self._client
        client.take()
        bodies = [b"%d" % (self._sent + number) for number in range(3)]
        self._sent += len(bodies)
        for body in bodies:
            client.publish(_TOPIC, body)
        client.send("BEGIN", transaction="t")
        client.send("ABORT", transaction="t", receipt="r")
        self._broker.clock.advance(0)
        found = client.take()
        # Messages that a store keeps for durable subscriptions may come after the answer.
        messages = [frame for frame in found if frame.command == "MESSAGE"]
        others = [frame for frame in found if frame.command != "MESSAGE"]
        assert [frame.body for frame in messages] == bodies, found
        assert [frame.headers for frame in others] == [{"receipt-id": "r"}], found
        assert not client.lost

    def beat(self) -> None:
        """Beat once; to be called more often than every other day."""
        self._client.write(b"\n")

    def close(self) -> None:
        """Leave."""
        self._client.send("DISCONNECT", receipt="end")
        assert self._client.frames[-1].headers == {"receipt-id": "end"}
        self._client.close()


def check_empty(broker: MemoryBroker) -> None:
    """What has to hold when all clients are gone."""
    broker.clock.advance(0)
    domain = broker.broker
    assert not connections(domain), connections(domain)
    for each in destinations(domain):
        assert each.in_flight == 0 and each.ready >= 0 and each.delayed >= 0, each
        assert each.consumers == 0 or each.kind == "durable", each
        assert not each.kind.startswith("temp-"), each


def check_queues(broker: MemoryBroker, config: BrokerConfig, *, is_exact: bool) -> None:
    """A new client gets from each queue what the broker says there is.

    That is so ``is_exact``-ly where no message can be past its time, which is noticed only then.
    """
    for _ in range(2):  # what is past its time may go to a queue of dead letters
        for each in destinations(broker.broker):
            if each.kind in ("queue", "dlq") and each.ready:
                _drain(broker, config, each, is_exact=is_exact)
        broker.clock.advance(0)
    for each in destinations(broker.broker):
        assert each.kind not in ("queue", "dlq") or each.ready == 0, each


def _drain(
    broker: MemoryBroker, config: BrokerConfig, each: DestinationState, *, is_exact: bool
) -> None:
    host = config.hosts[0] if config.hosts else "memory"
    client = broker.connect()
    # Names may have line feeds, which 1.0 has no way to write.
    client.send("CONNECT", {"accept-version": "1.2", "host": host, "heart-beat": "400000,0"})
    client.subscribe(each.name, id="all")
    # What the store has to be asked for comes in turns of its own.
    for _ in range(each.ready + 3):
        broker.clock.advance(0)
    found = client.take("MESSAGE")
    assert client.error is None, client.error
    assert not is_exact or len(found) == each.ready, (each, found)
    client.close()
