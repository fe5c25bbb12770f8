"""Memory leaks: live objects are counted, not the memory of the process."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Final, TypeAlias

import pytest
from twisted.internet.error import ConnectionDone, ConnectionLost
from wsproto.events import CloseConnection

from stompkit.server import (
    BrokerConfig,
    Credentials,
    DestinationConfig,
    MessageStore,
    User,
)
from stompkit.server.domain.queues.base import QueueBase
from stompkit.server.domain.topics import Topic
from stompkit.server.login.rights import Rights, RightsAuthoriser
from stompkit.server.stores.memory import MemoryStore
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.effort import effort, in_matrix
from tests.server.beanstalk.peers import Front
from tests.server.websockets import WebSocketBroker, WebSocketClient

#: Number of objects of each kind, created and removed before each count: if one of each stays, it
#: is more than is permitted.
MANY: Final = effort(100, 1_000)
#: The same for objects of which the broker keeps some hundreds for a while.
VERY_MANY: Final = 1_000
#: Permitted growth: a bounded cache may grow a little, but no object of the kind may stay.
MOST_OBJECTS: Final = 60
MOST_BYTES: Final = 24 * 1024
BODY: Final = b"x" * 500
#: Stores of the tests; the one that persists is in memory, too.
KINDS: Final = [in_matrix("memory"), "stored"]

QUEUE, TOPIC = "/queue/q", "/topic/t"
CONFIG: Final = BrokerConfig(
    max_destinations=50,
    destinations=(
        DestinationConfig(name="/fanout/f", children=("/queue/f1", "/queue/f2")),
        DestinationConfig(name="/queue/dying.>", nack="dead-letter"),
        DestinationConfig(name="/queue/slow.>", ack_timeout_s=3_600.0),
        DestinationConfig(name="/queue/urgent.>", priority=True, message_ttl_s=3_600.0),
    ),
)


class AnyUser:
    """An authenticator that accepts every login."""

    def authenticate(self, credentials: Credentials, answer: Callable[[User | None], None]) -> None:
        """Answer immediately."""
        answer(User(credentials.login or ""))


Thing: TypeAlias = Callable[[MemoryBroker, int], None]
THINGS: Final[list[Thing]] = []


def thing(function: Thing) -> Thing:
    """Register a kind of object that the test creates and removes."""
    THINGS.append(function)
    return function


def consume(client: MemoryClient, command: str = "ACK") -> None:
    """Acknowledge or refuse all received messages."""
    for message in client.take("MESSAGE"):
        (client.ack if command == "ACK" else client.nack)(message)


@thing
def connection(broker: MemoryBroker, number: int) -> None:
    client = broker.client(heart_beat="1000,1000", login=f"user-{number}")
    (client.close, client.drop, client.end)[number % 3]()


@thing
def stranger(broker: MemoryBroker, number: int) -> None:
    client = broker.connect(f"10.{number >> 8 & 255}.{number & 255}.1")
    client.write((b"", b"nonsense\n\n\0", b"CONNECT\naccept-version:9\n\n\0")[number % 3])
    client.drop()


@thing
def queue(broker: MemoryBroker, number: int) -> None:
    client = broker.client()
    name = f"/queue/{('some', 'slow', 'urgent')[number % 3]}.{number}"
    client.publish(name, BODY, priority="7")
    client.subscribe(name, ack="client", selector="priority = 7")
    consume(client)
    client.send("UNSUBSCRIBE", id="0")
    client.close()


@thing
def topic(broker: MemoryBroker, number: int) -> None:
    client = broker.client()
    client.subscribe(f"/topic/{number}", ack="client")
    client.publish(f"/topic/{number}", BODY)
    client.close()


@thing
def topic_of_a_pattern(broker: MemoryBroker, number: int) -> None:
    """One client subscribes to all topics permanently."""
    client = broker.client()
    client.publish(f"/topic/listened.{number}", BODY)
    client.publish(f"/queue/listened.{number}", BODY)
    client.close()


@thing
def pattern(broker: MemoryBroker, number: int) -> None:
    client = broker.client()
    client.publish(f"/queue/p{number}.a", BODY)
    client.subscribe(f"/queue/p{number}.>", ack="client-individual")
    consume(client)
    client.close()


@thing
def slow_reader(broker: MemoryBroker, number: int) -> None:
    reader = broker.client()
    reader.subscribe(TOPIC)
    reader.stop_reading()
    sender = broker.client()
    for _ in range(3):
        sender.publish(TOPIC, BODY)
    reader.drop()
    sender.close()


@thing
def durable(broker: MemoryBroker, number: int) -> None:
    client = broker.client()
    name = "/topic/d.>" if number % 2 else f"/topic/d.{number}"
    client.subscribe(name, id=f"d{number}", durable="true", selector="n <> 0")
    client.close()
    client = broker.client()
    client.publish(f"/topic/d.{number}", BODY, n="1", expiration="60000")
    # The new selector makes another subscription.
    client.subscribe(name, id=f"d{number}", durable="true", ack="client", selector="n <> 2")
    client.send("UNSUBSCRIBE", id=f"d{number}", durable="true")
    client.close()


@thing
def temporary(broker: MemoryBroker, number: int) -> None:
    client, server = broker.client(), broker.client()
    client.subscribe(f"/temp-queue/{number}", id="r")
    server.subscribe(QUEUE, id="s")
    client.publish(QUEUE, BODY, reply_to=f"/temp-queue/{number}")
    for request in server.take("MESSAGE"):
        server.publish(request.headers["reply-to"], BODY, delay="60000")
    server.close()
    client.close()


@thing
def group(broker: MemoryBroker, number: int) -> None:
    client = broker.client()
    client.subscribe("/queue/grouped", ack="client")
    client.publish("/queue/grouped", BODY, JMSXGroupID=f"group-{number}")
    consume(client)
    client.close()


@thing
def transaction(broker: MemoryBroker, number: int) -> None:
    client = broker.client()
    client.subscribe(QUEUE, ack="client", prefetch_count="1")
    for name in ("committed", "aborted", "left"):
        client.send("BEGIN", transaction=name)
        client.publish(QUEUE, BODY, transaction=name)
    client.send("COMMIT", transaction="committed")
    client.send("BEGIN", transaction="settling")
    for message in client.take("MESSAGE"):
        client.ack(message, transaction="settling")
    client.send("COMMIT", transaction="settling")
    client.send("ABORT", transaction="aborted")
    client.close()


@thing
def dead_letter(broker: MemoryBroker, number: int) -> None:
    client = broker.client()
    name = f"/queue/dying.{number}"
    client.publish(name, BODY)
    client.subscribe(name, id="q", ack="client")
    consume(client, "NACK")
    client.subscribe(f"/dlq/dying.{number}", id="d", ack="client")
    consume(client)
    client.close()


@thing
def delayed(broker: MemoryBroker, number: int) -> None:
    client = broker.client()
    name = f"/queue/later.{number}"
    client.publish(name, BODY, delay="1000", expiration="90000")
    broker.clock.advance(1.0)
    client.subscribe(name)
    client.close()


@thing
def expired(broker: MemoryBroker, number: int) -> None:
    client = broker.client()
    client.publish(f"/queue/short.{number}", BODY, expiration="1000")
    client.close()
    broker.clock.advance(31.0)


@thing
def copies(broker: MemoryBroker, number: int) -> None:
    client = broker.client()
    client.publish("/fanout/f", BODY)
    for child in ("/queue/f1", "/queue/f2"):
        client.subscribe(child, id=child)
    client.close()


@thing
def browser(broker: MemoryBroker, number: int) -> None:
    client = broker.client()
    client.publish(QUEUE, BODY)
    client.subscribe(QUEUE, id="b", browser="true")
    client.subscribe(QUEUE, id="s")
    client.close()


@thing
def blocked_sender(broker: MemoryBroker, number: int) -> None:
    client = broker.client()
    client.stop_reading()
    client.subscribe(QUEUE, id="s", ack="client")
    client.publish(QUEUE, BODY, receipt="r" * 100)
    client.drop()
    other = broker.client()
    other.subscribe(QUEUE)
    other.close()


def broker_with(store: MessageStore | None) -> tuple[MemoryBroker, MemoryClient]:
    """Return a broker, and a client that is permanently subscribed to patterns."""
    rights = [
        Rights(destination=">", allow=("create", "read", "write")),
        Rights(destination="/queue/own.{user}.>", allow=("read",), users=("*",)),
    ]
    broker = MemoryBroker(
        CONFIG,
        store=store,
        authenticator=AnyUser(),
        authoriser=RightsAuthoriser(rights, max_cached=20),
    )
    listener = broker.client()
    for name in ("/topic/listened.>", "/queue/listened.>"):
        listener.subscribe(name, id=name, selector="n = 1" if "topic" in name else "n IS NULL")
    return broker, listener


# Counting.

_NOT_FOLLOWED: Final = (type, ModuleType, BuiltinFunctionType, FrameType)


def _inside(each: object) -> Iterable[object]:
    if isinstance(each, FunctionType):
        # Not the globals, which are shared.
        return (*(each.__closure__ or ()), *(each.__defaults__ or ()))
    if isinstance(each, MethodType):
        return (each.__self__,)
    return gc.get_referents(each)


def held_by(*roots: object) -> tuple[Counter[str], int]:
    """Return the objects reachable from *roots* by type, and their total size in bytes."""
    seen: dict[int, object] = {}
    left = list(roots)
    while left:
        each = left.pop()
        if id(each) not in seen and not isinstance(each, _NOT_FOLLOWED):
            seen[id(each)] = each
            left.extend(_inside(each))
    counts = Counter(type(each).__qualname__ for each in seen.values() if gc.is_tracked(each))
    return counts, sum(map(sys.getsizeof, seen.values()))


def of_stompkit() -> Counter[str]:
    """Return all live objects of the broker's types, wherever they are."""
    gc.collect()
    kinds = (type(each) for each in gc.get_objects())
    return Counter(
        each.__qualname__ for each in kinds if str(each.__module__).startswith("stompkit.")
    )


def growth(
    come_and_go: Callable[[int], None], roots: Iterable[object], many: int
) -> dict[str, int]:
    """Return the growth of objects and bytes while *many* more are created and removed."""
    counts = []
    # What other tests have left is not looked at by each collection.
    gc.collect()
    gc.freeze()
    try:
        for first in (0, many, 2 * many):
            for number in range(first, first + many):
                come_and_go(number)
            own = of_stompkit()
            held, size = held_by(*roots)
            counts.append(own + held + Counter({"bytes": size}))
    finally:
        gc.unfreeze()
    return {name: counts[2][name] - counts[1][name] for name in counts[2] | counts[1]}


def assert_steady(grown: dict[str, int]) -> None:
    """Assert that no growth is above the limits."""
    size = grown.pop("bytes")
    assert {name: more for name, more in grown.items() if more > MOST_OBJECTS} == {}
    assert size <= MOST_BYTES, grown


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("come_and_go", THINGS, ids=[each.__name__ for each in THINGS])
def test_nothing_is_left_of_what_came_and_went(come_and_go: Thing, kind: str) -> None:
    store = MemoryStore() if kind == "stored" else None
    broker, listener = broker_with(store)
    many = VERY_MANY if come_and_go is topic_of_a_pattern else MANY

    def one(number: int) -> None:
        come_and_go(broker, number)
        listener.transport.take()
        if not (number + 1) % many:
            # Objects that wait for a deadline are removed by then.
            broker.clock.advance(120.0)

    assert_steady(growth(one, [broker.broker, broker.clock, store], many))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("jobs", [1, 40])
@pytest.mark.parametrize("way", ["delete", "bury", "leave", "stomp"])
def test_nothing_is_left_of_tubes(way: str, jobs: int, kind: str) -> None:
    if jobs > 1 and way != "delete" and kind == "stored":
        pytest.skip("takes long, and differs in nothing from what is tried")
    store = MemoryStore() if kind == "stored" else None
    broker, _ = broker_with(store)
    front = Front(broker, max_known_jobs=50)

    def one(number: int) -> None:
        tube = b"tube-%d" % number
        worker = front.worker()
        worker.ask(b"use %b\r\nwatch %b\r\nignore default\r\n" % (tube, tube))
        for _ in range(jobs):
            worker.ask(b"put 1 0 60 %d\r\n%b\r\n" % (len(BODY), BODY))
        for _ in range(jobs if way != "stomp" else 1):
            answer = worker.ask(b"reserve-with-timeout 0\r\n")
            job = answer.split()[1]
            if way != "leave":
                worker.ask(b"bury %b 1\r\n" % job if way == "bury" else b"delete %b\r\n" % job)
        # Some pauses last longer than the tube exists.
        seconds = 4_000_000_000 if way == "bury" and jobs == 1 else 1
        worker.ask(b"kick 100\r\npause-tube %b %d\r\n" % (tube, seconds))
        worker.transport.lose(ConnectionDone())
        client = broker.client()
        # STOMP takes the remaining jobs, and no client of the front end asks for them.
        client.subscribe(f"/queue/tube-{number}", id="q")
        client.close()
        if not (number + 1) % min(many, 100):
            broker.clock.advance(120.0)

    # The front end keeps some hundreds of pauses.
    many = VERY_MANY if way == "bury" and jobs == 1 else MANY if jobs == 1 else effort(30, 60)
    assert_steady(growth(one, [broker.broker, broker.clock, front.factory, store], many))


def test_nothing_is_left_of_websockets() -> None:
    broker = WebSocketBroker(CONFIG)

    def one(number: int) -> None:
        if not number % 5:
            # A request without WebSocket, and one from another origin.
            client = WebSocketClient(broker, broker.stream())
            if number % 2:
                client.raw(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            else:
                client.ask(origin="https://elsewhere.example")
        else:
            client = broker.client()
            client.subscribe(f"/queue/{number}", ack="client")
            client.send(b"SEND\ndestination:/queue/%d\ncontent-length:500\n\n%b\0" % (number, BODY))
            [message] = client.take("MESSAGE")
            client.send(f"ACK\nid:{message.headers['ack']}\n\n\0".encode())
            if number % 2:
                client.event(CloseConnection(1000))
        client.transport.lose(ConnectionDone() if number % 3 else ConnectionLost())
        if not (number + 1) % MANY:
            broker.clock.advance(120.0)

    assert_steady(growth(one, [broker.factory, broker.clock], MANY))


def test_topics_that_come_and_go_leave_nothing_to_the_collector() -> None:
    """The collector of a broker runs rarely, and a broker can see many thousand topics a second."""
    broker = MemoryBroker(CONFIG)
    subscriber, sender = broker.client(), broker.client()
    subscriber.subscribe("/topic/>", selector="never = 1")
    gc.collect()
    gc.disable()
    try:
        for number in range(VERY_MANY):
            sender.publish(f"/topic/{number}", BODY)
        topics = sum(isinstance(each, Topic) for each in gc.get_objects())
    finally:
        gc.enable()
    assert topics <= CONFIG.max_destinations


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["/queue/", "/queue/slow.", "/queue/urgent.", "/temp-queue/"])
@pytest.mark.parametrize("headers", [{}, {"expiration": "1000"}, {"AMQ_SCHEDULED_DELAY": "1"}])
def test_queues_that_come_and_go_leave_nothing_to_the_collector(
    name: str, headers: dict[str, str], kind: str
) -> None:
    """Queues for replies come and go with each request of some clients."""
    broker = MemoryBroker(CONFIG, store=MemoryStore() if kind == "stored" else None)
    sender = broker.client()
    gc.collect()
    gc.disable()
    try:
        for number in range(MANY):
            client = broker.client()
            client.subscribe(f"{name}{number}", ack="client")
            sender.publish(f"{name}{number}", BODY, **headers)
            broker.clock.advance(0.01)
            for message in client.take("MESSAGE"):
                client.ack(message)
            client.close()
        queues = sum(isinstance(each, QueueBase) for each in gc.get_objects())
    finally:
        gc.enable()
    assert queues <= CONFIG.max_destinations
