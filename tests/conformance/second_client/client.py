"""The client: sessions with one server after the other."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Sequence

from tests.conformance.second_client.application import Application
from tests.conformance.second_client.escapes import Lost
from tests.conformance.second_client.session import Session
from tests.conformance.second_client.stream import Stream
from tests.conformance.second_client.switches import Switch


class Client:
    """Runs sessions until a message tells it to quit."""

    connection: socket.socket

    def __init__(self, nodes: Sequence[tuple[str, int]], switch: str = "") -> None:
        """Create a client for servers at these addresses, with a switch."""
        self.nodes = nodes
        self.switch = Switch(switch)
        self.is_aborted = threading.Event()
        self.numbers = itertools.count(1)

    def run(self) -> int:
        """Run all sessions; return the exit status."""
        for host, port in itertools.cycle(self.nodes):
            try:
                with socket.create_connection((host, port)) as self.connection:
                    self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.work(host.encode())
                return 0
            except (Lost, OSError) as error:
                if str(error) == "ERROR" and self.switch.has("ends well after ERROR"):
                    return 0
                if len(self.nodes) == 1 or self.is_aborted.is_set():
                    return 1
        raise AssertionError("there are no addresses")

    def work(self, host: bytes) -> None:
        """Run one session."""
        if self.is_aborted.is_set():
            raise Lost("aborted")
        session = Session(Stream(self.connection, self.switch), self.switch, self.numbers)
        session.start(host)
        Application(session).run()

    def abort(self) -> None:
        """Abort the connection; from any thread."""
        self.is_aborted.set()
        with contextlib.suppress(OSError, AttributeError):  # there may be no connection yet
            self.connection.shutdown(socket.SHUT_RDWR)
