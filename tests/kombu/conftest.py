"""Brokers for kombu, and connections to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import pytest
from kombu.connection import Connection

import stompkit.kombu  # noqa: F401  # registers the scheme
from stompkit.testing import RunningBroker
from stompkit.testing.plugin import BrokerFactory
from tests.effort import in_matrix

#: Brokers on which the transport is tested.
BROKERS = ("stompkit", in_matrix("rabbitmq"), in_matrix("activemq"))

Connect = Callable[..., Connection]


def url_of(broker: RunningBroker, host: str | None = None, port: int | None = None) -> str:
    """Return the URL that kombu connects to."""
    user = ""
    if broker.login is not None:
        user = f"{quote(broker.login)}:{quote(broker.passcode or '')}@"
    return f"stomp://{user}{host or broker.host}:{port or broker.port}//"


@pytest.fixture(scope="session")
def brokers(stomp_broker_factory: BrokerFactory) -> Callable[[str], RunningBroker]:
    """Starts each broker at its first use."""
    started: dict[str, RunningBroker] = {}

    def get(name: str) -> RunningBroker:
        if name not in started:
            started[name] = stomp_broker_factory(name, persistent=True)
        return started[name]

    return get


@pytest.fixture(params=BROKERS)
def broker(
    request: pytest.FixtureRequest, brokers: Callable[[str], RunningBroker]
) -> RunningBroker:
    """A broker; its names are unique to the test."""
    running = brokers(request.param)
    if not running.is_running:
        running.restart()
    running.new_names()
    return running


@pytest.fixture
def name(broker: RunningBroker) -> str:
    """The name of a queue that no other test uses."""
    return broker.queue().rpartition("/")[2]


@pytest.fixture
def connect(broker: RunningBroker) -> Iterator[Connect]:
    """Makes connections, and closes them at the end."""
    with ExitStack() as stack:

        def make(url: str | None = None, **options: Any) -> Connection:
            given = Connection(url or url_of(broker), **options)
            stack.callback(given.release)
            return given

        yield make
