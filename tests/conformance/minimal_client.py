"""A client on a raw socket without faults; subclasses break one rule each.

It behaves as docs/howto/conformance-clients.rst requires of a program: in a thread, or as ``python
-m tests.conformance.minimal_client HOST PORT CASE``.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Protocol

from stompkit.conformance.clients.program import Call
from tests.conformance.minimal_frames import Frames, Headers, Lost

__all__ = ["IN", "OUT", "Agent", "ThreadProgram", "thread_launcher"]

IN, OUT = "/queue/in", "/queue/out"
#: Time in seconds to wait for the server's reply to DISCONNECT.
GOODBYE_S = 1.0


class Agent(Frames):
    """A client that runs one session after the other, until a message tells it to quit."""

    versions = "1.0,1.1,1.2"
    heart_beat = (500, 500)

    def __init__(self, nodes: tuple[tuple[str, int], ...]) -> None:
        """Create an agent for servers at these addresses."""
        self.nodes = nodes
        super().__init__()

    def begin(self) -> None:
        """Reset the state of the session."""
        super().begin()
        self.subscriptions: list[str] = []

    def run(self) -> int:
        """Run all sessions; return the exit status."""
        for place in count():
            host, port = self.nodes[place % len(self.nodes)]
            try:
                self.begin()
                self.open(host, port)
                self.log_in(host)
                self.subscribe(IN)
                self.work()
                return 0
            except (Lost, OSError) as error:
                status = self.status_after(error)
                if self.aborted.is_set() or len(self.nodes) == 1 or not self.goes_on(error):
                    return status
            finally:
                self.close()
        raise AssertionError("there is always another place")

    def status_after(self, error: Exception) -> int:
        """Return the exit status after a lost session."""
        return 1

    def goes_on(self, error: Exception) -> bool:
        """Return True if the agent continues with the next address, if there is one."""
        return True

    # The session.

    def connect_headers(self, host: str) -> Headers:
        """Return the headers of CONNECT."""
        return [
            ("accept-version", self.versions),
            ("host", host),
            ("login", "guest"),
            ("passcode", r"gu:e\st"),
            ("heart-beat", ",".join(map(str, self.heart_beat))),
        ]

    def log_in(self, host: str) -> None:
        """Send CONNECT, and wait for CONNECTED."""
        self.send("CONNECT", self.connect_headers(host))
        command, headers, _ = self.frame()
        if command != "CONNECTED":
            raise Lost(command)
        self.agree(headers)

    def agree(self, connected: dict[str, str]) -> None:
        """Store the negotiated values of CONNECTED."""
        self.version = connected.get("version", "1.0")
        if self.version not in self.versions.split(","):
            raise Lost(f"version {self.version}")
        self.agree_beats(connected.get("heart-beat", "0,0"))

    def agree_beats(self, heart_beat: str) -> None:
        """Store the negotiated heart-beats."""
        can, wants = map(int, heart_beat.split(","))
        own_can, own_wants = self.heart_beat
        self.send_s = max(own_can, wants) / 1000 if own_can and wants else 0.0
        self.receive_s = max(own_wants, can) / 1000 if own_wants and can else 0.0

    def subscribe(self, destination: str) -> None:
        """Subscribe to a destination."""
        self.subscriptions.append(self.subscription_id())
        mode = "client" if self.version == "1.0" else "client-individual"
        headers = [("destination", destination), ("id", self.subscriptions[-1]), ("ack", mode)]
        self.ask("SUBSCRIBE", headers)

    def subscription_id(self) -> str:
        """Return the id of a new subscription."""
        return f"sub-{len(self.subscriptions)}"

    def work(self) -> None:
        """Execute messages until one tells the agent to quit."""
        while True:
            command, headers, body = self.frame()
            if command == "ERROR":
                raise Lost("ERROR")
            if command == "MESSAGE":
                self.check(headers, body)
                if body == b"quit":
                    self.quit()
                    return
                self.message(headers, body)
            elif command == "RECEIPT":
                self.receipt_came(headers["receipt-id"])

    def check(self, headers: dict[str, str], body: bytes) -> None:
        """Examine a MESSAGE before it is executed."""

    def receipt_came(self, receipt: str) -> None:
        """Handle a RECEIPT."""

    def message(self, headers: dict[str, str], body: bytes) -> None:
        """Execute a message, and acknowledge it."""
        own = [(name, value) for name, value in headers.items() if name.startswith("x-")]
        word, _, rest = body.partition(b" ")
        if word == b"nack":
            if self.version == "1.0":
                raise Lost("1.0 has no NACK")
            self.acknowledge("NACK", headers)
            return
        if word == b"subscribe":
            self.subscribe(rest.decode())
        elif word == b"describe":
            self.reply("=".join(own[0] if own else ("nothing", "")).encode())
        elif word == b"header":
            name, _, value = rest.decode().partition("=")
            self.reply(b"", [(name, value)])
        elif word in (b"commit", b"abort"):
            self.transaction(body, word.decode().upper())
        else:
            types = [("content-type", headers[n]) for n in headers if n == "content-type"]
            self.reply(body, [*own, *types])
        self.acknowledge("ACK", headers)

    def reply(self, body: bytes, headers: Headers | None = None) -> None:
        """Send a message."""
        self.ask("SEND", [("destination", OUT), *(headers or [])], body)

    def transaction(self, body: bytes, last: str) -> None:
        """Send a message in a transaction, and end the transaction."""
        name = ("transaction", self.transaction_name())
        self.ask("BEGIN", [name])
        self.reply(body, [name])
        self.ask(last, [name])

    def transaction_name(self) -> str:
        """Return the name of a new transaction."""
        return f"t{next(self.numbers)}"

    def acknowledge(self, command: str, headers: dict[str, str]) -> None:
        """Send ACK or NACK."""
        self.ask(command, self.names(headers))

    def names(self, headers: dict[str, str]) -> Headers:
        """Return the headers of ACK and NACK that name a message."""
        if self.version == "1.2":
            return [("id", headers["ack"])]
        named = [("message-id", headers["message-id"])]
        if self.version == "1.1":
            named.append(("subscription", headers.get("subscription", "none")))
        return named

    def quit(self) -> None:
        """Unsubscribe and disconnect."""
        self.ask("UNSUBSCRIBE", [("id", self.subscriptions[0])])
        self.say_goodbye()

    def say_goodbye(self) -> None:
        """Send DISCONNECT, and wait for its RECEIPT until a deadline."""
        receipt = self.ask("DISCONNECT", [])
        until = time.monotonic() + GOODBYE_S
        with contextlib.suppress(Lost, TimeoutError):
            command, headers, _ = self.frame(until)
            while (command, headers.get("receipt-id")) != ("RECEIPT", receipt):
                command, headers, _ = self.frame(until)


class Runs(Protocol):
    """Interface of an agent that can run in a thread, and be aborted."""

    def run(self) -> int:
        """Run all sessions; return the exit status."""

    def abort(self) -> None:
        """Abort the connection; from any thread."""


class ThreadProgram:
    """An agent in a thread, as the program under test of a case."""

    def __init__(self, agent: Runs) -> None:
        """Start the thread."""
        self._agent = agent
        self._status: int | None = None
        self._said = ""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._status = self._agent.run()
        except Exception as error:
            self._said = repr(error)
            self._status = 1

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the end; return the exit status."""
        self._thread.join(timeout_s)
        return self._status

    def stop(self) -> None:
        """Abort the agent, and wait for its end."""
        self._agent.abort()
        self._thread.join()

    def said(self) -> str:
        """Return the error of the agent, empty if there was none."""
        return self._said


def thread_launcher(
    make: Callable[[tuple[tuple[str, int], ...]], Runs],
) -> Callable[[Call], ThreadProgram]:
    """Return a function that starts an agent for a case."""
    return lambda call: ThreadProgram(make(call.nodes))


if __name__ == "__main__":
    sys.exit(Agent(((sys.argv[1], int(sys.argv[2])),)).run())
