"""The agent for stompkit.testing's StompClient: ``stompkit_testing.py HOST PORT CASE``."""

from __future__ import annotations

import os
import sys
from itertools import count

from stompkit.frames import Frame
from stompkit.testing.client import StompClient

CANNOT = 77
FOREVER_S = 3_600.0
NUMBERS = count(1)


def work(client: StompClient) -> None:
    """Do what each message says, until one says that this is all."""
    mode = "client" if client.version == "1.0" else "client-individual"
    subscription = client.subscribe("/queue/in", ack=mode)
    while True:
        message = client.receive(FOREVER_S)
        word, _, rest = message.body.partition(b" ")
        match word:
            case b"quit":
                client.unsubscribe(subscription)
                client.disconnect()
                return
            case b"nack":
                client.nack(message)
                continue
            case b"subscribe":
                client.subscribe(rest.decode(), ack=mode)
            case b"describe":
                [(name, value)] = own_headers(message).items()
                client.send("/queue/out", f"{name}={value}")
            case b"header":
                name, _, value = rest.decode().partition("=")
                client.send("/queue/out", headers={name: value})
            case b"commit" | b"abort":
                name = f"transaction-{next(NUMBERS)}"
                client.begin(name)
                client.send("/queue/out", message.body, transaction=name)
                client.commit(name) if word == b"commit" else client.abort(name)
            case _:
                headers = own_headers(message)
                if "content-type" in message.headers:
                    headers["content-type"] = message.headers["content-type"]
                client.send("/queue/out", message.body, headers=headers)
        client.ack(message)


def own_headers(message: Frame) -> dict[str, str]:
    """The headers that begin with ``x-``."""
    return {name: value for name, value in message.headers.items() if name.startswith("x-")}


host, port, case = sys.argv[1:]
if "," in os.environ.get("STOMPKIT_HOSTS", ""):
    sys.exit(CANNOT)  # it knows of one server only
client = StompClient.connect(
    host,
    int(port),
    login="guest",
    passcode=r"gu:e\st",
    heart_beat="500,0",
)
work(client)
