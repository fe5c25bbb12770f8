"""In-memory brokers for scripts of clients, and checks of their final state."""

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

#: Steps by which a script can advance the clock, in seconds.
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
#: Configurations in which the same script takes different paths.
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
    """Makes each call of a store asynchronously, when the clock advances."""

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
        # Finish pending calls before a broker ends.
        self._clock.advance(0)


def make_broker(settings: int) -> tuple[MemoryBroker, BrokerConfig]:
    """Return a broker by a byte: its configuration, its store, and the way its streams end."""
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
    """Change the state of a client's stream or of the clock; return False for an unknown step."""
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
    """A well-behaved client, which faults of other clients must not affect."""

    def __init__(self, broker: MemoryBroker) -> None:
        """Connect, subscribe to a topic, and send something to it."""
        self._broker = broker
        self._sent = 0
        self._client = self._connected()
        self._client.subscribe(_TOPIC, id="t")
        self.check()

    def _connected(self) -> MemoryClient:
        # Before its next heart-beat, the clock advances by a day at most.
        return self._broker.client(heart_beat="100000000,0")

    def check(self) -> None:
        """Send messages to itself; check that all arrive, unchanged and in order."""
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
        # Messages stored for durable subscriptions may arrive after the receipt.
        messages = [frame for frame in found if frame.command == "MESSAGE"]
        others = [frame for frame in found if frame.command != "MESSAGE"]
        assert [frame.body for frame in messages] == bodies, found
        assert [frame.headers for frame in others] == [{"receipt-id": "r"}], found
        assert not client.lost

    def beat(self) -> None:
        """Send a heart-beat; call this more often than every other day."""
        self._client.write(b"\n")

    def close(self) -> None:
        """Disconnect gracefully."""
        self._client.send("DISCONNECT", receipt="end")
        assert self._client.frames[-1].headers == {"receipt-id": "end"}
        self._client.close()


def check_empty(broker: MemoryBroker) -> None:
    """Check the state of the broker after all clients have disconnected."""
    broker.clock.advance(0)
    domain = broker.broker
    assert not connections(domain), connections(domain)
    for each in destinations(domain):
        assert each.in_flight == 0 and each.ready >= 0 and each.delayed >= 0, each
        assert each.consumers == 0 or each.kind == "durable", each
        assert not each.kind.startswith("temp-"), each


def check_queues(broker: MemoryBroker, config: BrokerConfig, *, is_exact: bool) -> None:
    """Check that a new client gets from each queue the messages that the broker reports.

    The numbers agree exactly if no message can have expired (``is_exact``): the broker notices
    expired messages only at delivery.
    """
    for _ in range(2):  # expired messages may move to a dead-letter queue
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
    # Names may have line feeds, which 1.0 cannot encode.
    client.send("CONNECT", {"accept-version": "1.2", "host": host, "heart-beat": "400000,0"})
    client.subscribe(each.name, id="all")
    # Calls of the store complete asynchronously.
    for _ in range(each.ready + 3):
        broker.clock.advance(0)
    found = client.take("MESSAGE")
    assert client.error is None, client.error
    assert not is_exact or len(found) == each.ready, (each, found)
    client.close()
