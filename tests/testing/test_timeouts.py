"""Waits accept their timeout under the name with a unit, and under the usual one."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable

import pytest

from stompkit.testing import LaunchConfig, launch
from stompkit.testing.client import NothingReceivedError, StompClient
from stompkit.testing.frames.log import FrameLog
from stompkit.testing.proxy import Fault, FaultNotSeenError, Proxy
from tests.testing.launched import LONG_S

WAITS = [
    (each, name)
    for each in (StompClient, Fault, FrameLog)
    for name, method in inspect.getmembers(each, inspect.isfunction)
    if not name.startswith("_") and "timeout_s" in inspect.signature(method).parameters
]


def test_all_waits_are_found() -> None:
    names = {name for _, name in WAITS}
    assert {"receive", "receive_many", "wait", "wait_for", "wait_closed", "next_frame"} <= names


@pytest.mark.parametrize(("owner", "name"), WAITS)
def test_each_wait_accepts_both_names(owner: type, name: str) -> None:
    parameters = inspect.signature(getattr(owner, name)).parameters
    assert parameters["timeout"].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize(
    "wait",
    [
        lambda client: client.receive(timeout=0.1),
        lambda client: client.receive_many(2, timeout=0.1),
        lambda client: client.next_frame(timeout=0.1),
        lambda client: client.wait_closed(timeout=0.1),
        lambda client: client.wait_for_beat(timeout=0.1),
    ],
)
def test_client_waits_for_that_time(wait: Callable[[StompClient], object]) -> None:
    with launch(LaunchConfig()) as broker:
        client = StompClient.connect(broker.host, broker.port, timeout_s=LONG_S)
        with client, pytest.raises(NothingReceivedError, match=r"in 0\.1 s"):
            wait(client)


def test_nothing_is_awaited_for_that_time() -> None:
    with launch(LaunchConfig()) as broker, broker.client() as client:
        begun = time.monotonic()
        client.receive_nothing(timeout=0.1)
        assert time.monotonic() >= begun + 0.1


def test_fault_is_waited_for_that_time() -> None:
    begun = time.monotonic()
    with Proxy("127.0.0.1", 1) as proxy, pytest.raises(FaultNotSeenError, match=r"within 0\.1 s"):
        proxy.drop("ACK").wait(timeout=0.1)
    assert time.monotonic() >= begun + 0.1
