"""Cases about restarts: real brokers with and without a store, and faulty ones.

The runner restarts the brokers that it has launched, or uses a command for that; a proxy in front
does not notice.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import pytest

from stompkit.conformance.address import Address
from stompkit.conformance.control import Launched
from stompkit.conformance.run.runner import Selection, run
from stompkit.conformance.target import probe
from stompkit.testing import LaunchConfig, launch
from tests.conformance.command import processes, read_report
from tests.conformance.conftest import Serve, Suite
from tests.conformance.proxy import Fault, behind
from tests.conformance.raw import Raw
from tests.conformance.scripted import Line, ScriptedServer

RECEIPTED = "behaviour/persistence/receipted"
ACKNOWLEDGED = "behaviour/persistence/acknowledged"
TRANSACTIONS = "behaviour/persistence/transactions"
DURABLE = "behaviour/durable/restart"
#: Cases that detect a faulty server in this module.
FOUND_BY = (RECEIPTED, ACKNOWLEDGED, TRANSACTIONS, DURABLE)


class Late(Fault):
    """Confirms a frame, but executes it only when another one arrives."""

    waiting: Raw | None = None

    def is_late(self, frame: Raw) -> bool:
        """Return True if a frame is executed late."""
        raise NotImplementedError

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Send the waiting frame first."""
        yield from self.at_end()
        receipt = frame.get("receipt")
        if receipt is None or not self.is_late(frame):
            yield frame
            return
        self.to_client(Raw(b"RECEIPT", [f"receipt-id:{receipt}".encode()]))
        frame.drop("receipt")
        self.waiting = frame

    def at_end(self) -> Iterable[Raw]:
        """Send the waiting frame."""
        if self.waiting is not None:
            yield self.waiting
            self.waiting = None


class WritesLate(Late):
    """Keeps the last message of a connection in memory only."""

    def is_late(self, frame: Raw) -> bool:
        """Return True for messages of queues."""
        is_queue = (frame.get("destination") or "").startswith("/queue/")
        return is_queue and frame.command == b"SEND"


class AcknowledgesLate(Late):
    """Keeps the last ACK of a connection in memory only."""

    def is_late(self, frame: Raw) -> bool:
        """Return True for every ACK."""
        return frame.command == b"ACK"


class WritesAtOnce(Fault):
    """Keeps the messages of a transaction without COMMIT."""

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Remove SEND from its transaction."""
        if frame.command == b"SEND":
            frame.drop("transaction")
        yield frame


@dataclass(frozen=True)
class Server:
    """Our broker, with or without a store, and with a fault."""

    is_persistent: bool
    found_by: set[str]
    fault: type[Fault] = Fault


SERVERS = {
    "with_a_store": Server(is_persistent=True, found_by=set()),
    "in_memory": Server(is_persistent=False, found_by={RECEIPTED, DURABLE}),
    "writes_late": Server(is_persistent=True, found_by={RECEIPTED}, fault=WritesLate),
    "acknowledges_late": Server(
        is_persistent=True, found_by={ACKNOWLEDGED}, fault=AcknowledgesLate
    ),
    "writes_at_once": Server(is_persistent=True, found_by={TRANSACTIONS}, fault=WritesAtOnce),
}


def findings(name: str) -> set[str]:
    """Return the cases that are FAILED or NON-STRICT; run in a separate process."""
    server = SERVERS[name]
    config = LaunchConfig(persistent=server.is_persistent)
    with (
        launch(config) as broker,
        ScriptedServer(behind(server.fault, broker.host, broker.port)) as proxy,
    ):
        address = Address("127.0.0.1", proxy.port, timeout_s=10.0, quiet_s=0.3)
        control = Launched(broker, config, address)
        report = run(address, probe(address), Selection(FOUND_BY), control=control)
    assert not report.errors, report.errors
    assert {each.id for each in report.results} == set(FOUND_BY), report.cut_short
    return {each.id for each in report.results if each.verdict in ("FAILED", "NON-STRICT")}


@pytest.fixture(scope="module")
def found() -> Iterator[dict[str, Future[set[str]]]]:
    """The results for each server; the runs are concurrent."""
    with processes(len(SERVERS)) as pool:
        yield {name: pool.submit(findings, name) for name in SERVERS}


@pytest.mark.parametrize("name", SERVERS)
def test_what_a_restart_costs_is_found(name: str, found: dict[str, Future[set[str]]]) -> None:
    """All cases about the fault detect it, and no others."""
    assert found[name].result() == SERVERS[name].found_by


def test_each_case_finds_something() -> None:
    """The list of cases for other tests has exactly the detected ones."""
    assert set.union(*(server.found_by for server in SERVERS.values())) == set(FOUND_BY)


def test_the_target_is_restarted_by_a_command(suite: Suite, serve: Serve, tmp_path: Path) -> None:
    """With --restart, the cases run on a server that another process has started."""
    with launch(LaunchConfig(persistent=True)) as broker:

        def restart(line: Line) -> None:
            line.receive()
            broker.restart()
            line.send(b"done")

        script = tmp_path / "restart.py"
        script.write_text(
            "import socket\n"
            f"with socket.create_connection(('127.0.0.1', {serve(restart).port})) as connection:\n"
            "    connection.sendall(b'please')\n"
            "    connection.recv(10)\n"
        )
        target = ["--mq", f"{broker.host}:{broker.port}"]
        command = f"'{sys.executable}' '{script}'"
        restarted = suite(*target, "--restart", command, "--json", "with.json", ACKNOWLEDGED)
        plain = suite(*target, "--json", "without.json", ACKNOWLEDGED)
    assert (restarted.status, plain.status) == (0, 1), restarted.told  # nothing is judged
    assert [each.verdict for each in read_report(tmp_path / "with.json").results] == ["OK"]
    without = read_report(tmp_path / "without.json").results
    assert [each.verdict for each in without] == ["UNSUPPORTED"]
    assert "--restart" in without[0].detail
