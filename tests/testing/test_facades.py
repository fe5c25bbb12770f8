"""The broker without pytest's fixtures: synchronous, for asyncio, for Twisted, for unittest."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stompkit.testing import (
    AsyncBroker,
    BrokerError,
    BrokerStartError,
    LaunchConfig,
    RunningBroker,
    broker,
    launch,
)
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.launching.ports import is_listening
from tests.testing.launched import LONG_S, ROOT, processes_below


@pytest.fixture(autouse=True)
def unsteered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the environment settings of this run of the tests."""
    for name in list(os.environ):
        if name.startswith("STOMPKIT_MQ"):
            monkeypatch.delenv(name)


# Synchronous.


def test_a_block_has_a_broker() -> None:
    with broker() as running:
        assert isinstance(running, RunningBroker)
        with running.client() as client:
            client.send(running.queue(), "x")
        assert running.frames.find("SEND", body="x")
    assert not is_listening(*running.server_address)


def test_a_block_takes_the_fields_of_a_launch() -> None:
    with broker("stompkit", login="me", passcode="sesame", frames=False) as running:
        assert (running.login, running.passcode) == ("me", "sesame")
        assert running.server_address == (running.host, running.port)
        running.client().close()


def test_the_environment_steers_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    with launch(LaunchConfig()) as given:
        monkeypatch.setenv("STOMPKIT_MQ", f"127.0.0.1:{given.port}")
        with broker() as running:
            assert running.server_address == given.server_address
            running.client().close()
        given.client().close()
    monkeypatch.setenv("STOMPKIT_MQ", "nonsense")
    with pytest.raises(BrokerError, match="STOMPKIT_MQ: expected HOST:PORT"), broker():
        pass


# asyncio.


@pytest.mark.asyncio
async def test_an_asynchronous_block_has_a_broker() -> None:
    async with broker() as running:
        assert isinstance(running, AsyncBroker)
        reader, writer = await asyncio.open_connection(running.host, running.port)
        writer.write(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        assert (await reader.readuntil(b"\0")).startswith(b"CONNECTED\n")
        assert (await running.wait_for("CONNECTED")).headers["version"] == "1.2"
        writer.close()
        await writer.wait_closed()
    assert not is_listening(*running.blocking.server_address)


@pytest.mark.asyncio
async def test_the_loop_goes_on_while_a_broker_takes_its_time() -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    turning = asyncio.ensure_future(turn())
    async with broker(persistent=True) as running:
        before = turns
        await running.restart(kill=True)
        assert turns > before
        await running.pause()
        await running.resume()
        await running.reset()
        await running.advance(60)
        await running.fill_disk()
        await running.free_disk()
        assert await running.has("reset")
        await running.kill()
        assert not running.blocking.is_running
    turning.cancel()


@pytest.mark.asyncio
async def test_a_start_that_fails_is_told() -> None:
    with pytest.raises(BrokerStartError):
        async with broker(arguments=("--no-such-option",)):
            pass


@pytest.mark.asyncio
async def test_a_start_that_is_cancelled_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "broker"
    context = broker(directory=directory)
    starting = asyncio.ensure_future(context.__aenter__())
    while not processes_below(tmp_path):
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert wait_until(lambda: not processes_below(tmp_path), LONG_S)


@pytest.mark.asyncio
async def test_what_fails_in_a_thread_fails_where_it_is_awaited() -> None:
    async with broker(control=False) as running:
        with pytest.raises(BrokerError, match="control"):
            await running.run(lambda: running.blocking.clock)
        assert running.name == "stompkit"
        assert repr(running) == f"<AsyncBroker stompkit {running.url}>"


#: More calls that wait than any pool has threads.
MANY = 40


@pytest.mark.asyncio
async def test_calls_that_wait_do_not_hold_up_others() -> None:
    async with broker() as running:
        orders = [running.queue(str(number)) for number in range(MANY)]
        waits = [
            asyncio.ensure_future(running.wait_for("SEND", destination=each, timeout=LONG_S))
            for each in orders
        ]
        await asyncio.sleep(0)
        # This resolves a name in the executor of the loop.
        _, writer = await asyncio.open_connection("localhost", running.port)
        writer.close()
        await running.run(send_to, running.blocking, orders)
        assert [frame.headers["destination"] for frame in await asyncio.gather(*waits)] == orders


def send_to(running: RunningBroker, destinations: list[str]) -> None:
    with running.client() as client:
        for each in destinations:
            client.send(each, "x", receipt=True)


# Twisted and unittest, in processes with a separate reactor.


TRIAL = """
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.trial.unittest import TestCase

from stompkit.client import Client
from stompkit.testing.twisted import TwistedBroker
from stompkit.testing.unittest import StompBrokerMixin

seen = []

class TestTrial(StompBrokerMixin, TestCase):
    @inlineCallbacks
    def test_twisted(self):
        broker = TwistedBroker(self.stomp_broker)
        client = Client([f"{broker.host}:{broker.port}"])
        yield client.connect()
        orders = broker.queue("orders")
        seen.append((broker.port, orders))
        yield client.send(orders, b"x")
        waiting = broker.wait_for("SEND", destination=orders)
        assert isinstance(waiting, Deferred)
        frame = yield waiting
        assert frame.body == b"x"
        yield client.disconnect()

    @inlineCallbacks
    def test_many_wait(self):
        broker = TwistedBroker(self.stomp_broker)
        orders = [broker.queue(str(number)) for number in range(40)]
        waits = [broker.wait_for("SEND", destination=each, timeout=60) for each in orders]
        with self.stomp_broker.client() as client:
            for each in orders:
                yield broker.run(client.send, each, "x", receipt=True)
        for waiting in waits:
            yield waiting

    def test_plain(self):
        self.note()

    def test_plain_too(self):
        self.note()

    def note(self):
        seen.append((self.stomp_broker.port, self.stomp_broker.queue("orders")))

class TestOther(StompBrokerMixin, TestCase):
    stomp_broker_fields = {"login": "me", "passcode": "sesame"}

    def test_other(self):
        self.stomp_broker.client().close()
        assert self.stomp_broker.login == "me"

class TestTwo(StompBrokerMixin, TestCase):
    def test_zz(self):
        assert len({port for port, _ in seen}) == 1
        assert len({queue for _, queue in seen}) == len(seen) > 1
        print("PORT", self.stomp_broker.server_address[1])
"""

UNITTEST = re.sub(
    "    @inlineCallbacks.*?(?=    def test_plain)", "", TRIAL, flags=re.DOTALL
).replace("from twisted.trial.unittest", "from unittest")


@pytest.mark.parametrize(
    ("runner", "program"),
    [("twisted.trial", TRIAL), ("unittest", UNITTEST)],
)
def test_test_cases_share_a_broker(tmp_path: Path, runner: str, program: str) -> None:
    (tmp_path / "test_cases.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    program_run = subprocess.run(
        [sys.executable, "-m", runner, "test_cases"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONG_S * 4,
    )
    said = program_run.stdout + program_run.stderr
    assert program_run.returncode == 0, said
    port = int(said.partition("PORT ")[2].split()[0])
    assert not is_listening("127.0.0.1", port)


#: Each test leaves the broker in another state; the next one finds it as it was launched.
POISONING = """
import time
import unittest

from stompkit.testing.unittest import StompBrokerMixin

class TestPoison(StompBrokerMixin, unittest.TestCase):
    def works(self):
        broker = self.stomp_broker
        broker.client().close()
        self.assertEqual(broker.defects, ())
        self.assertLess(abs(broker.clock.now() - time.time()), 60)

    def test_1_pauses(self):
        self.works()
        self.stomp_broker.pause()

    def test_2_moves_the_clock(self):
        self.works()
        self.stomp_broker.clock.advance(3_600)

    def test_3_fills_the_disk(self):
        self.works()
        self.stomp_broker.fill_disk()

    def test_4_kills(self):
        self.works()
        self.stomp_broker.kill()

    def test_5_works(self):
        self.works()
"""


def test_test_case_finds_the_broker_as_it_was(tmp_path: Path) -> None:
    """Whatever the test before did to it; a warning names that one, unless it moved the clock."""
    (tmp_path / "test_it.py").write_text(POISONING)
    done = subprocess.run(
        [sys.executable, "-W", "always", "-m", "unittest", "test_it"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=LONG_S * 4,
    )
    assert done.returncode == 0, done.stderr
    told = re.findall(r"TestPoison\.(\w+) left stompkit at \S+ ([\w ]+);", done.stderr)
    assert told == [
        ("test_1_pauses", "paused"),
        ("test_3_fills_the_disk", "without room on its disk"),
        ("test_4_kills", "killed"),
    ]


def test_a_killed_broker_of_a_test_case_is_removed(tmp_path: Path) -> None:
    """It is replaced before the next test; only the present one has files."""
    program = """
import unittest
from stompkit.testing.unittest import StompBrokerMixin

class TestIt(StompBrokerMixin, unittest.TestCase):
    def works(self):
        folder = self.stomp_broker.directory
        found = [each.name for each in folder.parent.glob("stompkit-stompkit-*")]
        assert found == [folder.name], found
        self.stomp_broker.kill()

    test_1 = test_2 = test_3 = works
"""
    (tmp_path / "test_it.py").write_text(program)
    (tmp_path / "t").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "test_it"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
            "TMPDIR": str(tmp_path / "t"),
        },
        capture_output=True,
        text=True,
        timeout=LONG_S * 4,
    )
    assert done.returncode == 0, done.stderr


def test_a_test_case_can_be_sent_to_another_process(tmp_path: Path) -> None:
    program = """
import pickle, unittest
from stompkit.testing.unittest import StompBrokerMixin

class TestIt(StompBrokerMixin, unittest.TestCase):
    def test_it(self): pass

case = TestIt("test_it")
case.setUp()
case.orders = case.stomp_broker.queue("orders")
copied = pickle.loads(pickle.dumps(case))
assert copied.orders == case.orders
assert not hasattr(copied, "stomp_broker")
copied.setUp()
assert copied.stomp_broker is case.stomp_broker
"""
    program_run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LONG_S * 4,
    )
    assert program_run.returncode == 0, program_run.stderr


def test_a_test_case_is_skipped_where_its_broker_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
import unittest
from stompkit.testing.unittest import StompBrokerMixin

class TestIt(StompBrokerMixin, unittest.TestCase):
    def test_it(self): raise AssertionError
"""
    (tmp_path / "test_it.py").write_text(program)
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    environment = {"PATH": "", "PYTHONPATH": path, "STOMPKIT_MQ_BROKER": "activemq"}

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "unittest", "-v", "test_it"],
            cwd=tmp_path,
            env={**environment, **more},
            capture_output=True,
            text=True,
            timeout=LONG_S * 4,
        )

    skipped = run()
    assert "(skipped=1)" in skipped.stderr
    assert "activemq is not installed: " in skipped.stderr
    failed = run(STOMPKIT_MQ_MISSING="fail")
    assert failed.returncode == 1
    assert "activemq is not installed: " in failed.stderr
