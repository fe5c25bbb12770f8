"""Fixtures for the tests of the service, and a random order of the tests."""

from __future__ import annotations

import json
import queue
import random
import threading
from collections.abc import Callable, Iterator

import pytest
import stomp
from orders import Orders, Places, connection_to
from stomp.utils import Frame

SOON_S = 20.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add an option for the order of the tests."""
    parser.addoption("--order", type=int, default=0, help="seed of the order of the tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the tests in a random order: none may depend on another."""
    random.Random(config.getoption("--order")).shuffle(items)


class Customer(stomp.ConnectionListener):
    """A client that orders, and reads the answers."""

    def __init__(self, places: Places, *, has_receipts: bool) -> None:
        """Connect."""
        self._has_receipts = has_receipts
        self._receipts = threading.Event()
        self._frames: queue.Queue[Frame] = queue.Queue()
        self.connection = connection_to(places)
        self.connection.set_listener("customer", self)
        self.connection.connect(places.login, places.passcode, wait=True)

    def on_message(self, frame: Frame) -> None:
        """Store it."""
        self._frames.put(frame)

    def on_receipt(self, frame: Frame) -> None:
        """Record that the broker has processed the request."""
        self._receipts.set()

    def listen(self, destination: str) -> None:
        """Subscribe; wait for the receipt if the broker sends receipts."""
        self.connection.subscribe(destination, id="1", receipt="listens")
        if self._has_receipts:
            assert self._receipts.wait(SOON_S)

    def order(self, places: Places, dish: object, **headers: str) -> None:
        """Send an order."""
        body = dish if isinstance(dish, str) else json.dumps(dish, ensure_ascii=False)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.send(places.orders, body, headers=named)

    def next(self, timeout_s: float = SOON_S) -> Frame:
        """Return the next message; raise queue.Empty if none comes."""
        return self._frames.get(timeout=timeout_s)


@pytest.fixture
def places(stomp_broker) -> Places:
    """Destinations of this test only, on the shared broker."""
    return places_on(stomp_broker)


def places_on(broker) -> Places:
    """Return the destinations on a broker."""
    return Places(
        broker.host,
        broker.port,
        broker.queue("orders"),
        broker.topic("events"),
        broker.queue("rejected"),
        broker.login,
        broker.passcode,
        broker.vhost,
        "1.2" if "1.2" in broker.capabilities else "1.0",
    )


@pytest.fixture
def service(stomp_broker) -> Iterator[Callable[..., Orders]]:
    """A factory of services, stopped after the test; they acknowledge if the broker supports it."""
    begun: list[Orders] = []

    def start(places: Places, **options: object) -> Orders:
        if "ack" not in stomp_broker.capabilities:
            options["ack"] = "auto"
        options["in_transactions"] = "transactions" in stomp_broker.capabilities
        begun.append(Orders(places, **options))
        begun[-1].start()
        return begun[-1]

    yield start
    for each in begun:
        each.stop()


@pytest.fixture
def customer(stomp_broker) -> Iterator[Callable[[Places], Customer]]:
    """A factory of customers, who disconnect after the test."""
    there: list[Customer] = []

    def come(places: Places) -> Customer:
        has_receipts = "receipt" in stomp_broker.capabilities
        there.append(Customer(places, has_receipts=has_receipts))
        return there[-1]

    yield come
    for each in there:
        if each.connection.is_connected():
            each.connection.disconnect()
