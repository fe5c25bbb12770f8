"""What the suite can do to the target besides talking to it: start it again."""

from __future__ import annotations

import subprocess
import time
from typing import Final, Protocol

from stompkit.conformance._probe import is_alive
from stompkit.conformance.address import Address
from stompkit.conformance.verdict import Failed
from stompkit.testing import BrokerError, RunningBroker

__all__ = ["Command", "Control", "Launched"]

#: How long a target may take to stop and to answer again, in seconds: brokers on a Java virtual
#: machine recover their journal first.
_RESTART_S: Final = 120.0
_PAUSE_S: Final = 0.2


class Control(Protocol):
    """Somebody who can start the target again."""

    def restart(self) -> None:
        """Stop it, start it, wait until it answers CONNECT; raises ``Failed`` where it does not."""


class Command:
    """A command of the user's that starts the target again."""

    def __init__(self, command: str, address: Address) -> None:
        """Take a command line for the shell, and the target that it is about."""
        self._command = command
        self._address = address

    def restart(self) -> None:
        """Run the command and wait for the target."""
        until = time.monotonic() + _RESTART_S
        try:
            # What it prints is no part of the report; it may go on in the background.
            status = subprocess.run(
                self._command,
                shell=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_RESTART_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise Failed(f"the command of --restart does not end in {_RESTART_S:g} s") from None
        if status:
            raise Failed(f"the command of --restart ended with status {status}")
        while not is_alive(self._address, "1.0"):
            if time.monotonic() >= until:
                raise Failed(f"after --restart the target does not answer in {_RESTART_S:g} s")
            # Not a condition that could be watched: somebody else starts the target.
            time.sleep(_PAUSE_S)


class Launched:
    """A broker that the suite has launched itself."""

    def __init__(self, broker: RunningBroker) -> None:
        """Take the broker."""
        self._broker = broker

    def restart(self) -> None:
        """Stop and start it."""
        try:
            self._broker.restart()
        except BrokerError as error:
            raise Failed(str(error)) from None
