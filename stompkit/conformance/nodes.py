"""Nodes that can take each other's place: those that were given, and pairs that are launched."""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Final

from stompkit.conformance.address import Address
from stompkit.conformance.verdict import Failed, Unsupported
from stompkit.testing import BrokerError, FailoverPair, LaunchConfig

__all__ = ["GivenNodes", "LaunchedNodes", "Nodes", "first_line", "run_command"]

#: How long a command of the user's may take, in seconds: brokers on a Java virtual machine recover
#: their journal first.
COMMAND_S: Final = 120.0
_RABBITMQ: Final = (
    "nodes of RabbitMQ have a store of their own each, and the suite launches no cluster of them:"
    " give one by --mq"
)
#: Why two nodes of a kind can't be launched on one store, for those that can't.
_NO_ONE_STORE: Final = {"rabbitmq": _RABBITMQ, "morbidq": "MorbidQ keeps no messages"}


class Nodes(ABC):
    """Some nodes of which at least one serves, and what is known of them in the course of a run."""

    def __init__(self, address: Address, *, has_one_store: bool | None) -> None:
        """Take the addresses of all, the first of which serves.

        ``has_one_store`` says whether each delivers what any has taken; ``None``: nobody knows yet.
        """
        self.address = address
        self.has_one_store = has_one_store
        #: Why there is no such store, where there is none.
        self.reason = "the nodes have no store in common: what one takes the other does not deliver"
        #: The number of the node that serves.
        self.active = 0
        #: Why no node can be ended any more.
        self.failure = ""
        #: Whether only the cases about several nodes use them.
        self.is_apart = False

    @abstractmethod
    def end(self, node: int) -> bool:
        """End the active node, so that another one takes its place; ``False`` where nobody can.

        Raises :class:`Failed` where that goes wrong.
        """

    @abstractmethod
    def bring_back(self, node: int) -> None:
        """Start a node that was ended, while another one serves, if the two can run together."""

    @abstractmethod
    def pause(self, node: int) -> None:
        """Have a node stand still without closing anything; raises :class:`Unsupported`."""

    @abstractmethod
    def resume(self, node: int) -> None:
        """Let a paused node go on."""


class GivenNodes(Nodes):
    """Nodes of the user's, with the commands that end one and start it again, if there are any."""

    def __init__(
        self,
        address: Address,
        *,
        stop: str | None = None,
        start: str | None = None,
        has_one_store: bool | None = None,
    ) -> None:
        """Take what the command line says of them."""
        super().__init__(address, has_one_store=has_one_store)
        self._stop = stop
        self._start = start

    def end(self, node: int) -> bool:
        """Run the command of --stop, if there is one."""
        if self._stop is None:
            return False
        run_command("--stop", self._stop, self._variables(node))
        return True

    def bring_back(self, node: int) -> None:
        """Run the command of --start, if there is one."""
        if self._start is not None:
            run_command("--start", self._start, self._variables(node))

    def pause(self, node: int) -> None:
        """Not possible: raises :class:`Unsupported`."""
        raise Unsupported("the suite can pause only what it has launched itself: see --broker")

    def resume(self, node: int) -> None:
        """Nothing: none has been paused."""

    def _variables(self, node: int) -> dict[str, str]:
        host, port = self.address.node(node).real
        return {
            "STOMPKIT_NODE": str(node + 1),
            "STOMPKIT_HOST": host,
            "STOMPKIT_PORT": str(port),
        }


class LaunchedNodes(Nodes):
    """Two brokers that the suite launches, on one store where that is possible.

    On one store only one of them runs at a time, and the other one is started in its place.
    """

    def __init__(self, config: LaunchConfig, address: Address) -> None:
        """Launch them like the broker at this address; raises ``BrokerError``."""
        self._pair = _launch_pair(config)
        (host, port), other = self._pair.addresses
        # What runs by a command may have its store anywhere.
        is_known = not config.name.startswith("command:")
        super().__init__(
            replace(address, host=host, port=port, others=(other,)),
            has_one_store=self._pair.is_shared if is_known else None,
        )
        self.reason = _NO_ONE_STORE.get(_kind(config), self.reason)
        self.is_apart = True

    def end(self, node: int) -> bool:
        """Kill the one and see that the other one runs."""
        try:
            self._pair.fail_over()
        except BrokerError as error:
            raise Failed(first_line(error)) from None
        return True

    def bring_back(self, node: int) -> None:
        """Nothing: it is started when it is to take over."""

    def pause(self, node: int) -> None:
        """Stop all its processes as SIGSTOP does."""
        self._pair.brokers[node].pause()

    def resume(self, node: int) -> None:
        """Let them go on."""
        self._pair.brokers[node].resume()

    def close(self) -> None:
        """Stop both."""
        self._pair.stop()


def _kind(config: LaunchConfig) -> str:
    """The name of the broker without its version."""
    return config.name.partition(":")[0]


def _launch_pair(config: LaunchConfig) -> FailoverPair:
    """Two brokers, of which the first runs, and the second as well if each has its own store."""
    return FailoverPair.launch(config, shared=_kind(config) not in _NO_ONE_STORE)


def run_command(option: str, command: str, variables: dict[str, str] | None = None) -> None:
    """Run a command line that the user gave with an option, by the shell.

    ``variables`` are added to its environment. Raises :class:`Failed` where it fails or does not
    end in :data:`COMMAND_S`.
    """
    try:
        # What it prints is no part of the report; it may leave something in the background.
        status = subprocess.run(
            command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | (variables or {}),
            timeout=COMMAND_S,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        raise Failed(f"the command of {option} does not end in {COMMAND_S:g} s") from None
    if status:
        raise Failed(f"the command of {option} ended with status {status}")


def first_line(error: BrokerError) -> str:
    """What went wrong with a broker, without its log."""
    return str(error).partition("\n")[0]
