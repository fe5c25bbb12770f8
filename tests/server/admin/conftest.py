"""A broker with its admin port, and a client for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing.client import StompClient
from tests.server.admin.asking import Asker


@pytest.fixture(scope="module")
def served() -> Iterator[RunningBroker]:
    """A broker for all tests of the module, with a store."""
    with launch(LaunchConfig(admin=True, persistent=True, control=True)) as broker:
        yield broker


@pytest.fixture
def broker(served: RunningBroker) -> RunningBroker:
    """The broker after a reset."""
    served.reset()
    return served


@pytest.fixture
def ask(broker: RunningBroker) -> Asker:
    """The client of the admin port."""
    return Asker(broker.admin_url)


@pytest.fixture
def connect(broker: RunningBroker) -> Iterator[Callable[..., StompClient]]:
    """Opens sessions, which are closed at the end; takes headers of CONNECT."""
    with ExitStack() as clients:

        def opened(**headers: Any) -> StompClient:
            return clients.enter_context(broker.client(**headers))

        yield opened
