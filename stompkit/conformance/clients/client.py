"""The client under test, as seen by the cases."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from stompkit.conformance.case import NEWEST
from stompkit.conformance.clients.caller import Caller
from stompkit.conformance.clients.node import Node
from stompkit.conformance.clients.program import Program
from stompkit.conformance.peer import Recorder
from stompkit.conformance.verdict import Ending, FailedError, UnsupportedError
from stompkit.frames import VERSIONS, Version

__all__ = ["Client", "Patience"]

#: Interval in seconds between two checks if a program that does not connect still runs.
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts in seconds."""

    #: Timeout for an answer.
    timeout_s: float = 3.0
    #: Time without data after which nothing more is expected.
    quiet_s: float = 0.5

    @property
    def start_s(self) -> float:
        """Timeout for the client to connect: a virtual machine may have to start first."""
        return 5 * self.timeout_s

    @property
    def case_s(self) -> float:
        """Timeout for one connection as a whole."""
        return 20 * self.timeout_s


class Client:
    """The client during one case; accepts its connections."""

    def __init__(
        self,
        version: str,
        since: Version,
        nodes: Sequence[Node],
        recorder: Recorder,
        patience: Patience,
        program: Program | None = None,
    ) -> None:
        """Start a case, when the client is about to connect.

        ``version`` is the version under test, or ``NEWEST``. Without a ``program`` the client is
        not run by the suite.
        """
        self.recorder = recorder
        self.timeout_s = patience.timeout_s
        self.quiet_s = patience.quiet_s
        #: The host that the client was given to connect to, if the suite knows it.
        self.host = nodes[0].host if program is not None else None
        #: The version of the session, once there is one.
        self.version: Version | None = None
        #: Observations for the reader of the report.
        self.notes: list[str] = []
        #: Recommendations (SHOULD) that the client has violated.
        self.lapses: list[str] = []
        #: Behaviour of the client where it has a choice, by topic.
        self.chosen: dict[str, str] = {}
        self.callers: list[Caller] = []
        self._asked = version
        self._since = since
        self._nodes = nodes
        self._patience = patience
        self._program = program
        self._is_aborted = False

    @property
    def offered(self) -> set[Version]:
        """The versions that the client has offered so far."""
        return {version for caller in self.callers for version in caller.offered}

    @property
    def tested(self) -> str:
        """The version under test; after the case it is always a specific one."""
        if self.version is not None:
            return self.version
        if self._asked != NEWEST:
            return self._asked
        return max(self.offered, default=VERSIONS[-1])

    # Connections.

    def accept(self, node: int = 0) -> Caller:
        """Wait for a connection to one of the addresses; nothing has been read from it."""
        patience = self._patience
        until = time.monotonic() + patience.start_s
        connection = self._accepted(node, until)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = len(self.callers) + 1
        self.recorder.say(number, "the client connected")
        caller = Caller(
            connection,
            number,
            self.recorder,
            timeout_s=patience.timeout_s,
            deadline=time.monotonic() + patience.case_s,
        )
        self.callers.append(caller)
        if self._is_aborted:
            caller.abort()
        return caller

    def _accepted(self, node: int, until: float) -> socket.socket:
        listener = self._nodes[node].listener
        if listener is None:
            raise ValueError(f"nobody can connect to address {node + 1}")
        poller = select.poll()
        poller.register(listener, select.POLLIN)
        while time.monotonic() < until and not self._is_aborted:
            # It is not possible to wait for this and the end of the program together.
            if poller.poll(1000 * _LOOK_S):
                with contextlib.suppress(BlockingIOError):
                    return listener.accept()[0]
            if self._program is not None and self._program.wait(0) is not None:
                break
        again = " again" if self.callers else ""
        raise FailedError(f"the client did not connect{again}")

    def session(
        self, *, heart_beat: str | None = "0,0", lines: Sequence[str] = (), node: int = 0
    ) -> Caller:
        """Accept a connection, and open a session: CONNECT, CONNECTED, SUBSCRIBE.

        ``heart_beat`` and ``lines`` are for CONNECTED: see :meth:`Caller.welcome`.
        """
        caller = self.accept(node)
        caller.expect_connect()
        caller.welcome(self.choose(caller), heart_beat=heart_beat, lines=lines)
        caller.expect("SUBSCRIBE")
        return caller

    def choose(self, caller: Caller) -> Version:
        """Return the version for a session: the one under test, or the newest that is offered.

        Raises :class:`UnsupportedError` if the client does not offer it.
        """
        offered = caller.offered
        wanted = [each for each in VERSIONS if self._asked in (each, NEWEST) and each in offered]
        if not wanted or wanted[-1] < self._since:
            missing = self._since if self._asked == NEWEST else self._asked
            raise UnsupportedError(f"the client does not offer STOMP {missing}")
        self.version = wanted[-1]
        return self.version

    def shut(self, node: int) -> None:
        """Refuse connections to an address from now on."""
        self.recorder.say(0, f"address {node + 1} refuses connections from now on")
        self._nodes[node].refuse()

    # The end.

    def expect_end(self, *, well: bool = True) -> None:
        """Wait until the program ends: with status 0 if ``well``, otherwise with another one.

        The connection is closed first, as a server does after the client has closed. The end of a
        client that the suite does not run is unknown.
        """
        for caller in self.callers:
            caller.close()
        if self._program is None:
            return
        status = self._program.wait(2 * self.timeout_s)
        if status is None:
            raise FailedError("the program does not end")
        if status < 0:
            raise FailedError(f"the program was ended by signal {-status}")
        if well and status:
            raise FailedError(f"the program ended with status {status}, though all was well")
        if not well and not status:
            raise FailedError("the program ended with status 0, as if all were well")

    def needs_program(self) -> None:
        """Raise :class:`UnsupportedError` if the end of the program cannot be observed."""
        if self._program is None:
            raise UnsupportedError("how the client takes it can be seen with --exec only")

    def finish(self) -> Ending:
        """Close all connections; return the worst ending of a connection."""
        for caller in self.callers:
            caller.close()
        return max(
            (each.ending for each in self.callers), key=lambda e: e.rank, default=Ending.CLEAN
        )

    def abort(self) -> None:
        """End the case as soon as possible; thread-safe."""
        self._is_aborted = True
        for caller in list(self.callers):
            caller.abort()
        if self._program is not None:
            with contextlib.suppress(OSError):
                self._program.stop()

    # Findings of a case.

    def note(self, text: str) -> None:
        """Record an observation for the report."""
        self.notes.append(text)

    def profile(self, about: str, does: str) -> None:
        """Record the client's behaviour where it has a choice; see :meth:`Target.profile`."""
        self.chosen[about] = does

    def should(self, holds: bool, text: str) -> None:  # noqa: FBT001 (reads like assert)
        """Record a violated recommendation if ``holds`` is false; ``text`` is the observation."""
        if not holds:
            self.lapses.append(text)
