"""A port for each case, for clients that the suite does not run."""

from __future__ import annotations

import selectors
import socket
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Self

from stompkit.conformance.clients.case import ClientCase
from stompkit.conformance.clients.client import Client, Patience
from stompkit.conformance.clients.node import Node
from stompkit.conformance.clients.run import Run, open_nodes
from stompkit.conformance.verdict import CaseResult
from stompkit.frames import VERSIONS, Version

__all__ = ["Place", "Service"]


@dataclass(frozen=True, slots=True)
class Place:
    """A case, and the addresses at which it runs."""

    case: ClientCase
    nodes: Sequence[Node]

    @property
    def listeners(self) -> list[socket.socket]:
        """The listening sockets of the place."""
        return [node.listener for node in self.nodes if node.listener is not None]


class Service:
    """Listens on all ports, and runs the case of each port to which a client connects.

    A case can be repeated: its last verdict counts. As a context manager, it releases the ports on
    exit.
    """

    def __init__(
        self,
        cases: Sequence[ClientCase],
        *,
        host: str = "127.0.0.1",
        first_port: int = 0,
        patience: Patience | None = None,
        on_result: Callable[[CaseResult], None] = lambda result: None,
    ) -> None:
        """Open the ports: from ``first_port`` on, or any. Raises ``OSError`` if one is in use."""
        self._patience = patience or Patience()
        self._on_result = on_result
        self.places: list[Place] = []
        self._results: dict[str, CaseResult] = {}
        self._offered: set[Version] = set()
        #: Errors of the suite itself.
        self.errors: list[str] = []
        self._runs: dict[str, Run] = {}
        self._threads: list[threading.Thread] = []
        self._done: SimpleQueue[tuple[Place, CaseResult | None, Client]] = SimpleQueue()
        with ExitStack() as stack:
            self._woken, self._waking = (stack.enter_context(each) for each in socket.socketpair())
            self._selector = stack.enter_context(selectors.DefaultSelector())
            self._selector.register(self._woken, selectors.EVENT_READ)
            port = first_port
            for case in cases:
                nodes = open_nodes(case, host, port)
                for node in nodes:
                    stack.callback(node.close)
                self.places.append(Place(case, nodes))
                port += len(nodes) if first_port else 0
            self._resources = stack.pop_all()
        for place in self.places:
            self._await(place)

    def __enter__(self) -> Self:
        """Return the service."""
        return self

    def __exit__(self, *exception: object) -> None:
        """End all running cases, and release the ports."""
        for run in list(self._runs.values()):
            run.client.abort()
        for thread in self._threads:
            thread.join()
        self._resources.close()

    @property
    def results(self) -> list[CaseResult]:
        """The last result of each case that was run, in the order of the cases."""
        ids = [place.case.id for place in self.places]
        return [self._results[each] for each in ids if each in self._results]

    @property
    def versions(self) -> list[str]:
        """The versions that clients have offered, oldest first."""
        return [version for version in VERSIONS if version in self._offered]

    def serve(self) -> None:
        """Serve until there is an error of the suite itself, or an exception is raised."""
        while not self.errors:
            for key, _ in self._selector.select():
                if key.data is None:
                    self._woken.recv(1)
                    self._take()
                else:
                    self._play(key.data)

    def _await(self, place: Place) -> None:
        for node in place.nodes:
            node.restore()
        for listener in place.listeners:
            self._selector.register(listener, selectors.EVENT_READ, place)

    def _play(self, place: Place) -> None:
        """Run a case in a separate thread, which uses its ports meanwhile."""
        if place.case.id in self._runs:
            return  # two of its ports got connections at the same time
        for listener in place.listeners:
            self._selector.unregister(listener)
        run = self._runs[place.case.id] = Run(place.case, place.nodes, self._patience)
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(threading.Thread(target=self._run, args=(place, run)))
        self._threads[-1].start()

    def _run(self, place: Place, run: Run) -> None:
        result = None
        try:
            result = run.play()
        except Exception:
            # A case may raise only findings about the client.
            self.errors.append(traceback.format_exc())
        self._done.put((place, result, run.client))
        self._waking.send(b".")

    def _take(self) -> None:
        """Process a result, and wait for the next client there."""
        place, result, client = self._done.get()
        del self._runs[place.case.id]
        self._await(place)
        # A connection without data is a port check.
        if result is not None and any(caller.arrivals for caller in client.callers):
            self._results[place.case.id] = result
            self._offered.update(client.offered)
            self._on_result(result)
