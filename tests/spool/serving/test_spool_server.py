"""The server of a spool, in memory: tokens, limits, and memory."""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path
from typing import Any, Final, cast

import pytest
from twisted.internet.address import IPv4Address

from stompkit.spool.serving.resource import CHUNK, STALL_S
from stompkit.spool.serving.server import MOST_CONNECTIONS, site_of
from stompkit.spool.serving.tokens import Tokens
from stompkit.spool.serving.wire import MOST_BODY
from stompkit.testing.memory import MemoryBroker, MemoryTransport
from tests.server.admin.asking import Answer
from tests.spool.made import fill
from tests.spool.serving.servers import TOKEN, token_file

_PEER: Final = IPv4Address("TCP", "10.0.0.7", 40_000)
_HEAD: Final = re.compile(rb"HTTP/1\.1 (\d+) .*?\r\n(.*?)\r\n\r\n", re.DOTALL)


class Server:
    """A server of a spool, without network."""

    def __init__(self, spool: Path, token: Path) -> None:
        """Create the server; its clock stands still."""
        self.clock = MemoryBroker().clock
        self.site = site_of(spool, Tokens(token), cast("Any", self.clock))

    def connect(self) -> MemoryTransport | None:
        """Return a connection; None if there are too many."""
        protocol = self.site.buildProtocol(_PEER)
        if protocol is None:
            return None
        transport = MemoryTransport(self.clock, _PEER)
        transport.open(protocol)
        return transport

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        token: str | None = TOKEN,
        body: bytes = b"",
        kind: str = "Bearer",
    ) -> Answer:
        """Send a request on a new connection, and return the answer."""
        transport = self.connect()
        assert transport is not None
        transport.deliver(request(path, method=method, token=token, body=body, kind=kind))
        found = answer_in(transport.take())
        transport.end()
        return found


def request(
    path: str,
    *,
    method: str = "GET",
    token: str | None = TOKEN,
    body: bytes = b"",
    kind: str = "Bearer",
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: spool", f"content-length: {len(body)}"]
    if token is not None:
        lines.append(f"authorization: {kind} {token}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def answer_in(octets: bytes) -> Answer:
    head = _HEAD.match(octets)
    assert head is not None, octets
    pairs = (line.partition(b": ") for line in head[2].split(b"\r\n"))
    headers = {name.decode().lower(): value.decode() for name, _, value in pairs}
    return Answer(int(head[1]), headers, octets[head.end() :])


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    fill(tmp_path / "spool", 5, 5, segment_bytes=100)
    return tmp_path / "spool"


@pytest.fixture
def server(spool: Path) -> Server:
    return Server(spool, token_file(spool.parent))


def test_the_spool_is_described(server: Server, spool: Path) -> None:
    found = server.ask("/v1/spool")
    identity = json.loads((spool / "spool.json").read_text())["id"]
    assert found.json == {"id": identity, "partitions": 1, "head": [10]}
    assert found.headers["stompkit-spool"] == identity
    listed = server.ask("/v1/partitions/0/segments").json["segments"]
    assert listed == [[0, "log"], [5, "log"]]


def test_octets_of_a_segment_come_with_the_size_of_the_file_and_a_checksum(
    server: Server, spool: Path
) -> None:
    path = spool / "p0" / f"{0:020}.log"
    octets = path.read_bytes()
    for start, end in ((0, 10), (5, 5), (100, 10**18), (10**17, 10**18), (0, len(octets))):
        found = server.ask(f"/v1/partitions/0/segments/0/log?start={start}&end={end}")
        assert (found.status, found.body[:-4]) == (200, octets[start:end])
        assert found.headers["stompkit-size"] == str(len(octets))
    index = path.with_name(path.name + ".idx").read_bytes()
    found = server.ask("/v1/partitions/0/segments/0/log.idx?start=8&end=1000")
    assert found.body == index[8:]


# Requests that are refused.


@pytest.mark.parametrize(
    ("token", "kind"),
    [
        (None, "Bearer"),
        ("", "Bearer"),
        (TOKEN[:-1], "Bearer"),
        (f"{TOKEN}x", "Bearer"),
        (TOKEN, "Basic"),
        ("\xff\xfe", "Bearer"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/spool", "/", "/v1/partitions/0/segments/0/log"])
def test_nothing_is_said_without_a_token(
    server: Server, path: str, token: str | None, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        found = server.ask(path, token=token, kind=kind)
        assert (found.status, found.json["code"]) == (401, "unauthorised")
        assert "stompkit-spool" not in found.headers
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warnings == ["refused a request of 10.0.0.7: its token is wrong"]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/partitions/0/segments/../../spool.json?start=0&end=9", 404, "no-such-path"),
        ("/v1/partitions/0/segments/%2e%2e%2fspool/json?start=0&end=9", 404, "no-such-path"),
        ("/v1/partitions/0/segments/0/json?start=0&end=9", 404, "no-such-path"),
        ("/v1/partitions/0/segments/0/tmp.arrow?start=0&end=9", 404, "no-such-path"),
        ("/v1/partitions/-1/segments", 404, "no-such-path"),
        (f"/v1/partitions/{'9' * 20}/segments", 404, "no-such-path"),
        ("/v1/partitions/1/segments", 400, "bad-partition"),
        ("/v1/partitions/7/segments/0/log?start=0&end=9", 400, "bad-partition"),
        ("/v1/partitions/0/segments/0/log", 400, "bad-range"),
        ("/v1/partitions/0/segments/0/log?start=9&end=8", 400, "bad-range"),
        ("/v1/partitions/0/segments/0/log?start=-9&end=8", 400, "bad-range"),
        ("/v1/partitions/0/segments/0/log?start=1&start=2&end=8", 400, "bad-range"),
        ("/v1/partitions/0/segments/3/log?start=0&end=9", 410, "removed"),
        ("/v1/partitions/0/segments/0/arrow?start=0&end=9", 410, "removed"),
        ("/lock", 404, "no-such-path"),
    ],
)
def test_a_request_can_only_name_segments(
    server: Server, path: str, status: int, code: str
) -> None:
    found = server.ask(path)
    assert (found.status, found.json["code"]) == (status, code)


def test_methods_and_bodies_are_checked(server: Server, spool: Path) -> None:
    assert server.ask("/v1/spool", method="POST").status == 405
    assert server.ask("/v1/readers/shop").status == 405
    for body in (b"", b"[", b'{"p": [-1]}', b'{"p": [1], "x": 2}', b'{"p": [1, 2]}'):
        assert server.ask("/v1/readers/shop", method="POST", body=body).status == 400
    for name in ("..%2fx", "a/b", "x" * 101):
        assert server.ask(f"/v1/readers/{name}", method="POST", body=b'{"p": [1]}').status == 404
    large = b" " * (MOST_BODY + 1)
    assert server.ask("/v1/readers/shop", method="POST", token=None, body=large).status == 413
    assert not (spool / "readers").exists()


def test_a_folder_without_spool_is_an_error_and_not_the_end(server: Server, spool: Path) -> None:
    moved = spool.rename(spool.with_name("moved"))
    found = server.ask("/v1/spool")
    assert (found.status, found.json["code"]) == (500, "broken")
    moved.rename(spool)
    assert server.ask("/v1/spool").status == 200


# Tokens.


def test_a_token_can_be_replaced_while_the_server_runs(
    server: Server, spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new = "the-next-token-0123456789"

    def accepted() -> list[bool]:
        return [server.ask("/v1/spool", token=each).status == 200 for each in (TOKEN, new)]

    assert accepted() == [True, False]
    file = token_file(spool.parent, TOKEN, new)
    assert accepted() == [True, True]
    token_file(spool.parent, new)
    assert accepted() == [False, True]
    os.unlink(file)
    assert accepted() == [False, True]
    assert "the former tokens stay in use" in caplog.text
    token_file(spool.parent, "short")
    assert accepted() == [False, True]
    token_file(spool.parent)
    assert accepted() == [True, False]
    assert new not in caplog.text


# Limits.


def test_connections_are_limited_before_a_token_is_known(server: Server) -> None:
    connections = [server.connect() for _ in range(MOST_CONNECTIONS)]
    assert all(each is not None for each in connections)
    assert server.connect() is None
    assert connections[0] is not None
    connections[0].end()
    assert server.connect() is not None


def test_a_connection_without_a_request_is_closed(server: Server) -> None:
    idle, slow = server.connect(), server.connect()
    assert idle is not None and slow is not None
    slow.deliver(b"GET /v1/spool HTTP/1.1\r\n")
    server.clock.advance(61.0)
    assert idle.eof or idle.lost
    assert slow.eof or slow.lost


def test_a_client_that_reads_slowly_occupies_one_chunk_of_memory(
    server: Server, spool: Path
) -> None:
    path = spool / "p0" / f"{0:020}.log"
    with path.open("ab") as file:
        file.write(os.urandom(10 * CHUNK))
    octets = path.read_bytes()
    slow, gone = server.connect(), server.connect()
    assert slow is not None and gone is not None
    for each in (slow, gone):
        each.stop_reading(65_536)
        each.deliver(request(f"/v1/partitions/0/segments/0/log?start=0&end={len(octets)}"))
    found = b""
    for _ in range(30):
        assert slow.unread_bytes <= 2 * CHUNK
        # The time of a client that still receives begins again.
        server.clock.advance(STALL_S / 2)
        slow.read_waiting()
        found += slow.take()
    assert answer_in(found).body[:-4] == octets
    assert gone.lost and not slow.aborted
