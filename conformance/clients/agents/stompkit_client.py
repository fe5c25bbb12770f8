"""The agent for stompkit.client, on Twisted: ``stompkit_client.py HOST PORT CASE``."""

from __future__ import annotations

import os
import sys

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorCore
from twisted.internet.task import react

from stompkit.client import AckMode, Client, Message, Subscription


class Agent:
    """Does what each message says; ``over`` fires when one says that this is all."""

    def __init__(self, hosts: list[str]) -> None:
        """Make the client; with several hosts it goes on with the next by itself."""
        self.over: Deferred[None] = Deferred()
        self._has_many = len(hosts) > 1
        self._client = Client(
            hosts,
            login="guest",
            passcode=r"gu:e\st",
            heart_beat_ms=(500, 500),
            on_disconnected=self._lost,
        )

    async def run(self) -> None:
        """Work until that is all, or until the connection is lost."""
        await self._client.connect()
        subscription = await self._subscribe("/queue/in")
        await self.over
        await subscription.unsubscribe()
        await self._client.disconnect()

    def _subscribe(self, destination: str) -> Deferred[Subscription]:
        mode: AckMode = "client" if self._client.version == "1.0" else "client-individual"
        return self._client.subscribe(destination, self._handle, ack=mode)

    def _lost(self, reason: Exception) -> None:
        if not self._has_many and not self.over.called:
            self.over.errback(reason)

    async def _handle(self, message: Message) -> None:
        """Answer a message; it is acknowledged afterwards, unless it has been refused."""
        own = {name: value for name, value in message.headers.items() if name.startswith("x-")}
        word, _, rest = message.body.partition(b" ")
        match word:
            case b"quit":
                self.over.callback(None)
            case b"nack":
                await message.nack()
            case b"subscribe":
                await self._subscribe(rest.decode())
            case b"describe":
                [(name, value)] = own.items()
                await self._send(f"{name}={value}".encode())
            case b"header":
                name, _, value = rest.decode().partition("=")
                await self._send(b"", {name: value})
            case b"commit" | b"abort":
                transaction = self._client.transaction()
                await transaction.begin()
                transaction.send("/queue/out", message.body)
                await (transaction.commit() if word == b"commit" else transaction.abort())
            case _:
                if "content-type" in message.headers:
                    own["content-type"] = message.headers["content-type"]
                await self._send(message.body, own)

    def _send(self, body: bytes, headers: dict[str, str] | None = None) -> Deferred[None]:
        return self._client.send("/queue/out", body, headers)


def main(_: IReactorCore, host: str, port: str, case: str) -> Deferred[None]:
    """Run the agent; its failure is the program's."""
    hosts = os.environ.get("STOMPKIT_HOSTS", f"{host}:{port}").split(",")
    return Deferred.fromCoroutine(Agent(hosts).run())


react(main, sys.argv[1:])
