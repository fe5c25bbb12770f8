"""Waits accept their timeout under the name with a unit, and under the usual one."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from stompkit.testing import LaunchConfig, launch
from stompkit.testing.client import NothingReceivedError, StompClient
from stompkit.testing.frames.log import FrameLog
from stompkit.testing.proxy import Fault, FaultNotSeenError, Proxy
from tests.testing.launched import LONG_S, ROOT

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


#: Each wait while all clocks of ``time`` stand still; it may also fail, but not go on for ever.
FROZEN = """
import contextlib, sys, time
from stompkit.testing import LaunchConfig, launch

with contextlib.ExitStack() as undo:
    broker = undo.enter_context(launch(LaunchConfig(frames=True)))
    proxy = undo.enter_context(broker.proxy())
    client = undo.enter_context(broker.client(via=proxy))
    stops = {id(getattr(time, name)) for name in ("monotonic", "perf_counter", "time")}
    for module in [each for name, each in list(sys.modules.items()) if name != "threading"]:
        for name, value in list(vars(module).items()):
            if id(value) in stops:
                setattr(module, name, lambda: 1.0)
    for wait in (
        lambda: client.receive(timeout=0.1),
        lambda: client.receive_many(2, timeout=0.1),
        lambda: client.next_frame(timeout=0.1),
        lambda: client.wait_closed(timeout=0.1),
        lambda: client.wait_for_beat(timeout=0.1),
        lambda: client.receive_nothing(timeout=0.1),
        lambda: broker.frames.wait_for("ACK", timeout=0.1),
        lambda: proxy.drop("ACK").wait(timeout=0.1),
        lambda: client.is_closed_by_broker,
        broker.pause,
        broker.resume,
    ):
        with contextlib.suppress(AssertionError):
            wait()
    proxy.delay(0.01, "SEND")
    client.send("/queue/a", "x", receipt=True)
    broker.restart()
    broker.client().close()
print("done")
"""


def test_waits_end_while_a_test_has_frozen_the_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FROZEN],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr


def test_no_wait_reads_a_clock_that_tests_may_freeze() -> None:
    """Only programs that run in a process of their own do."""
    own_process = {"guard.py", "server"}
    for path in (ROOT / "stompkit/testing").rglob("*.py"):
        if own_process.isdisjoint(path.relative_to(ROOT).parts):
            found = re.findall(r"time\.(?:monotonic|perf_counter|time)\b", path.read_text("utf-8"))
            assert not found, f"{path} reads {found}: use stompkit._common.clock.monotonic"
