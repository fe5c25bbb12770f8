"""Nodes that can replace each other: given ones, and launched pairs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import IO, Final

from stompkit.conformance.address import Address
from stompkit.conformance.peer import Peer, Recorder
from stompkit.conformance.verdict import CommandError, FailedError, UnsupportedError
from stompkit.conformance.wire.octets import plain
from stompkit.conformance.wire.probe import ANY_VERSION, comes_alive, connect_headers, dial
from stompkit.testing import BrokerError, FailoverPair, LaunchConfig

__all__ = ["GivenNodes", "LaunchedNodes", "Nodes", "first_line", "run_command"]

#: Timeout in seconds for a user's command: brokers on a Java virtual machine recover their journal
#: first.
COMMAND_S: Final = 120.0
#: Number of bytes read from the end of a command's output, and number of characters shown of it.
_READ_BYTES: Final = 4_096
_SHOWN_CHARACTERS: Final = 200
#: Timeout for a node to end after its command has ended, in multiples of the answer timeout.
_END_ANSWERS: Final = 10
#: Time without an answer after which a node counts as cut off, likewise.
_DEAF_ANSWERS: Final = 2
#: Time in seconds between two checks if a node has ended.
_LOOK_S: Final = 0.1
_RABBITMQ: Final = (
    "nodes of RabbitMQ have a store of their own each, and the suite launches no cluster of them:"
    " give one by --mq"
)
#: Reason why two nodes of a kind cannot be launched on one store.
_NO_ONE_STORE: Final = {"rabbitmq": _RABBITMQ, "morbidq": "MorbidQ keeps no messages"}


class Nodes(ABC):
    """Nodes of which at least one is active, with their state during a run."""

    def __init__(self, address: Address, *, has_one_store: bool | None) -> None:
        """Take the addresses of all nodes; the first one is active.

        ``has_one_store`` is true if each node delivers the messages of the others; ``None``:
        unknown.
        """
        self.address = address
        self.has_one_store = has_one_store
        #: Reason why there is no shared store, if there is none.
        self.reason = "the nodes have no store in common: what one takes the other does not deliver"
        #: Number of the active node.
        self.active = 0
        #: Reason why no node can be ended any more.
        self.failure = ""
        #: True if only the cases about several nodes use them.
        self.is_apart = False

    @abstractmethod
    def end(self, node: int) -> bool:
        """End the active node, so that another one takes over; return ``False`` if impossible.

        Raises :class:`FailedError` on failure, and :class:`CommandError` if a command fails.
        """

    @abstractmethod
    def bring_back(self, node: int) -> None:
        """Start a node that was ended, while another one is active, if both can run together."""

    @abstractmethod
    def pause(self, node: int) -> None:
        """Pause a node without closing its connections; raises :class:`UnsupportedError`."""

    @abstractmethod
    def resume(self, node: int) -> None:
        """Resume a paused node."""


class GivenNodes(Nodes):
    """Given nodes, with the user's commands that end a node and start it again, if any."""

    def __init__(
        self,
        address: Address,
        *,
        stop: str | None = None,
        start: str | None = None,
        has_one_store: bool | None = None,
    ) -> None:
        """Store the options of the command line."""
        super().__init__(address, has_one_store=has_one_store)
        self._stop = stop
        self._start = start

    def end(self, node: int) -> bool:
        """Run the command of --stop, if there is one, and check that it has stopped the node."""
        if self._stop is None:
            return False
        address = self.address.node(node)
        with _session(address) as session:
            run_command("--stop", self._stop, self._variables(node))
            if session is not None and not _has_ended(address, session):
                raise CommandError(
                    f"the command of --stop ended well, but has not stopped node {node + 1},"
                    f" {address}: it keeps its sessions and answers CONNECT"
                )
        return True

    def bring_back(self, node: int) -> None:
        """Run the command of --start, if there is one."""
        if self._start is not None:
            run_command("--start", self._start, self._variables(node))

    def pause(self, node: int) -> None:
        """Raise :class:`UnsupportedError`: pausing is not possible."""
        raise UnsupportedError("the suite can pause only what it has launched itself: see --broker")

    def resume(self, node: int) -> None:
        """Do nothing: no node has been paused."""

    def _variables(self, node: int) -> dict[str, str]:
        host, port = self.address.node(node).real
        return {
            "STOMPKIT_NODE": str(node + 1),
            "STOMPKIT_HOST": host,
            "STOMPKIT_PORT": str(port),
        }


class LaunchedNodes(Nodes):
    """Two brokers that the suite launches, on one store if possible.

    On one store only one of them runs at a time, and the other one is started in its place.
    """

    def __init__(self, config: LaunchConfig, address: Address) -> None:
        """Launch two brokers like the one at this address; raises ``BrokerError``."""
        self._pair = _launch_pair(config)
        (host, port), other = self._pair.addresses
        # The store of a broker run by a command may be anywhere.
        is_known = not config.name.startswith("command:")
        super().__init__(
            replace(address, host=host, port=port, others=(other,)),
            has_one_store=self._pair.is_shared if is_known else None,
        )
        self.reason = _NO_ONE_STORE.get(_kind(config), self.reason)
        self.is_apart = True

    def end(self, node: int) -> bool:
        """Kill one broker and ensure that the other one runs."""
        try:
            self._pair.fail_over()
        except BrokerError as error:
            raise FailedError(first_line(error)) from None
        return True

    def bring_back(self, node: int) -> None:
        """Do nothing: it is started when it takes over."""

    def pause(self, node: int) -> None:
        """Stop all processes of a node, as SIGSTOP does."""
        self._pair.brokers[node].pause()

    def resume(self, node: int) -> None:
        """Resume all processes of a node."""
        self._pair.brokers[node].resume()

    def close(self) -> None:
        """Stop both brokers."""
        self._pair.stop()


def _kind(config: LaunchConfig) -> str:
    """Return the name of the broker without its version."""
    return config.name.partition(":")[0]


def _launch_pair(config: LaunchConfig) -> FailoverPair:
    """Return two brokers; the first one runs, and the second one if each has its own store."""
    return FailoverPair.launch(config, shared=_kind(config) not in _NO_ONE_STORE)


def run_command(option: str, command: str, variables: dict[str, str] | None = None) -> None:
    """Run a user's command in the shell; *option* is the option that gave it.

    ``variables`` are added to its environment. Raises :class:`CommandError` if it fails or does not
    end within :data:`COMMAND_S`.
    """
    # A pipe would stay open as long as a process that the command leaves in the background.
    with tempfile.TemporaryFile() as output:
        try:
            status = subprocess.run(
                command,
                shell=True,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | (variables or {}),
                timeout=COMMAND_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise CommandError(
                f"the command of {option} does not end in {COMMAND_S:g} s{_said(output)}"
            ) from None
        if status:
            raise CommandError(f"the command of {option} ended with status {status}{_said(output)}")


def _said(output: IO[bytes]) -> str:
    """Return the last line of a command's output, as the end of a sentence; empty without one."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - _READ_BYTES))
    lines = [line.strip() for line in output.read().splitlines() if line.strip()]
    return f": {plain(lines[-1].decode('utf-8', 'replace'), _SHOWN_CHARACTERS)}" if lines else ""


@contextlib.contextmanager
def _session(address: Address) -> Iterator[Peer | None]:
    """Yield a session with a node, or ``None`` if it does not answer CONNECT."""
    lasts_s = COMMAND_S + address.case_s
    recorder = Recorder(address.secret)
    try:
        peer = dial(address, 1, recorder, time.monotonic() + lasts_s)
    except FailedError:
        yield None
        return
    try:
        peer.send("CONNECT", connect_headers(address, ANY_VERSION))
        peer.expect("CONNECTED")
    except FailedError:
        peer.close()
        yield None
        return
    try:
        yield peer
    finally:
        peer.close()


def _has_ended(address: Address, session: Peer) -> bool:
    """Return True if a node ends soon: its session, or its answers.

    A node that serves again may have been restarted by its supervisor; one that keeps its sessions
    may have been cut off from the network.
    """
    until = time.monotonic() + _END_ANSWERS * address.timeout_s
    while True:
        session.collect(_LOOK_S)
        if session.is_closed_by_target:
            return True
        if not comes_alive(address, ANY_VERSION, _DEAF_ANSWERS * address.timeout_s):
            return True
        if time.monotonic() >= until:
            return False


def first_line(error: BrokerError) -> str:
    """Return the error of a broker without its log."""
    return str(error).partition("\n")[0]
