"""A bridge on a network in memory: each message of the source arrives, whatever happens."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import maybeDeferred

from stompkit.bridge import HOPS, Bridge, parse
from stompkit.bridge._settings import Site
from stompkit.client import Client
from stompkit.frames import Frame
from stompkit.server import BrokerConfig, DestinationConfig
from stompkit.server.interfaces import Decision, Request
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.client.network import Network
from tests.effort import drawn

QUEUES = ("/queue/q.a", "/queue/q.b")
REFUSED = "/queue/refused"
DEFAULTS = BrokerConfig()
#: Longer than any client waits before it connects again.
LONG_S = 40
#: Headers of a delivery, which an operator does not send back.
DELIVERY = {"destination", "message-id", "subscription", "ack", "redelivered", "content-length"}

STEPS = st.one_of(
    st.tuples(
        st.just("send"), st.integers(0, 9), st.sampled_from((QUEUES, QUEUES[:1], QUEUES[1:]))
    ),
    st.tuples(st.just("repeat"), st.integers(0, 9)),
    st.sampled_from(("away", "back", "cut", "refuse", "accept", "put back", "return")).map(
        lambda name: (name,)
    ),
)


class Rights:
    """An authoriser that refuses to forward messages while a test wants it."""

    refuses = False

    def authorise(self, request: Request, answer: Callable[[Decision], None]) -> None:
        """Answer immediately."""
        answer(Decision(not self.refuses))


class Sites:
    """Two brokers and a bridge that moves queues from one to the other."""

    def __init__(
        self, template: str, buffer: Path | None, here: BrokerConfig, there: BrokerConfig
    ) -> None:
        """Start all of them."""
        self.net = Network()
        self.rights = Rights()
        self.here = self.net.broker(MemoryBroker(here, clock=self.net.clock))
        self.there = self.net.broker(
            MemoryBroker(there, clock=self.net.clock, authoriser=self.rights)
        )
        self.route = {"queues": "/queue/q.>", "destination": template, "refused": REFUSED}
        if buffer is not None:
            self.route["buffer"] = str(buffer)
        self.to = "b"
        self.bridge = self._bridge()
        self.sent: set[bytes] = set()
        self.times = 0

    def _bridge(self) -> Bridge:
        sites = {name: {"url": f"stomp://{name}"} for name in ("a", self.to)}
        route = {"name": "route", "from": "a", "to": self.to, **self.route}
        return Bridge(
            parse({"sites": sites, "routes": [route], "max_hops": 99}),
            make_client=self._client,
            clock=self.net.clock,
            run_in_thread=maybeDeferred,
        )

    def _client(self, site: Site, **settings: Any) -> Client:
        endpoint = self.here if site.name == "a" else self.there
        return Client([endpoint], reactor=self.net.clock, **settings)

    def do(self, name: str, *values: Any) -> None:
        """Take one step."""
        if name == "send":
            self.send(*values)
        elif name == "repeat":
            self.repeat(*values)
        elif name == "return":
            self.take_back()
        elif name in ("away", "back"):
            self.there.is_down = name == "away"
            if self.there.is_down:
                self.there.drop()
        elif name == "cut":
            self.here.drop()
        elif name in ("refuse", "accept"):
            self.rights.refuses = name == "refuse"
        else:
            self.put_back()
        self.net.advance(LONG_S, 0.5)

    def send(self, event: int, queues: Sequence[str]) -> None:
        """Send an event to queues; each of them gets it once."""
        producer = self.here.broker.client()
        for queue in queues:
            body = f"{queue} {event}".encode()
            if body not in self.sent:
                self.sent.add(body)
                producer.publish(queue, body, event_id=str(event))
        producer.close()

    def repeat(self, event: int) -> None:
        """Send a new message with the id of an event that may have been sent before."""
        self.times += 1
        producer = self.here.broker.client()
        body = f"{QUEUES[0]} {event} {self.times}".encode()
        self.sent.add(body)
        producer.publish(QUEUES[0], body, event_id=str(event))
        producer.close()

    def take_back(self) -> None:
        """Return what has arrived, as a bridge back does, and go on to a new name of the site."""
        self.bridge.stop()
        self.net.advance(LONG_S)
        reader, writer = self.there.broker.client(), self.here.broker.client()
        for frame in _all(reader, "/queue/>"):
            kept = {k: v for k, v in frame.headers.items() if k not in DELIVERY}
            queue = frame.body.decode().partition(" ")[0]
            hops = f"{frame.headers[HOPS]},{self.to}"
            writer.send("SEND", {**kept, "destination": queue, HOPS: hops}, frame.body)
        reader.close()
        writer.close()
        self.to += "b"
        self.bridge = self._bridge()
        self.bridge.start()

    def put_back(self) -> int:
        """Return the refused messages to their queues, as operators do."""
        operator = self.here.broker.client()
        found = _all(operator, REFUSED)
        for frame in found:
            headers = {k: v for k, v in frame.headers.items() if k not in DELIVERY}
            queue = frame.body.decode().partition(" ")[0]
            operator.send("SEND", {**headers, "destination": queue}, frame.body)
        operator.close()
        return len(found)

    def arrived(self) -> list[bytes]:
        """Return the bodies of all messages at the destination."""
        return [frame.body for frame in _all(self.there.broker.client(), "/queue/>")]


def _all(client: MemoryClient, queue: str) -> list[Frame]:
    client.subscribe(queue)
    return client.take("MESSAGE")


@contextmanager
def sites(
    template: str = "{destination}",
    *,
    buffered: bool = False,
    here: BrokerConfig = DEFAULTS,
    there: BrokerConfig = DEFAULTS,
) -> Iterator[Sites]:
    with tempfile.TemporaryDirectory() as folder:
        made = Sites(template, Path(folder) / "buffer" if buffered else None, here, there)
        made.bridge.start()
        made.net.advance(1)
        try:
            yield made
        finally:
            made.bridge.stop()
            made.net.advance(LONG_S)


@settings(max_examples=drawn(25), deadline=None)
@given(
    st.lists(STEPS, max_size=12),
    st.sampled_from(("{destination}", "/queue/all")),
    st.booleans(),
)
@example(
    [("send", 1, QUEUES[:1]), ("away",), ("send", 1, QUEUES[1:]), ("cut",)], "{destination}", False
)
@example(
    [("refuse",), ("send", 1, QUEUES), ("accept",), ("away",), ("put back",), ("cut",)],
    "{destination}",
    False,
)
def test_each_message_arrives_and_none_is_acknowledged_before(
    steps: list[tuple[Any, ...]],
    template: str,
    buffered: bool,  # noqa: FBT001
) -> None:
    with sites(template, buffered=buffered) as both:
        for step in steps:
            both.do(*step)
        both.do("accept")
        both.do("back")
        both.do("put back")
        assert both.put_back() == 0
        assert set(both.arrived()) == both.sent
        assert not _all(both.here.broker.client(), "/queue/>")


@pytest.mark.parametrize("buffered", [False, True])
def test_copies_of_an_event_in_several_queues_are_all_moved(buffered: bool) -> None:  # noqa: FBT001
    with sites("/queue/all", buffered=buffered) as both:
        both.do("send", 7, QUEUES[:1])
        both.do("away")
        both.do("send", 7, QUEUES[1:])
        both.do("cut")
        both.do("back")
        assert sorted(both.arrived()) == [b"/queue/q.a 7", b"/queue/q.b 7"]


@pytest.mark.parametrize("buffered", [False, True])
def test_a_full_destination_makes_the_route_wait(buffered: bool) -> None:  # noqa: FBT001
    config = BrokerConfig(max_queue_messages=2, max_queue_bytes=2000)
    with sites(buffered=buffered, there=config) as both:
        for event in range(7):
            both.do("send", event, QUEUES[:1])
        arrived: list[bytes] = []
        for _ in range(3):
            route = both.bridge.status().routes[0]
            assert (route.state, route.refused) == ("waiting", 0)
            assert "/queue/q.a is full: it has 2 messages" in route.problem
            consumer = both.there.broker.client()
            arrived += [frame.body for frame in _all(consumer, QUEUES[0])]
            consumer.close()
            both.net.advance(4 * LONG_S, 0.5)
        arrived += both.arrived()
        assert arrived == [b"/queue/q.a %d" % event for event in range(7)]
        route = both.bridge.status().routes[0]
        assert (route.state, route.problem, route.forwarded) == ("running", "", 7)
        # What can never have room is refused, and holds nothing up.
        producer = both.here.broker.client()
        producer.publish(QUEUES[0], b"x" * 2000)
        both.do("send", 8, QUEUES[:1])
        assert [frame.body for frame in _all(producer, REFUSED)] == [b"x" * 2000]
        assert both.bridge.status().routes[0].forwarded == 8


@pytest.mark.parametrize("buffered", [False, True])
def test_full_dead_letters_at_the_source_make_the_route_wait(buffered: bool) -> None:  # noqa: FBT001
    narrow = DestinationConfig(name=REFUSED, max_queue_messages=1)
    with sites(buffered=buffered, here=BrokerConfig(destinations=(narrow,))) as both:
        both.do("refuse")
        for event in range(3):
            both.do("send", event, QUEUES[:1])
        route = both.bridge.status().routes[0]
        assert route.state == "waiting"
        assert f"a at a:61613: {REFUSED} is full: it has 1 messages" in route.problem
        both.do("accept")
        both.do("put back")
        both.net.advance(4 * LONG_S, 0.5)
        assert set(both.arrived()) == both.sent
        route = both.bridge.status().routes[0]
        assert (route.state, route.problem) == ("running", "")


@pytest.mark.parametrize("buffered", [False, True])
def test_a_refused_message_that_is_put_back_is_forwarded(buffered: bool) -> None:  # noqa: FBT001
    with sites(buffered=buffered) as both:
        both.do("refuse")
        both.do("send", 7, QUEUES[:1])
        both.do("accept")
        both.do("away")
        both.do("put back")
        both.do("cut")
        both.do("back")
        assert both.arrived() == [b"/queue/q.a 7"]


@pytest.mark.parametrize("buffered", [False, True])
def test_a_message_that_returns_is_forwarded_to_a_new_name_of_the_site(buffered: bool) -> None:  # noqa: FBT001
    with sites(buffered=buffered) as both:
        both.do("send", 7, QUEUES)
        both.do("return")
        assert sorted(both.arrived()) == [b"/queue/q.a 7", b"/queue/q.b 7"]


@pytest.mark.parametrize("buffered", [False, True])
def test_an_event_that_its_producer_sends_again_is_forwarded_again(buffered: bool) -> None:  # noqa: FBT001
    with sites(buffered=buffered) as both:
        both.do("repeat", 7)
        both.do("away")
        both.do("repeat", 7)
        both.do("cut")
        both.do("back")
        assert sorted(both.arrived()) == [b"/queue/q.a 7 1", b"/queue/q.a 7 2"]


def test_a_redelivered_message_is_forwarded_once() -> None:
    with sites() as both:
        both.do("away")
        both.do("send", 7, QUEUES)
        both.do("cut")
        both.do("back")
        both.do("cut")
        assert sorted(both.arrived()) == [b"/queue/q.a 7", b"/queue/q.b 7"]
