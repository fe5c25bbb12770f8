"""``haproxy:`` endpoints: addresses of clients behind a load balancer."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from stompkit.server import BrokerConfig, BrokerFactory
from stompkit.server.listen.proxied import (
    HEADER_TIMEOUT_S,
    MOST_WAITING,
    HeaderFactory,
    HeaderProtocol,
)
from stompkit.server.listen.proxy_header import MAX_HEADER_BYTES, ProxyHeaderError, read_header
from stompkit.server.operations import SettingsError, parse_settings
from tests.server.certificates import Authority
from tests.server.processes import (
    CONNECT,
    DEADLINE_S,
    LOOPBACK,
    TWISTD,
    Process,
    Start,
    announced,
    processes,
    talk,
    tcp,
)

SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")
V1 = b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 61613\r\n"
CLIENT = IPv4Address("TCP", "192.0.2.7", 5000)
TARGET = IPv4Address("TCP", "198.51.100.1", 61613)


def v2(family: int, payload: bytes, command: int = 0x21) -> bytes:
    return SIGNATURE + struct.pack("!BBH", command, family, len(payload)) + payload


def inet(source: str, target: str, *ports: int) -> bytes:
    packed = b"".join(ipaddress.ip_address(each).packed for each in (source, target))
    return packed + struct.pack("!HH", *ports)


V2 = v2(0x11, inet("192.0.2.7", "198.51.100.1", 5000, 61613))
V6 = v2(0x21, inet("2001:db8::7", "2001:db8::1", 5000, 61613))
UNIX = v2(0x31, b"/run/a".ljust(108, b"\0") + b"/run/b".ljust(108, b"\0"))
TLV = v2(0x11, inet("192.0.2.7", "198.51.100.1", 5000, 61613) + b"\x04\0\x03abc")


# Headers.


@pytest.mark.parametrize(
    ("octets", "source"),
    [
        (V1, CLIENT),
        (V2, CLIENT),
        (TLV, CLIENT),
        (V6, IPv6Address("TCP", "2001:db8::7", 5000)),
        (b"PROXY TCP6 2001:DB8::7 ::1 5000 0\r\n", IPv6Address("TCP", "2001:db8::7", 5000)),
        (b"PROXY TCP6 ::ffff:192.0.2.7 ::1 5000 1\r\n", CLIENT),
        (v2(0x21, inet("::ffff:192.0.2.7", "::1", 5000, 1)), CLIENT),
        (UNIX, UNIXAddress(b"/run/a")),
        # Local connections, and unknown protocols.
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff::1 whatever 1 2\r\n", None),
        (v2(0x11, b"", command=0x20), None),
        (v2(0x00, b""), None),
        (v2(0x12, b"a datagram"), None),
        (v2(0x13, b"xx"), None),
        (v2(0xFF, b"xx"), None),
    ],
)
def test_a_header_is_read_however_it_is_cut(octets: bytes, source: object) -> None:
    for end in range(len(octets)):
        assert read_header(octets[:end]) is None
    header = read_header(octets + b"CONNECT\n")
    assert header is not None
    assert (header.length, header.source) == (len(octets), source)


@pytest.mark.parametrize(
    "octets",
    [
        b"CONNECT\n",
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01",
        b"\r\n\r\nx",
        b"\0",
        b"PROXY TCP4 192.0.2.7\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 65536\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 05 1\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 -1 1\r\n",
        b"PROXY TCP4 192.0.2.777 198.51.100.1 5000 1\r\n",
        b"PROXY TCP4 ::1 ::1 5000 1\r\n",
        b"PROXY TCP6 192.0.2.7 198.51.100.1 5000 1\r\n",
        b"PROXY TCP4 evil\nline 198.51.100.1 5000 1\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 1 more\r\n",
        b"PROXY UDP4 192.0.2.7 198.51.100.1 5000 1\r\n",
        b"PROXY UNKNOWN\xff\r\n",
        b"PROXY " + b"x" * 200,
        b"PROXY UNKNOWN " + b"x" * 93 + b"\r\n",
        SIGNATURE + b"\x11\x11\0\x0c",
        SIGNATURE + b"\x22\x11\0\x0c",
        SIGNATURE + b"\x31\x11\0\x0c",
        v2(0x11, b"short"),
        v2(0x21, b"x" * 35),
        v2(0x31, b"x" * 215),
        SIGNATURE + struct.pack("!BBH", 0x21, 0x11, MAX_HEADER_BYTES - 15),
        SIGNATURE + b"\x21\x11\xff\xff",
    ],
)
def test_what_is_no_header_is_told_from_one_that_is_not_whole(octets: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        read_header(octets)


# Connections.


class Door:
    """A broker behind a load balancer, in memory."""

    def __init__(self, *proxies: str, **settings: object) -> None:
        """Start without clients."""
        self.clock = Clock()
        self.broker = BrokerFactory(BrokerConfig().changed(**settings), self.clock)
        networks = [ipaddress.ip_network(proxy) for proxy in proxies]
        self.factory = HeaderFactory(self.broker, networks, self.clock)

    def knock(self, octets: bytes, host: str = "10.0.0.9") -> tuple[HeaderProtocol, Any]:
        """Connect, and send bytes one by one."""
        address = IPv4Address("TCP", host, 1)
        protocol = self.factory.buildProtocol(address)
        assert isinstance(protocol, HeaderProtocol)
        transport: Any = Transport(peerAddress=address)  # type: ignore[no-untyped-call]  # Twisted's
        protocol.makeConnection(transport)  # type: ignore[no-untyped-call]  # Twisted's
        for number in range(len(octets)):
            protocol.dataReceived(octets[number : number + 1])
        return protocol, transport


class Transport(StringTransport):
    """A transport that can be aborted."""

    def abortConnection(self) -> None:
        """Abort the connection."""
        self.disconnecting = True

    def loseWriteConnection(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("header", [V1, V2, TLV])
def test_clients_are_counted_by_the_addresses_that_they_have(header: bytes) -> None:
    door = Door(max_connections_per_address=1)
    _, first = door.knock(header + CONNECT)
    _, second = door.knock(V6 + CONNECT)
    _, third = door.knock(header + CONNECT)
    _, fourth = door.knock(b"PROXY UNKNOWN\r\n" + CONNECT)
    assert first.value().startswith(b"CONNECTED\n")
    assert second.value().startswith(b"CONNECTED\n")
    assert b"too-many-connections" in third.value()
    assert fourth.value().startswith(b"CONNECTED\n")
    assert {each.peer for each in door.broker.broker.connections} == {
        "192.0.2.7",
        "2001:db8::7",
        "10.0.0.9",
    }


def test_a_header_has_to_be_there_in_time() -> None:
    door = Door()
    _, slow = door.knock(V1[:-1])
    _, quick = door.knock(V1)
    assert door.factory.waiting == 1
    door.clock.advance(HEADER_TIMEOUT_S)
    assert slow.disconnecting
    assert not quick.disconnecting
    assert slow.value() == b""
    assert door.factory.waiting == 0
    # The login timeout of the client starts after the header.
    door.clock.advance(5)
    assert b"login-timeout" in quick.value()


@pytest.mark.parametrize("octets", [CONNECT, b"PROXY TCP4 nonsense\r\n" + CONNECT, b"\0" * 5_000])
def test_who_sends_something_else_is_cut_and_makes_nothing(octets: bytes) -> None:
    door = Door()
    protocol, transport = door.knock(octets)
    assert transport.disconnecting
    assert transport.value() == b""
    assert not door.broker.broker.connections
    protocol.connectionLost()
    assert door.factory.waiting == 0
    assert door.clock.getDelayedCalls() == []


def test_only_so_many_can_wait_for_their_header() -> None:
    door = Door()
    door.factory.waiting = MOST_WAITING
    assert door.factory.buildProtocol(IPv4Address("TCP", "10.0.0.9", 1)) is None


@pytest.mark.parametrize(
    ("host", "is_let_in"),
    [("10.0.0.9", True), ("10.0.1.9", False), ("192.0.2.1", True), ("192.0.2.2", False)],
)
def test_only_the_load_balancers_are_let_in(host: str, is_let_in: object) -> None:
    door = Door("10.0.0.0/24", "192.0.2.1", "2001:db8::/32")
    made = door.factory.buildProtocol(IPv4Address("TCP", host, 1))
    assert (made is not None) is is_let_in


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('endpoint = "tcp:1"\nproxies = ["10.0.0.1"]', "goes with an endpoint that begins with"),
        ('endpoint = "haproxy:tcp:1"\nproxies = ["10.0.0.1/8"]', "has host bits set"),
        ('endpoint = "haproxy:tcp:1"\nproxies = ["mq"]', "does not appear to be an IPv4 or IPv6"),
        ('endpoint = "haproxy:nonsense:1"', "cannot listen on haproxy:nonsense:1"),
    ],
)
def test_a_mistake_in_the_settings_is_told(text: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        parse_settings(f"[[listen]]\n{text}", "f")


# Processes.


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts commands, and ends all that still run."""
    (tmp_path / "run").mkdir()
    with processes(tmp_path / "run") as start:
        yield start


def running(start: Start, tmp_path: Path, settings: str) -> tuple[Process, socket.socket]:
    """Start a broker with these settings; return it with a connection to it."""
    file, announce = tmp_path / "f.toml", tmp_path / "announce"
    file.write_text(settings)
    process = start(TWISTD, "--config", str(file), "--announce", str(announce))
    [where] = announced(process, announce)
    return process, tcp(where)


def test_the_log_has_the_address_of_the_client(start: Start, tmp_path: Path) -> None:
    settings = f'[[listen]]\nendpoint = "haproxy:{LOOPBACK}"\nproxies = ["127.0.0.0/8"]'
    process, client = running(start, tmp_path, settings)
    answer = talk(client, V1 + CONNECT + b"NONSENSE\n\n\0")
    assert answer.startswith(b"CONNECTED\n")
    assert b"stompkit-code:unknown-command" in answer
    process.wait_for("refused: unknown-command")
    assert "192.0.2.7:" in process.log
    process.terminate()
    assert "Traceback" not in process.log


def test_who_is_no_load_balancer_is_turned_away(start: Start, tmp_path: Path) -> None:
    settings = f'[[listen]]\nendpoint = "haproxy:{LOOPBACK}"\nproxies = ["192.0.2.1"]'
    process, client = running(start, tmp_path, settings)
    try:
        assert talk(client, V1 + CONNECT) == b""
    except ConnectionError:
        pass
    process.wait_for("it is not one of the proxies of this endpoint")


@pytest.mark.parametrize("kind", ["stomps", "ssl"])
def test_the_header_comes_before_tls(start: Start, tmp_path: Path, kind: str) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    authority = Authority(keys, "ca")
    file = authority.server()
    named = f"certificate={file}" if kind == "stomps" else f"privateKey={file}:certKey={file}"
    endpoint = f"haproxy:{kind}:0:interface=127.0.0.1:{named}"
    process, plain = running(start, tmp_path, f'[[listen]]\nendpoint = "{endpoint}"')
    context = ssl.create_default_context(cafile=str(authority.file))
    with plain:
        plain.settimeout(DEADLINE_S)
        plain.sendall(V2)
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as client:
            client.sendall(CONNECT)
            assert client.recv(65_536).startswith(b"CONNECTED\n")
            client.sendall(b"NONSENSE\n\n\0")
            process.wait_for("refused: unknown-command")
    assert "192.0.2.7:" in process.log


def test_an_endpoint_that_believes_everybody_is_warned_of(start: Start, tmp_path: Path) -> None:
    process, client = running(start, tmp_path, '[[listen]]\nendpoint = "haproxy:tcp:0"')
    client.close()
    assert "list the load balancers in proxies" in process.log
