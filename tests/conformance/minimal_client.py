"""A client on a raw socket that keeps all the rules, made to be broken one rule at a time.

It does what docs/conformance-clients.rst asks of a program: in a thread, or as
``python -m tests.conformance.minimal_client HOST PORT CASE``.
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
#: How long the server's answer to DISCONNECT is waited for, in seconds.
GOODBYE_S = 1.0


class Agent(Frames):
    """One session after the other, until a message says that this is all."""

    versions = "1.0,1.1,1.2"
    heart_beat = (500, 500)

    def __init__(self, nodes: tuple[tuple[str, int], ...]) -> None:
        """Make an agent for servers at these addresses."""
        self.nodes = nodes
        super().__init__()

    def begin(self) -> None:
        """Forget the last session."""
        super().begin()
        self.subscriptions: list[str] = []

    def run(self) -> int:
        """Do it all; gives the exit status."""
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
        """The exit status after a session that was lost."""
        return 1

    def goes_on(self, error: Exception) -> bool:
        """Whether to go on with the next address, where there is one."""
        return True

    # The session.

    def connect_headers(self, host: str) -> Headers:
        """The headers of CONNECT."""
        return [
            ("accept-version", self.versions),
            ("host", host),
            ("login", "guest"),
            ("passcode", r"gu:e\st"),
            ("heart-beat", ",".join(map(str, self.heart_beat))),
        ]

    def log_in(self, host: str) -> None:
        """Exchange CONNECT for CONNECTED."""
        self.send("CONNECT", self.connect_headers(host))
        command, headers, _ = self.frame()
        if command != "CONNECTED":
            raise Lost(command)
        self.agree(headers)

    def agree(self, connected: dict[str, str]) -> None:
        """Take what CONNECTED says."""
        self.version = connected.get("version", "1.0")
        if self.version not in self.versions.split(","):
            raise Lost(f"version {self.version}")
        self.agree_beats(connected.get("heart-beat", "0,0"))

    def agree_beats(self, heart_beat: str) -> None:
        """Take the heart-beats that the server can send and wants."""
        can, wants = map(int, heart_beat.split(","))
        own_can, own_wants = self.heart_beat
        self.send_s = max(own_can, wants) / 1000 if own_can and wants else 0.0
        self.receive_s = max(own_wants, can) / 1000 if own_wants and can else 0.0

    def subscribe(self, destination: str) -> None:
        """Subscribe."""
        self.subscriptions.append(self.subscription_id())
        mode = "client" if self.version == "1.0" else "client-individual"
        headers = [("destination", destination), ("id", self.subscriptions[-1]), ("ack", mode)]
        self.ask("SUBSCRIBE", headers)

    def subscription_id(self) -> str:
        """An id for another subscription."""
        return f"sub-{len(self.subscriptions)}"

    def work(self) -> None:
        """Do what messages say, until one says that this is all."""
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
        """Look at a MESSAGE before anything is done about it."""

    def receipt_came(self, receipt: str) -> None:
        """Take a RECEIPT."""

    def message(self, headers: dict[str, str], body: bytes) -> None:
        """Answer a message."""
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
        """Send a message in a transaction, and end that."""
        name = ("transaction", self.transaction_name())
        self.ask("BEGIN", [name])
        self.reply(body, [name])
        self.ask(last, [name])

    def transaction_name(self) -> str:
        """A name for another transaction."""
        return f"t{next(self.numbers)}"

    def acknowledge(self, command: str, headers: dict[str, str]) -> None:
        """Send ACK or NACK."""
        self.ask(command, self.names(headers))

    def names(self, headers: dict[str, str]) -> Headers:
        """What ACK and NACK have to name."""
        if self.version == "1.2":
            return [("id", headers["ack"])]
        named = [("message-id", headers["message-id"])]
        if self.version == "1.1":
            named.append(("subscription", headers.get("subscription", "none")))
        return named

    def quit(self) -> None:
        """Leave in good order."""
        self.ask("UNSUBSCRIBE", [("id", self.subscriptions[0])])
        self.say_goodbye()

    def say_goodbye(self) -> None:
        """Send DISCONNECT, and wait for its RECEIPT, but not for ever."""
        receipt = self.ask("DISCONNECT", [])
        until = time.monotonic() + GOODBYE_S
        with contextlib.suppress(Lost, TimeoutError):
            command, headers, _ = self.frame(until)
            while (command, headers.get("receipt-id")) != ("RECEIPT", receipt):
                command, headers, _ = self.frame(until)


class Runs(Protocol):
    """What can be run in a thread, and be cut off."""

    def run(self) -> int:
        """Do it all; gives the exit status."""

    def abort(self) -> None:
        """Cut the connection off; from any thread."""


class ThreadProgram:
    """An agent in a thread, as the program that a case is tried on."""

    def __init__(self, agent: Runs) -> None:
        """Start."""
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
        """Wait for the end; gives the exit status."""
        self._thread.join(timeout_s)
        return self._status

    def stop(self) -> None:
        """Cut the agent off, by which it ends."""
        self._agent.abort()
        self._thread.join()

    def said(self) -> str:
        """What went wrong."""
        return self._said


def thread_launcher(
    make: Callable[[tuple[tuple[str, int], ...]], Runs],
) -> Callable[[Call], ThreadProgram]:
    """Give what starts an agent for a case."""
    return lambda call: ThreadProgram(make(call.nodes))


if __name__ == "__main__":
    sys.exit(Agent(((sys.argv[1], int(sys.argv[2])),)).run())
