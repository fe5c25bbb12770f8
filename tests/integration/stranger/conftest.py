"""What the tests of the service share, and an order of the tests that is another each time."""

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
    """Have an option for the order of the tests."""
    parser.addoption("--order", type=int, default=0, help="seed of the order of the tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the tests in an order that is drawn: nothing may depend on it."""
    random.Random(config.getoption("--order")).shuffle(items)


class Customer(stomp.ConnectionListener):
    """Somebody who orders, and reads what comes."""

    def __init__(self, places: Places, *, has_receipts: bool) -> None:
        """Connect."""
        self._has_receipts = has_receipts
        self._receipts = threading.Event()
        self._frames: queue.Queue[Frame] = queue.Queue()
        self.connection = connection_to(places)
        self.connection.set_listener("customer", self)
        self.connection.connect(places.login, places.passcode, wait=True)

    def on_message(self, frame: Frame) -> None:
        """Keep it."""
        self._frames.put(frame)

    def on_receipt(self, frame: Frame) -> None:
        """Note that the broker has done what was asked for."""
        self._receipts.set()

    def listen(self, destination: str) -> None:
        """Subscribe; a broker that sends receipts has done it when this returns."""
        self.connection.subscribe(destination, id="1", receipt="listens")
        if self._has_receipts:
            assert self._receipts.wait(SOON_S)

    def order(self, places: Places, dish: object, **headers: str) -> None:
        """Send an order."""
        body = dish if isinstance(dish, str) else json.dumps(dish, ensure_ascii=False)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.send(places.orders, body, headers=named)

    def next(self, timeout_s: float = SOON_S) -> Frame:
        """Return the next message; raises queue.Empty if none comes."""
        return self._frames.get(timeout=timeout_s)


@pytest.fixture
def places(stomp_broker) -> Places:
    """Destinations of this test alone, on the broker of all."""
    return places_on(stomp_broker)


def places_on(broker) -> Places:
    """Where everything is on a broker."""
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
    """Services that are stopped after the test; they acknowledge where the broker can that."""
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
    """Customers who leave after the test."""
    there: list[Customer] = []

    def come(places: Places) -> Customer:
        has_receipts = "receipt" in stomp_broker.capabilities
        there.append(Customer(places, has_receipts=has_receipts))
        return there[-1]

    yield come
    for each in there:
        if each.connection.is_connected():
            each.connection.disconnect()
