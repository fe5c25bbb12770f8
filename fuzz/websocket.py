"""STOMP over WebSocket: requests, messages in any pieces, pings and every end.

Steps are those of ``fuzz.stomp``. Besides, ``T`` and ``b`` send the bytes behind them as a text or
binary message, ``p`` as a ping, ``q`` as a pong, ``c`` as a close. ``f`` and ``F`` begin a message,
``K`` and ``k`` continue and end it, and ``z`` lets a minute pass. All other bytes are sent as they
are.
"""

from __future__ import annotations

import struct
from typing import Final, cast

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IProtocol, IReactorTime

from fuzz._brokers import Bystander, check_empty, check_queues, make_broker, step_of_stream
from fuzz._driver import main
from fuzz._input import chosen, script, steps
from fuzz._logs import no_errors
from stompkit.server.settings.websocket import WebSocketListener
from stompkit.server.websocket import WebSocketFactory
from stompkit.testing.memory import MemoryBroker
from stompkit.testing.memory._transport import HalfCloseableTransport, MemoryTransport

__all__ = ["SEEDS", "check"]

#: First bytes of frames of RFC 6455, section 5.2, before their lengths.
_OPCODES: Final = {
    "T": 0x81, "b": 0x82, "p": 0x89, "q": 0x8A, "c": 0x88, "f": 0x01, "F": 0x02, "k": 0x80,
    "K": 0x00,
}  # fmt: skip
_MASK: Final = b"\x11\x22\x33\x44"
_LISTENERS: Final = (
    WebSocketListener(endpoint="tcp:0"),
    WebSocketListener(endpoint="tcp:0", messages="text", path="/ws", ping_interval_s=5.0),
    WebSocketListener(
        endpoint="tcp:0", messages="binary", allow_origins=("https://a.example", "null")
    ),
    WebSocketListener(endpoint="tcp:0", max_handshake_bytes=1_024, ping_interval_s=0),
)


def _request(path: str = "/", *more: str) -> bytes:
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: x",
        "Upgrade: websocket",
        "Connection: keep-alive, Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


_CONNECT: Final = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"
_WORK: Final = (
    b"SUBSCRIBE\ndestination:/queue/a\nid:0\n\n\0"
    b"SEND\ndestination:/queue/a\nreceipt:1\n\n\xc3\xa9\0"
)
_BODIES: Final = (
    (_request("/", "Sec-WebSocket-Protocol: v12.stomp, v11.stomp"), "T" + _CONNECT.decode(),
     "T" + _WORK.decode(), "c\x03\xe8bye"),
    (_request("/ws"), "f" + _CONNECT[:9].decode(), "p1", "k" + _CONNECT[9:].decode(), "t", "e"),
    (_request("/", "Origin: null"), "b" + _CONNECT.decode(), "b" + _WORK.decode(), "x"),
    (_request("/", "Origin: http://evil"), "T"),
    (_request("/?a=b", "Sec-WebSocket-Extensions: permessage-deflate"), b"\x81\x05hello"),
    (_CONNECT,), (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",), (b"POST / HTTP/1.0\r\n\r\n",),
    (_request()[:40], _request()[40:], b"\x82\xfe\0\0", "t", "g"),
    (_request(), b"\x82\xff" + struct.pack("!Q", 2**63 - 1) + _MASK, "s", "pa", "pb", "g"),
    (_request(), "T" + _CONNECT.decode(), "s", "p1", "p2", "w", "z", "z", "z"),
    (_request(), "c", "Tlate"), (_request(), b"\x88\x81\x11\x22\x33\x44\0"),
    (_request(), "k", "T\x7f"), (b"\x16\x03\x01\0", "z"), (b"PROXY TCP4 ", "x"),
)  # fmt: skip
SEEDS: Final = tuple(
    script((number % 12 + extra, listener), *body)
    for number, body in enumerate(_BODIES)
    for extra, listener in ((0, number % 4), (16, 0), (64, 3))
)


class _Transport(MemoryTransport):
    """A stream to the loopback interface."""

    def getHost(self) -> IPv4Address:
        """Return the address that the client has connected to."""
        return IPv4Address("TCP", "127.0.0.1", 15_674)


class _HalfCloseable(HalfCloseableTransport, _Transport):
    """A transport on which the direction to the client can be closed alone."""

    def _end_read(self, protocol: IProtocol) -> None:
        # As in Twisted, for a protocol without support for half-closed connections.
        self.lose(ConnectionDone())


def check(data: bytes) -> None:
    """Run a script on one connection, beside a client of STOMP over TCP."""
    settings, listener, rest = *data[:2].ljust(2, b"\0"), data[2:]
    with no_errors():
        broker, config = make_broker(settings)
        bystander = Bystander(broker)
        transport = _open(broker, chosen(_LISTENERS, listener), half_close=not settings & 64)
        for what, text in steps(rest):
            bystander.beat()
            if what in _OPCODES and what:
                transport.deliver(_framed(_OPCODES[what], text))
            elif what == "z":
                broker.clock.advance(60)
                transport.deliver(text)
            elif what == "|" or step_of_stream(broker, transport, what):
                transport.deliver(text)
            else:
                transport.deliver(what.encode("latin-1") + text)
        bystander.check()
        transport.start_reading()
        transport.lose(ConnectionError())
        broker.clock.advance(20)
        bystander.check()
        bystander.close()
        check_empty(broker)
        check_queues(broker, config, is_exact=False)
        check_empty(broker)
        broker.broker.close()


def _open(
    broker: MemoryBroker, listener: WebSocketListener, *, half_close: bool
) -> MemoryTransport:
    clock = cast("IReactorTime", broker.clock)
    factory = broker._factory
    websockets = WebSocketFactory(factory, listener, clock)
    peer = IPv4Address("TCP", "127.0.0.1", 50_500)
    transport = (_HalfCloseable if half_close else _Transport)(broker.clock, peer)
    protocol = websockets.buildProtocol(peer)
    assert protocol is not None
    transport.open(protocol)
    return transport


def _framed(opcode: int, text: bytes) -> bytes:
    """Return a frame as a client has to send it: masked."""
    size = len(text)
    length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + struct.pack("!H", size)
    masked = bytes(octet ^ _MASK[at % 4] for at, octet in enumerate(text))
    return bytes((opcode,)) + length + _MASK + masked


if __name__ == "__main__":
    main(__file__)
