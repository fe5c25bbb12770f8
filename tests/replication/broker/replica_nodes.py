"""Nodes in child processes, each with a database, and the invariants that hold at the end."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

import msgspec

from stompkit.replica.vectors import merged
from stompkit.testing import RunningBroker
from tests.replica.notes import sqlite_url
from tests.replication.broker.place import LONG_S, until
from tests.replication.broker.replica_process import Order
from tests.replication.brokers import Address, broker_url

__all__ = ["NodeProcess", "NodeProcesses", "all_equal"]

_PROGRAM: Final = "tests.replication.broker.replica_process"
_ROOT: Final = Path(__file__).parents[3]
#: Short delays, as the tests need not wait for late messages.
_QUICK: Final[dict[str, Any]] = {
    "announce_delay_s": 0.05,
    "request_delay_s": 0.05,
    "request_timeout_s": 2.0,
    "repeat_s": 0.3,
    "repeat_max_s": 2.0,
    "poll_s": 0.2,
}


class NodeProcess:
    """A node's process, as seen by the tests."""

    def __init__(
        self, directory: Path, name: str, database: str, *, refused: Sequence[str], **settings: Any
    ) -> None:
        """Start it; it can be killed and restarted."""
        self.journal: Final = directory / f"{name}.journal"
        self._log: Final = directory / f"{name}.log"
        self._order: Final = Order(
            database=database,
            journal=str(self.journal),
            settings=settings,
            refused=list(refused),
        )
        self.start()

    def start(self) -> None:
        """Start it without waiting; it answers once it runs."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=_ROOT,
            )
        self._answers: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self._tell(self._order)

    def _read(self) -> None:
        process, answers = self._process, self._answers
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                answers.put(line)
        answers.put(b"")

    def _tell(self, what: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(what) + b"\n")
        self._process.stdin.flush()

    def ask(self, what: str, **how: Any) -> Any:
        """Send a request, and return the answer; raise AssertionError if it failed."""
        self._tell({"do": what, "how": how})
        try:
            line = self._answers.get(timeout=2 * LONG_S)
        except Empty:
            line = b""
        assert line, f"no answer to {what}:\n{self._log.read_text()}"
        answer = msgspec.json.decode(line)
        assert "error" not in answer, f"{what}: {answer['error']}\n{self._log.read_text()}"
        return answer["given"]

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        self._process.kill()
        self._end()

    def close(self) -> None:
        """End it by closing its input; raise an error that it reports."""
        if self._process.returncode is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                status = self._process.wait(LONG_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
            assert status == 0, self._log.read_text()

    def _end(self) -> None:
        self._process.wait(LONG_S)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # if it has not read its whole input
            self._process.stdin.close()

    @property
    def committed(self) -> list[str]:
        """Items of the transactions that its workers have recorded as committed."""
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    def work(self, seed: int, most: int = 1000) -> None:
        """Start a worker that writes one transaction after another until it is told to rest."""
        self.ask("work", seed=seed, most=most)

    def write(self, rows: Mapping[str, Mapping[str, str] | None]) -> None:
        """Write columns of items, or delete items, in one transaction."""
        self.ask("write", rows=rows)

    @property
    def vector(self) -> dict[str, int]:
        """The version vector of the node."""
        return dict(self.ask("vector"))

    @property
    def status(self) -> dict[str, Any]:
        """The status of the node."""
        return dict(self.ask("status"))

    @property
    def items(self) -> dict[str, list[str | None]]:
        """Title and body of each item."""
        return dict(self.ask("items"))


class NodeProcesses:
    """Starts nodes that share a channel, and ends them."""

    def __init__(self, broker: RunningBroker, directory: Path) -> None:
        """Start without nodes."""
        self.broker: Final = broker
        self.channel: Final = broker.topic("items")
        self._directory = directory
        self._made: list[NodeProcess] = []

    def __call__(
        self,
        branch: str,
        *at: Address,
        database: str | None = None,
        refused: Sequence[str] = (),
        **settings: Any,
    ) -> NodeProcess:
        """Start a node; by default on the broker of the run, with an SQLite file."""
        name = f"{branch}{len(self._made)}"
        node = NodeProcess(
            self._directory,
            name,
            sqlite_url(self._directory, name) if database is None else database,
            refused=refused,
            **{"branch_id": branch, "trunk_id": "AA", **self.place(*at), **_QUICK, **settings},
        )
        self._made.append(node)
        return node

    def place(self, *at: Address) -> dict[str, Any]:
        """Return the connection settings of a node and the capabilities of its broker."""
        has = self.broker.capabilities.__contains__
        return {
            "replication_hosts": broker_url(self.broker, "", *at),
            "replication_channel": self.channel,
            "send_stomp_ack": has("ack") and has("client-individual"),
            "receipts": has("receipt"),
        }

    def close(self) -> None:
        """End all, and raise the error of the first of them."""
        failures = []
        for node in self._made:
            try:
                node.close()
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]


def all_equal(nodes: Sequence[NodeProcess]) -> None:
    """Wait until all resting nodes have the same, complete state, and check it.

    The committed items of their workers are there, each transaction once.
    """
    target = merged(*(node.vector for node in nodes))
    for node in nodes:
        node.ask("wait", vector=target)
    assert [node.vector for node in nodes] == [target] * len(nodes)
    items = nodes[0].items
    for node in nodes[1:]:
        assert node.items == items
    # The process may have been killed between a commit and its record.
    assert {key for node in nodes for key in node.committed} <= items.keys()
    counted = sum(title == "counted" for title, _ in items.values())
    assert [node.ask("tally") for node in nodes] == [counted] * len(nodes)
    statuses = [node.status for node in nodes]
    for node, status in zip(nodes, statuses, strict=True):
        assert status["digests"] == statuses[0]["digests"]
        nothing = [status[name] for name in ("held", "quarantined", "problems", "diverged")]
        assert nothing == [0, [], [], {}]
        assert node.ask("check") == []
    until(lambda: all(_is_known(node) for node in nodes))


def _is_known(node: NodeProcess) -> bool:
    """Return True if a node knows that all others have the same state."""
    peers = node.status["peers"]
    return not any(peer["ahead"] or peer["behind"] for peer in peers)
