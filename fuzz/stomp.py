"""A whole broker: scripts of several clients, who may do anything, and a well-behaved one.

The bytes of a script are sent by a client, one chunk at a time, with steps in between. ``0`` to
``4`` switch to another client. ``t``, ``T`` and ``d`` let a second, a minute or a day pass. ``e``
closes the client's end, ``x`` cuts the connection. ``s`` and ``S`` stop reading, ``w`` reads
pending data, ``g`` resumes reading. ``a`` stands for the id that acknowledges a received message,
``m`` for its destination; the letter after them selects the message.
"""

from __future__ import annotations

from typing import Final

from fuzz._brokers import Bystander, check_empty, check_queues, make_broker, step_of_stream
from fuzz._driver import main
from fuzz._input import script, steps
from fuzz._logs import no_errors
from stompkit.testing.memory import MemoryClient

__all__ = ["SEEDS", "check"]

_CLIENTS: Final = "01234"
#: Headers that limit the lifetime of messages, or delay them.
_MORTAL: Final = (b"expir", b"ttl", b"AMQ_SCHEDULED", b"delay")


def _connect(version: str = "1.2", more: str = "") -> bytes:
    return f"CONNECT\naccept-version:{version}\nhost:h\n{more}\n\0".encode()


def _subscribe(name: str, id: str = "0", more: str = "") -> bytes:
    return f"SUBSCRIBE\ndestination:{name}\nid:{id}\n{more}\n\0".encode()


def _send(name: str, more: str = "", body: str = "x") -> bytes:
    return f"SEND\ndestination:{name}\n{more}\n{body}\0".encode()


_BODIES: Final = (
    (
        _connect() + _subscribe("/queue/a", more="ack:client-individual\n"),
        _send("/queue/a", "receipt:1\n") + _send("/queue/a"),
        b"ACK\nid:", "aa", b"\n\n\0NACK\nid:", "ab", b"\n\n\0DISCONNECT\nreceipt:2\n\n\0",
    ),
    (
        _connect("1.1") + b"BEGIN\ntransaction:t\n\n\0",
        _send("/queue/a", "transaction:t\n") + _send("/topic/b", "transaction:t\n"),
        b"COMMIT\ntransaction:t\nreceipt:c\n\n\0BEGIN\ntransaction:u\n\n\0",
        _send("/queue/a", "transaction:u\n") + b"ABORT\ntransaction:u\n\n\0",
        "1", _connect("1.0") + _subscribe("/queue/a", more="ack:client\n"),
        b"ACK\nmessage-id:", "aa", b"\nsubscription:0\n\n\0", "x", "0", "e",
    ),
    (
        _connect(more="heart-beat:1000,1000\n") + _subscribe("/topic/>", more="selector:a > 1\n"),
        "1", _connect() + _send("/topic/x.y", "a:2\n") + _send("/topic/z", "a:1\n"),
        "t", "t", b"\n", "T", "0", "e",
    ),
    (
        _connect() + _subscribe("/temp-queue/r") + _send("/queue/q", "reply-to:/temp-queue/r\n"),
        "1", _connect() + _subscribe("/queue/q"), b"SEND\ndestination:", "ma", b"\n\nanswer\0",
    ),
    (
        _connect(more="client-id:c\n")
        + _subscribe("/topic/n", more="activemq.subscriptionName:n\n"),
        "x", "1", _connect() + _send("/topic/n") * 3,
        "2", _connect(more="client-id:c\n"),
        _subscribe("/topic/n", more="activemq.subscriptionName:n\nack:client\n"),
        b"UNSUBSCRIBE\nid:0\ndurable:true\nactivemq.subscriptionName:n\n\n\0", "d",
    ),
    (
        _connect() + _subscribe("/queue/a", more="ack:client\nprefetch-count:1\n"), "s",
        "1", _connect() + _send("/queue/a", "persistent:true\npriority:9\n", "x" * 200) * 4,
        _send("/queue/a", "expires:1000\n") + _send("/queue/a", "AMQ_SCHEDULED_DELAY:5000\n"),
        "0", "w", "t", "g", "T", b"ACK\nid:", "aa", b"\n\n\0", "x",
    ),
    (
        _connect() + _subscribe("/queue/a", "1", "browser:true\n") + _subscribe("/queue/*", "2"),
        _send("/queue/a", "JMSXGroupID:g\n") * 2 + _send("/fanout/f") + b"UNSUBSCRIBE\nid:2\n\n\0",
        _send("/dlq/a") + _subscribe("/dlq/a", "3", "ack:client-individual\n"), "S", "g", "e",
    ),
    (b"GET / HTTP/1.1\r\n\r\n", "1", b"\x16\x03\x01\0", "2", b"STOMP\n\n\0CONNECT\n\n\0", "T"),
    (b"CONNECT\naccept-version:9\n\n\0", "1", _connect("1.1", "heart-beat:x\n"), "2", b"SEND\n\0"),
)  # fmt: skip
SEEDS: Final = tuple(
    script((settings,), *body)
    for number, body in enumerate(_BODIES)
    for settings in (number % 12, 16 + (number + 5) % 12, 16 + 32 + 64 + (number + 8) % 12)
)


def check(data: bytes) -> None:
    """Run a script, and check the final state."""
    settings, rest = (data or b"\0")[0], data[1:]
    with no_errors():
        broker, config = make_broker(settings)
        bystander = Bystander(broker)
        clients: dict[str, MemoryClient] = {}
        now = "0"
        held = b""
        for step in steps(rest):
            what, text = step
            client = clients.get(now) or clients.setdefault(now, broker.connect())
            if what in ("a", "m"):
                held += _told_of(client, what, text[:1]) + text[1:]
                continue
            if held:
                client.write(held)
                held = b""
            if what in _CLIENTS:
                now = what
                client = clients.get(now) or clients.setdefault(now, broker.connect())
            elif what == "|":
                pass
            elif not step_of_stream(broker, client.transport, what):
                text = what.encode("latin-1") + text
            bystander.beat()
            held = text
        if held:
            clients[now].write(held)
        bystander.check()
        for client in clients.values():
            _check_stream(client)
            client.close()
        broker.clock.advance(20)
        bystander.check()
        bystander.close()
        check_empty(broker)
        is_exact = not (config.message_ttl_s or any(each in data for each in _MORTAL))
        check_queues(broker, config, is_exact=is_exact)
        check_empty(broker)
        broker.broker.close()


def _told_of(client: MemoryClient, what: str, which: bytes) -> bytes:
    """Return the ack id or destination of a received message; *which* counts back from ``a``."""
    messages = [frame for frame in client.frames if frame.command == "MESSAGE"]
    number = (which or b"a")[0] - ord("a")
    if not 0 <= number < len(messages):
        return b"none"
    headers = messages[-1 - number].headers
    name = headers.get("reply-to", headers["destination"])
    if what == "a":
        name = headers.get("ack", headers["message-id"])
    return name.encode("utf-8", "surrogateescape")


def _check_stream(client: MemoryClient) -> None:
    """Check that all received bytes can be decoded, and that nothing follows an ERROR."""
    client.start_reading()
    frames = client.frames
    errors = [number for number, frame in enumerate(frames) if frame.command == "ERROR"]
    assert errors in ([], [len(frames) - 1]), frames
    if errors:
        assert frames[-1].headers["stompkit-code"]
        assert client.eof or client.lost, frames[-1]


if __name__ == "__main__":
    main(__file__)
