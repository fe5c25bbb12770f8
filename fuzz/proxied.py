"""Headers of the PROXY protocol: alone in any chunks, and before a connection of STOMP."""

from __future__ import annotations

import struct
from ipaddress import IPv4Network
from typing import Final, cast

from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock

from fuzz._driver import main
from fuzz._input import pieces
from fuzz._logs import no_errors
from stompkit.server import BrokerFactory
from stompkit.server.listen.proxied import HEADER_TIMEOUT_S, HeaderFactory
from stompkit.server.listen.proxy_header import MAX_HEADER_BYTES, ProxyHeaderError, read_header
from stompkit.testing.memory._transport import HalfCloseableTransport

__all__ = ["SEEDS", "check"]

_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_CONNECT: Final = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
_PEER: Final = IPv4Address("TCP", "127.0.0.1", 50_000)
_PROXIES: Final = (IPv4Network("127.0.0.0/8"),)


def _version_2(command: int, family: int, payload: bytes) -> bytes:
    return _SIGNATURE + struct.pack("!BBH", command, family, len(payload)) + payload


_HEADERS: Final = (
    b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 61613\r\n",
    b"PROXY TCP6 2001:db8::7 2001:db8::1 65535 61613\r\n",
    b"PROXY UNKNOWN ffff:f...f:ffff 65535 65535\r\n",
    b"PROXY UNKNOWN\r\n",
    b"PROXY TCP6 ::ffff:192.0.2.7 ::1 0 1\r\n",
    _version_2(0x20, 0x00, b""),
    _version_2(0x21, 0x11, bytes.fromhex("c0000207c63364011388f0ad")),
    _version_2(0x21, 0x21, bytes.fromhex("20010db8" + "00" * 28 + "1388f0ad")),
    _version_2(0x21, 0x21, bytes(10) + b"\xff\xff\xc0\0\2\7" + bytes(20)),
    _version_2(0x21, 0x31, b"/run/a".ljust(108, b"\0") + b"/run/b".ljust(108, b"\0")),
    _version_2(0x21, 0x11, bytes(12) + b"\x04\0\x03abc\x20\0\5\1\0\0\0\0"),
    _version_2(0x21, 0x12, bytes(12)),
)
SEEDS: Final = tuple(
    bytes((number, 7, 40)) + each + _CONNECT for number, each in enumerate(_HEADERS)
)


def check(data: bytes) -> None:
    """Read a header whole and in pieces, then pass the connection to a broker."""
    sizes, wire = data[:3], data[3:]
    whole = _read(wire)
    for end in range(min(len(wire), MAX_HEADER_BYTES + 20)):
        early = _read(wire[:end])
        # Further bytes never change a complete header, nor make a wrong one valid.
        assert early == "more" or early == whole, (early, whole)
    if len(wire) >= MAX_HEADER_BYTES:
        assert whole != "more"
    clock = Clock()
    reactor = cast("IReactorTime", clock)
    broker = BrokerFactory(None, reactor)
    broker.broker.open()
    factory = HeaderFactory(broker, _PROXIES, reactor)
    with no_errors():
        protocol = factory.buildProtocol(_PEER)
        assert protocol is not None
        transport = HalfCloseableTransport(clock, _PEER)
        transport.open(protocol)
        for piece in pieces(wire, sizes):
            transport.deliver(piece)
        waits = whole == "more"
        assert factory.waiting == waits
        clock.advance(HEADER_TIMEOUT_S + 1)
        assert factory.waiting == 0
        assert transport.lost or whole not in ("bad", "more")
        clock.advance(60)
        transport.lose(ConnectionError())
        assert not broker.broker.connections


def _read(data: bytes) -> object:
    try:
        header = read_header(data)
    except ProxyHeaderError as error:
        assert str(error)
        return "bad"
    if header is None:
        return "more"
    assert 0 < header.length <= min(len(data), MAX_HEADER_BYTES)
    return header


if __name__ == "__main__":
    main(__file__)
