"""Control of the target beyond STOMP: restart it, end its nodes."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol, Self

from stompkit.conformance.address import Address
from stompkit.conformance.nodes import (
    COMMAND_S,
    GivenNodes,
    LaunchedNodes,
    Nodes,
    first_line,
    run_command,
)
from stompkit.conformance.verdict import FailedError, UnsupportedError
from stompkit.conformance.wire.probe import ANY_VERSION, comes_alive
from stompkit.testing import BrokerError, LaunchConfig, RunningBroker

__all__ = ["Control", "Given", "Launched"]


class Control(Protocol):
    """The operations that the suite can perform on the target."""

    def restart(self) -> None:
        """Stop the target, start it, and wait until it answers CONNECT.

        Raises ``UnsupportedError`` if that is impossible, ``CommandError`` if the user's command
        for it fails, and ``FailedError`` if the target does not answer.
        """

    def nodes(self) -> Nodes:
        """Return its nodes, or others of its kind; raises UnsupportedError if there is only one."""


class Given:
    """A target that was not launched here, with the user's commands for it."""

    def __init__(
        self,
        address: Address,
        *,
        restart: str | None = None,
        stop: str | None = None,
        start: str | None = None,
        has_one_store: bool | None = None,
    ) -> None:
        """Take shell commands: one restarts the target, two end and start a node."""
        self._address = address
        self._restart = restart
        self._nodes = GivenNodes(address, stop=stop, start=start, has_one_store=has_one_store)

    def restart(self) -> None:
        """Run the command of --restart and wait for the target."""
        if self._restart is None:
            raise UnsupportedError(
                "the suite cannot restart the target: see --restart and --broker"
            )
        until = time.monotonic() + COMMAND_S
        run_command("--restart", self._restart)
        if not comes_alive(self._address, ANY_VERSION, until - time.monotonic()):
            raise FailedError(f"after --restart the target does not answer in {COMMAND_S:g} s")

    def nodes(self) -> Nodes:
        """Return the given nodes."""
        if self._address.nodes == 1:
            raise UnsupportedError(
                "the target has one node: --mq HOST:PORT,HOST:PORT gives several, --broker NAME"
                " has a pair launched"
            )
        return self._nodes


class Launched:
    """A broker launched by the suite; a context manager that stops its pair."""

    def __init__(self, broker: RunningBroker, config: LaunchConfig, address: Address) -> None:
        """Store the broker, its configuration, and its address."""
        self._broker = broker
        self._config = config
        self._address = address
        self._nodes: LaunchedNodes | None = None
        self._refusal = ""

    def restart(self) -> None:
        """Stop and start the broker."""
        try:
            self._broker.restart()
        except BrokerError as error:
            raise FailedError(str(error)) from None

    def nodes(self) -> Nodes:
        """Return a pair of brokers of the same kind, launched on first use."""
        if self._nodes is None and not self._refusal:
            try:
                self._nodes = LaunchedNodes(self._config, self._address)
            except BrokerError as error:
                self._refusal = f"no pair of the target's kind can be had: {first_line(error)}"
        if self._nodes is None:
            raise UnsupportedError(self._refusal)
        return self._nodes

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the pair, if there is one."""
        if self._nodes is not None:
            self._nodes.close()
