"""The agent for stomp.py: ``stomp_py.py HOST PORT CASE``."""

from __future__ import annotations

import os
import sys
from itertools import count
from queue import SimpleQueue
from typing import Any

import stomp

KINDS = {
    "1.0": stomp.StompConnection10,
    "1.1": stomp.StompConnection11,
    "1.2": stomp.StompConnection12,
}
NUMBERS = count(1)


class Inbox:
    """Hands what the library's thread hears to the main one; ``None`` is the end of it."""

    def __init__(self) -> None:
        """Begin; nothing has come."""
        self.heard: SimpleQueue[Any] = SimpleQueue()

    def on_message(self, frame: Any) -> None:
        """A MESSAGE."""
        self.heard.put(frame)

    def on_error(self, frame: Any) -> None:
        """An ERROR."""
        self.heard.put(None)

    def on_disconnected(self) -> None:
        """The connection is lost."""
        self.heard.put(None)

    def on_heartbeat_timeout(self) -> None:
        """The server is silent; the library closes the connection itself."""


class Agent:
    """Does what each message says."""

    def __init__(self, hosts: list[tuple[str, int]], version: str) -> None:
        """Connect to one of the hosts, and subscribe."""
        options = {"heartbeats": (500, 500), "vhost": hosts[0][0]} if version != "1.0" else {}
        self.version = version
        self.connection: Any = KINDS[version](
            hosts, auto_decode=False, prefer_localhost=False, try_loopback_connect=False, **options
        )
        self.inbox = Inbox()
        self.connection.set_listener("agent", self.inbox)
        self.begin()

    def begin(self) -> None:
        """Begin a session."""
        self.connection.connect("guest", r"gu:e\st", wait=True)
        self.subscriptions = count(1)
        self.subscribe("/queue/in")

    def subscribe(self, destination: str) -> None:
        """Subscribe; the library leaves it to the program to think of ids."""
        mode = "client" if self.version == "1.0" else "client-individual"
        id = f"sub-{next(self.subscriptions)}"
        self.connection.subscribe(destination, id=id, ack=mode, receipt=self.receipt())

    def run(self, *, goes_on: bool) -> None:
        """Work until a message says that this is all, or until the connection is lost."""
        while True:
            message = self.inbox.heard.get()
            if message is None and not goes_on:
                sys.exit("the connection is lost")
            elif message is None:
                self.begin()
            elif message.body == b"quit":
                self.connection.unsubscribe(destination="/queue/in", id="sub-1")
                self.connection.disconnect(receipt=self.receipt())
                return
            elif message.body == b"nack":
                self.settle(self.connection.nack, message)
            else:
                self.answer(message)
                self.settle(self.connection.ack, message)

    def answer(self, message: Any) -> None:
        """Send what the message asks for."""
        headers = {name: value for name, value in message.headers.items() if name[:2] == "x-"}
        word, _, rest = message.body.partition(b" ")
        match word:
            case b"subscribe":
                self.subscribe(rest.decode())
            case b"describe":
                [(name, value)] = headers.items()
                self.send(f"{name}={value}".encode(), {})
            case b"header":
                name, _, value = rest.decode().partition("=")
                self.send(b"", {name: value})
            case b"commit" | b"abort":
                transaction = self.connection.begin()
                self.send(message.body, {"transaction": transaction})
                getattr(self.connection, word.decode())(transaction)
            case _:
                if "content-type" in message.headers:
                    headers["content-type"] = message.headers["content-type"]
                self.send(message.body, headers)

    def send(self, body: bytes, headers: dict[str, str]) -> None:
        """Send a message, with a receipt."""
        self.connection.send("/queue/out", body, headers=headers, receipt=self.receipt())

    def settle(self, method: Any, message: Any) -> None:
        """Acknowledge a message, or refuse it, as the version wants it to be named."""
        names = {"1.0": ["message-id"], "1.1": ["message-id", "subscription"], "1.2": ["ack"]}
        method(*(message.headers[name] for name in names[self.version]), receipt=self.receipt())

    def receipt(self) -> str:
        """One that has not been used."""
        return f"receipt-{next(NUMBERS)}"


def main(host: str, port: str, case: str) -> None:
    """Run the agent; the library speaks one version at a time, which the name of the case says."""
    named = os.environ.get("STOMPKIT_HOSTS", f"{host}:{port}").split(",")
    hosts = [(name, int(number)) for name, _, number in (each.rpartition(":") for each in named)]
    version = case.split("/")[1]
    agent = Agent(hosts, version if version in KINDS else "1.2")
    agent.run(goes_on=len(hosts) > 1)


main(*sys.argv[1:])
