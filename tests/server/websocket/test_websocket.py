"""STOMP over WebSocket in memory: requests, messages split and merged, pings, and every end."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import capturedLogs, formatEvent
from wsproto.events import CloseConnection, Ping, Pong

from stompkit.frames import FrameDecoder, Limits
from stompkit.server import BrokerConfig
from stompkit.server.listen.origins import Origins
from stompkit.server.settings.websocket import WebSocketListener
from tests.server.websockets import CONNECT, SUBPROTOCOLS, WebSocketBroker, WebSocketClient

TEXT = CONNECT.decode()
SEND = "SEND\ndestination:/queue/a\nreceipt:{0}\n\nbody {0}\0"
REQUEST = (
    "GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: {version}\r\n\r\n"
)


def http(octets: bytes, path: str = "/") -> tuple[int, str, str]:
    """Send bytes and check that the connection ends; return status, headers and body."""
    broker = WebSocketBroker(path=path)
    stream = broker.stream()
    stream.deliver(octets)
    assert stream.eof
    broker.clock.advance(0)
    assert stream.lost
    assert broker.factory.broker.connections == set()
    head, _, body = stream.take().decode().partition("\r\n\r\n")
    status = re.match(r"HTTP/1\.1 (\d+) ", head)
    assert status is not None, head
    assert f"Content-Length: {len(body)}" in head
    return int(status[1]), head, body


def receipts(client: WebSocketClient) -> list[str]:
    return [frame.headers["receipt-id"] for frame in client.take("RECEIPT")]


# The request.


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (SUBPROTOCOLS, "v12.stomp"),
        (("v10.stomp", "v11.stomp"), "v11.stomp"),
        (("mqtt", "v10.stomp"), "v10.stomp"),
        ((), None),
    ],
)
def test_the_best_sub_protocol_is_chosen(offered: tuple[str, ...], chosen: str | None) -> None:
    client = WebSocketBroker().connect(offered)
    assert client.accepted is not None
    assert client.accepted.subprotocol == chosen
    client.send(TEXT)
    assert [frame.command for frame in client.take()] == ["CONNECTED"]


def test_sub_protocols_may_be_in_several_headers() -> None:
    stream = WebSocketBroker().stream()
    several = "Sec-WebSocket-Protocol: mqtt\r\nsec-websocket-protocol: x, v11.stomp\r\n\r\n"
    request = REQUEST.format(path="/", version=13).removesuffix("\r\n") + several
    stream.deliver(request.encode())
    assert b"sec-websocket-protocol: v11.stomp\r\n" in stream.take().lower()


def test_unknown_sub_protocols_only_are_refused() -> None:
    client = WebSocketBroker().connect(["mqtt", "V12.STOMP"])
    assert client.rejected is not None
    assert client.rejected.status_code == 400
    assert b"v12.stomp, v11.stomp, v10.stomp" in client.body


@pytest.mark.parametrize("subprotocols", [["v12.stomp"], ["v10.stomp"], []])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_connect_decides_on_the_version(subprotocols: list[str], version: str) -> None:
    client = WebSocketBroker().connect(subprotocols)
    client.send(f"CONNECT\naccept-version:{version}\nhost:x\n\n\0")
    [connected] = client.take("CONNECTED")
    assert connected.headers["version"] == version


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_a_request_may_come_in_pieces(size: int) -> None:
    stream = WebSocketBroker().stream()
    octets = REQUEST.format(path="/?token=1", version=13).encode()
    for start in range(0, len(octets), size):
        stream.deliver(octets[start : start + size])
    assert stream.take().startswith(b"HTTP/1.1 101 ")


def test_messages_may_come_with_the_request() -> None:
    broker = WebSocketBroker()
    stream, other = broker.stream(), broker.connect()
    stream.deliver(REQUEST.format(path="/", version=13).encode() + other.octets(TEXT))
    _, _, rest = stream.take().partition(b"\r\n\r\n")
    assert rest[2:].startswith(b"CONNECTED\n")


@pytest.mark.parametrize(
    ("octets", "status", "words"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 426, "speaks STOMP over WebSocket"),
        (b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", 405, "no web pages"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", 405, "no web pages"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "no HTTP/1.1"),
        (b"nonsense\r\n\r\n", 400, "no HTTP/1.1"),
        (b"\xff\x00\n\n", 400, "no HTTP/1.1"),
        (b"GET / HTTP/1.1\r\nHost: " + b"x" * 64 + b".y\xff\r\n\r\n", 426, "WebSocket"),
        (REQUEST.format(path="/", version=8).encode(), 426, "RFC 6455"),
        (REQUEST.format(path="/ws", version=13).encode(), 404, "at the path /,"),
        (
            REQUEST.format(path="/", version=13).encode()[:-2]
            + b"Sec-WebSocket-Protocol: v12.stomp, \xff\r\n\r\n",
            400,
            "this is none",
        ),
        (
            re.sub("Sec-WebSocket-Key.*\r\n", "", REQUEST.format(path="/", version=13)).encode(),
            400,
            "Sec-WebSocket-Key",
        ),
        (b"\x16\x03\x01\x02\x00\x01", 400, "TLS handshake"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET", 400, "haproxy:"),
        (b"GET / HTTP/1.1\r\nCookie: " + b"x" * 20_000, 431, "too long"),
    ],
)
def test_what_asks_for_no_websocket_is_told_what_this_is(
    octets: bytes, status: int, words: str
) -> None:
    got, head, body = http(octets)
    assert (got, words in body) == (status, True), body
    assert ("Upgrade: websocket" in head) == (status == 426)


def test_a_path_of_its_own() -> None:
    broker = WebSocketBroker(path="/stomp")
    client = WebSocketClient(broker, broker.stream())
    client.ask(target="/stomp?x=1")
    assert client.accepted is not None
    assert http(REQUEST.format(path="/", version=13).encode(), path="/stomp")[0] == 404


@pytest.mark.parametrize("octets", [CONNECT, b"\n\nSTOMP\r\nhost:x\r\n\r\n\0"])
def test_stomp_without_a_websocket_is_answered_in_stomp(octets: bytes) -> None:
    stream = WebSocketBroker().stream()
    stream.deliver(octets)
    [error] = FrameDecoder("1.0").feed(stream.take())
    assert error.headers["stompkit-code"] == "wrong-protocol"
    assert "over WebSocket" in error.headers["message"]
    assert stream.eof


def test_the_log_says_who_gets_none_and_why() -> None:
    with capturedLogs() as logs:
        http(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    [line] = [formatEvent(event) for event in logs]
    assert "127.0.0.1" in line
    assert "gets no WebSocket: This port speaks STOMP over WebSocket" in line


# Origins.


@pytest.mark.parametrize(
    ("allowed", "origin", "host", "at", "is_let_in"),
    [
        ((), None, "127.0.0.1:15674", "127.0.0.1", True),
        ((), "http://127.0.0.1:8000", "127.0.0.1:15674", "127.0.0.1", True),
        ((), "http://localhost:8000", "localhost:15674", "127.0.0.1", True),
        ((), "http://app.localhost", "app.localhost:15674", "127.0.0.1", True),
        ((), "http://[::1]:8000", "[::1]:15674", "127.0.0.1", True),
        ((), "http://localhost:8000", "127.0.0.1:15674", "127.0.0.1", False),
        ((), "http://evil.example", "127.0.0.1:15674", "127.0.0.1", False),
        # An attacker's name that resolves to this machine.
        ((), "http://evil.example:15674", "evil.example:15674", "127.0.0.1", False),
        ((), "https://mq.example", "mq.example:15674", "192.0.2.1", True),
        ((), "https://MQ.example", "mq.Example", "192.0.2.1", True),
        ((), "https://other.example", "mq.example", "192.0.2.1", False),
        ((), "https://mq.example", "other@mq.example", "192.0.2.1", False),
        ((), "https://other@mq.example", "mq.example", "192.0.2.1", False),
        ((), "https://mq.example#x", "mq.example", "192.0.2.1", False),
        ((), "extension://mq.example", "mq.example", "192.0.2.1", False),
        ((), "https://mq.example", "mq.example\\x", "192.0.2.1", False),
        ((), "https://mq.example.evil.example", "mq.example", "192.0.2.1", False),
        ((), "null", "mq.example", "192.0.2.1", False),
        ((), "file://", "mq.example", "192.0.2.1", False),
        ((), "", "mq.example", "192.0.2.1", False),
        ((), "http://[", "mq.example", "192.0.2.1", False),
        (("https://shop.example",), "https://shop.example", "mq", "192.0.2.1", True),
        (("https://shop.example:443",), "https://shop.example", "mq", "192.0.2.1", True),
        (("https://Shop.example",), "https://shop.example", "mq", "127.0.0.1", True),
        (("https://shop.example",), "http://shop.example", "mq", "192.0.2.1", False),
        (("https://shop.example",), "https://shop.example:8443", "mq", "192.0.2.1", False),
        (("https://shop.example",), "https://a.shop.example", "mq", "192.0.2.1", False),
        (("null",), "null", "mq", "192.0.2.1", True),
        (("*",), "null", "mq", "127.0.0.1", True),
        (("*",), "http://evil.example", "mq", "127.0.0.1", True),
    ],
)
def test_pages_of_other_origins_are_refused(
    allowed: tuple[str, ...], origin: str | None, host: str, at: str, *, is_let_in: bool
) -> None:
    broker = WebSocketBroker(allow_origins=allowed)
    client = WebSocketClient(broker, broker.stream(at=at))
    client.ask(host=host, origin=origin)
    assert (client.accepted is not None) == is_let_in
    if not is_let_in:
        assert client.rejected is not None
        assert client.rejected.status_code == 403
        assert b"allow_origins" in client.body


@pytest.mark.parametrize(
    ("origin", "host", "at", "is_let_in"),
    [
        (None, "mq.example", "192.0.2.1", True),
        (None, "MQ.example.:15674", "192.0.2.1", True),
        ("https://mq.example", "mq.example", "192.0.2.1", True),
        # An attacker's name that resolves to the broker.
        ("http://evil.example", "evil.example", "192.0.2.1", False),
        (None, "evil.example", "192.0.2.1", False),
        (None, "x@mq.example", "192.0.2.1", False),
        (None, "192.0.2.1", "192.0.2.1", False),
        (None, "localhost", "192.0.2.1", False),
        (None, "localhost:15674", "127.0.0.1", True),
        (None, "127.0.0.1", "127.0.0.1", True),
    ],
)
def test_only_names_that_are_listed_lead_to_it(
    origin: str | None, host: str, at: str, *, is_let_in: bool
) -> None:
    broker = WebSocketBroker(hosts=("mq.example",))
    client = WebSocketClient(broker, broker.stream(at=at))
    client.ask(host=host, origin=origin)
    assert (client.accepted is not None) == is_let_in
    if not is_let_in:
        assert client.rejected is not None
        assert client.rejected.status_code == 421


def test_two_origins_are_one_too_many() -> None:
    client = WebSocketClient(broker := WebSocketBroker(), broker.stream())
    client.ask(origin="http://127.0.0.1", headers=[(b"Origin", b"http://127.0.0.1")])
    assert client.rejected is not None


@pytest.mark.parametrize(
    "text", ["shop.example", "https://shop.example/", "https://a@b", "https://", "", "http://x:y"]
)
def test_what_is_no_origin_can_not_be_allowed(text: str) -> None:
    with pytest.raises(ValueError):
        Origins([text])


# Messages.


@pytest.mark.parametrize("is_text", [True, False], ids=["text", "binary"])
def test_the_answer_is_of_the_kind_of_the_question(*, is_text: bool) -> None:
    client = WebSocketBroker().client(TEXT if is_text else CONNECT)
    data = SEND.format(1)
    client.send(data if is_text else data.encode())
    assert receipts(client) == ["1"]
    assert {type(each) for each in client.messages} == {str if is_text else bytes}


@pytest.mark.parametrize(("setting", "kind"), [("text", str), ("binary", bytes)])
@pytest.mark.parametrize("connect", [TEXT, CONNECT], ids=["text", "binary"])
def test_the_kind_can_be_set(setting: str, kind: type, connect: str | bytes) -> None:
    broker = WebSocketBroker(messages=setting)
    client = broker.client(connect)
    client.send(connect)  # a second one is an error
    assert [type(each) for each in client.messages] == [kind, kind]


@pytest.mark.parametrize("setting", ["as-received", "text"])
def test_what_is_not_utf_8_is_sent_in_binary(setting: str) -> None:
    client = WebSocketBroker(messages=setting).client(TEXT)
    client.send(b"SEND\ndestination:/queue/a\ncontent-length:2\n\n\xff\0\0")
    client.send("SUBSCRIBE\nid:0\ndestination:/queue/a\nreceipt:1\n\n\0")
    client.send("SEND\ndestination:/queue/a\n\n\u00e4\0")
    first, second = client.take("MESSAGE")
    assert (first.body, second.body) == (b"\xff\0", "\u00e4".encode())
    kinds = [type(each) for each in client.messages]
    assert kinds[0] is str
    assert bytes in kinds
    assert kinds[-1] is str


def test_several_frames_in_one_message_have_one_answer() -> None:
    client = WebSocketBroker().client(TEXT)
    client.send("".join(SEND.format(number) for number in range(100)))
    assert receipts(client) == [str(number) for number in range(100)]
    assert len(client.messages) == 2


def test_a_message_holds_no_more_frames_than_the_limit_allows() -> None:
    limit = 1_000
    client = WebSocketBroker(max_message_bytes=limit).client()
    sizes = [10, 10, 300, 990, 2_000, 10, 700, 10, 5_000, 5_000, 10]
    for size in sizes:
        client.send(b"SEND\ndestination:/queue/a\n\n" + b"x" * size + b"\0")
    client.subscribe()
    # Together they exceed the limit by far, and all are delivered at once.
    assert [len(frame.body) for frame in client.take("MESSAGE")] == sizes
    lengths = []
    for message in client.messages[1:]:
        assert isinstance(message, bytes)
        frames = re.findall(rb"[^\0]+\0\n?", message)
        assert b"".join(frames) == message, "a message ends with a frame"
        lengths.append([len(frame) for frame in frames])
    assert all(sum(each) <= limit or len(each) == 1 for each in lengths)
    # The first frame of the next message would never have fitted in, too.
    for each, following in itertools.pairwise(lengths):
        assert sum(each) + following[0] > limit


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_frames_that_are_as_large_as_the_limit_are_one_message(beyond: int) -> None:
    pair = "".join(SEND.format(number) for number in (1, 2))
    client = WebSocketBroker().client()
    client.send(pair)
    [_, together] = client.messages
    client = WebSocketBroker(max_message_bytes=len(together) - beyond).client()
    client.send(pair)
    messages = client.messages[1:]
    assert "".join(map(str, messages)) == together
    assert len(messages) == (2 if beyond > 0 else 1)


@pytest.mark.parametrize("is_text", [True, False], ids=["text", "binary"])
@pytest.mark.parametrize("size", [1, 2, 5, 50])
def test_a_frame_may_be_split_over_messages_or_fragments(size: int, *, is_text: bool) -> None:
    for are_fragments in (False, True):
        broker = WebSocketBroker()
        client = broker.client()
        frame = SEND.format("\u00e4\U0001f600")
        parts = [frame[start : start + size] for start in range(0, len(frame), size)]
        for number, part in enumerate(parts):
            is_last = not are_fragments or number == len(parts) - 1
            client.send(part if is_text else part.encode(), is_last=is_last)
        assert receipts(client) == ["\u00e4\U0001f600"]


@given(st.data())
def test_any_chunking_of_any_messages_is_the_same(data: st.DataObject) -> None:
    broker = WebSocketBroker()
    client = broker.connect()
    frames = TEXT + "".join(SEND.format(number) for number in range(3)) + "\n\n"
    cuts = data.draw(st.sets(st.integers(0, len(frames)), max_size=8).map(sorted))
    parts = [frames[a:b] for a, b in zip([0, *cuts], [*cuts, len(frames)], strict=True)]
    octets = b""
    for part in parts:
        is_text = data.draw(st.booleans())
        octets += client.octets(part if is_text else part.encode())
        if data.draw(st.booleans()):
            octets += client.octets("" if data.draw(st.booleans()) else b"")
    while octets:
        size = data.draw(st.integers(1, len(octets)))
        client.raw(octets[:size])
        octets = octets[size:]
    assert [frame.command for frame in client.take()] == ["CONNECTED", *["RECEIPT"] * 3]


@given(st.binary(max_size=200))
def test_no_octets_at_all_break_it(octets: bytes) -> None:
    broker = WebSocketBroker()
    client = broker.connect()
    client.transport.deliver(octets)
    stream = broker.stream()
    stream.deliver(octets)
    broker.clock.advance(60)
    client.transport.lose(ConnectionError())
    stream.lose(ConnectionError())
    assert broker.factory.broker.connections == set()
    assert broker.clock.getDelayedCalls() == []


def test_heart_beats_are_messages_of_their_own() -> None:
    broker = WebSocketBroker()
    client = broker.client("CONNECT\naccept-version:1.2\nhost:x\nheart-beat:1000,1000\n\n\0")
    for _ in range(5):
        client.send("\n")
        broker.clock.advance(1)
        client.look()
    assert client.messages[1:] == ["\n"] * 5
    broker.clock.advance(2)
    assert client.take("ERROR")[0].headers["stompkit-code"] == "heart-beat-timeout"


def test_a_large_body() -> None:
    client = WebSocketBroker().client()
    body = bytes(range(256)) * 4_096
    client.subscribe()
    head = b"SEND\ndestination:/queue/a\ncontent-length:%d\n\n" % len(body)
    octets = client.octets(head + body + b"\0")
    for start in range(0, len(octets), 65_536):
        client.raw(octets[start : start + 65_536])
    [message] = client.take("MESSAGE")
    assert message.body == body


# Limits.


def test_a_frame_beyond_the_limit_is_refused_before_all_of_it_is_there() -> None:
    limits = Limits(max_body_bytes=1_000, max_frame_bytes=2_000)
    client = WebSocketBroker(BrokerConfig(limits=limits)).client(TEXT)
    client.send("SEND\ndestination:/queue/a\n\n" + "x" * 1_500, is_last=False)
    assert client.take("ERROR")[0].headers["stompkit-code"] == "frame-too-large"
    assert client.code() == 1009
    assert client.lost


def test_the_limits_before_the_login_hold() -> None:
    client = WebSocketBroker().connect()
    client.send(b"CONNECT\n" + b"a:b\n" * 50_000, is_last=False)
    assert client.take("ERROR")[0].headers["stompkit-code"] == "too-many-headers"
    assert client.code() == 1009


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_a_request_has_to_come_in_time(sent: bytes) -> None:
    broker = WebSocketBroker(BrokerConfig(login_timeout_s=5))
    stream = broker.stream()
    for _ in range(5):
        stream.deliver(sent)
        sent = sent and b"X: y\r\n"
        assert not stream.eof
        broker.clock.advance(1)
    assert stream.take().startswith(b"HTTP/1.1 408 ")
    assert stream.eof
    broker.clock.advance(0)
    assert stream.lost


def test_the_login_has_to_come_in_the_same_time() -> None:
    broker = WebSocketBroker(BrokerConfig(login_timeout_s=5))
    stream = broker.stream()
    client = WebSocketClient(broker, stream)
    broker.clock.advance(4)
    client.ask()
    broker.clock.advance(1)
    assert client.take("ERROR")[0].headers["stompkit-code"] == "login-timeout"
    assert client.code() == 1008


def test_a_connection_counts_before_its_request() -> None:
    broker = WebSocketBroker(BrokerConfig(max_connections=1))
    first = broker.stream()
    client = broker.connect()
    assert client.take("ERROR")[0].headers["stompkit-code"] == "too-many-connections"
    assert client.code() == 1013
    assert client.lost
    first.lose(ConnectionError())
    broker.client()


def test_one_too_many_that_asks_for_nothing_is_cut() -> None:
    broker = WebSocketBroker(BrokerConfig(max_connections=1, linger_s=1))
    broker.stream()
    second = broker.stream()
    broker.clock.advance(1)
    broker.clock.advance(0)
    assert second.aborted


def test_a_client_that_does_not_read_is_not_written_to() -> None:
    broker = WebSocketBroker()
    producer, client = broker.client(), broker.client(TEXT)
    client.subscribe("/queue/a")
    client.transport.stop_reading(100_000)
    for _ in range(100):
        producer.send(b"SEND\ndestination:/queue/a\n\n" + b"x" * 10_000 + b"\0")
    assert client.transport.unread_bytes < 200_000
    client.transport.start_reading()
    assert len(client.take("MESSAGE")) == 100


def test_a_client_whose_replies_pile_up_is_not_read() -> None:
    broker = WebSocketBroker(BrokerConfig(max_reply_backlog_bytes=1_000))
    client = broker.client()
    client.transport.stop_reading(1)
    octets = client.octets(SEND.format(1).encode())
    for _ in range(200):
        client.transport.deliver(octets)
    assert not client.transport.is_read
    client.transport.start_reading()
    assert len(receipts(client)) == 200


def test_pings_of_a_client_that_does_not_read_do_not_pile_up() -> None:
    broker = WebSocketBroker()
    client = broker.client()
    client.transport.stop_reading(10)
    client.send(SEND.format(1).encode())
    waiting = client.transport.unread_bytes
    for number in range(1_000):
        client.event(Ping(b"%d" % number))
    assert client.transport.unread_bytes == waiting
    client.transport.start_reading()
    client.look()
    assert client.pongs == [Pong(b"999")]


# Pings.


def test_a_ping_is_answered() -> None:
    client = WebSocketBroker().client()
    client.event(Ping(b"abc"))
    assert client.pongs == [Pong(b"abc")]


def test_a_silent_client_is_pinged_and_stays_while_it_answers() -> None:
    broker = WebSocketBroker(ping_interval_s=10, ping_timeout_s=5)
    client = broker.client()
    broker.clock.advance(9)
    client.send("\n")
    broker.clock.advance(9)
    client.look()
    assert client.pings == []
    for number in range(1, 4):
        broker.clock.advance(1)
        client.look()
        assert len(client.pings) == number
        broker.clock.advance(9)
    assert client.code() is None


def test_a_client_that_answers_no_ping_is_given_up() -> None:
    broker = WebSocketBroker(ping_interval_s=10, ping_timeout_s=5)
    client = broker.client()
    client.is_polite = False
    broker.clock.advance(10)
    broker.clock.advance(4)
    assert client.code() is None
    broker.clock.advance(1)
    assert client.take("ERROR")[0].headers["stompkit-code"] == "heart-beat-timeout"
    assert client.code() == 1008
    broker.clock.advance(1)
    assert client.lost


def test_a_client_that_does_not_read_is_not_pinged() -> None:
    broker = WebSocketBroker(ping_interval_s=10, ping_timeout_s=5)
    client = broker.client()
    client.transport.stop_reading(1)
    client.send(SEND.format(1).encode())
    waiting = client.transport.unread_bytes
    for _ in range(10):
        broker.clock.advance(10)
    assert client.transport.unread_bytes == waiting
    assert not client.transport.lost


def test_pings_can_be_switched_off() -> None:
    broker = WebSocketBroker(ping_interval_s=0)
    broker.client()
    assert broker.clock.getDelayedCalls() == []


# The end.


def test_disconnect_ends_with_1000() -> None:
    client = WebSocketBroker().client(TEXT)
    client.send("DISCONNECT\nreceipt:bye\n\n\0")
    assert receipts(client) == ["bye"]
    assert client.code() == 1000
    assert client.lost
    assert not client.transport.aborted


def test_a_client_that_closes_is_answered_with_its_code() -> None:
    broker = WebSocketBroker()
    client = broker.client(TEXT)
    client.send(SEND.format(1))
    client.event(CloseConnection(code=1001, reason="gone"))
    assert client.code() == 1001
    assert client.lost
    assert broker.factory.broker.connections == set()
    assert broker.clock.getDelayedCalls() == []


def test_what_came_before_a_close_is_done() -> None:
    broker = WebSocketBroker()
    client = broker.connect()
    client.raw(
        client.octets(TEXT)
        + client.octets(SEND.format(1))
        + client._connection.send(CloseConnection(code=1000))
    )
    other = broker.client()
    other.subscribe()
    assert [frame.body for frame in other.take("MESSAGE")] == [b"body 1"]


@pytest.mark.parametrize(
    "frame",
    [
        "DISCONNECT\nreceipt:1\n\n\0",
        "DISCONNECT\n\n\0",
        "SEND\ndestination:nowhere\n\n\0",
        "NONSENSE\n\n\0",
    ],
)
def test_a_close_right_behind_what_ends_the_session_is_answered(frame: str) -> None:
    broker = WebSocketBroker()
    client = broker.client()
    client.subscribe()
    client.raw(client.octets(SEND.format(1) + frame) + client.close_octets(3_001))
    assert client.code() == 3_001
    assert client.lost
    assert broker.factory.broker.connections == set()
    broker.clock.advance(60)
    assert broker.clock.getDelayedCalls() == []
    # Earlier frames have been processed.
    other = broker.client()
    other.subscribe()
    assert [each.body for each in other.take("MESSAGE")] == [b"body 1"]


def test_unacknowledged_messages_of_a_client_that_closes_go_back() -> None:
    broker = WebSocketBroker()
    client = broker.client()
    client.send(SEND.format(1).encode())
    client.subscribe(ack="client")
    assert len(client.take("MESSAGE")) == 1
    client.event(CloseConnection(code=1000))
    other = broker.client()
    other.subscribe()
    [message] = other.take("MESSAGE")
    assert message.headers["redelivered"] == "true"


def test_a_stop_of_the_broker_ends_with_1001() -> None:
    broker = WebSocketBroker()
    client, stream = broker.client(TEXT), broker.stream()
    broker.factory.disconnect_all("the broker is shutting down", "shutting-down")
    assert client.take("ERROR")[0].headers["stompkit-code"] == "shutting-down"
    assert client.code() == 1001
    assert client.closed == CloseConnection(1001, "the broker is shutting down")
    assert client.lost
    assert stream.take().startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("NONSENSE\n\n\0", 1002),
        ("SEND\n\n\0", 1002),
        ("SEND\ndestination:nowhere\n\n\0", 1008),
    ],
)
def test_what_is_wrong_is_told_by_error_and_close(frame: str, code: int) -> None:
    client = WebSocketBroker().client(TEXT)
    client.send(frame)
    [error] = client.take("ERROR")
    assert client.code() == code
    assert client.closed is not None
    assert client.closed.reason == error.headers["message"][: len(client.closed.reason or "")]
    assert client.lost


@pytest.mark.parametrize(
    ("octets", "code"),
    [
        (b"\x81\x05hello", 1002),  # not masked
        (b"\x83\x80abcd", 1002),  # an unknown opcode
        (b"\xc1\x80abcd", 1002),  # an extension that was not negotiated
        (b"\x80\x80abcd", 1002),  # continues no message
        (b"\x81\x81\0\0\0\0\xff", 1007),  # text that is not UTF-8
        (b"\x89\xfe\x00\x7e\0\0\0\0", 1002),  # a ping that is too long
        (b"\x88\x81\0\0\0\0x", 1002),  # half a close code
    ],
)
def test_what_is_no_websocket_is_told_by_error_and_close(octets: bytes, code: int) -> None:
    broker = WebSocketBroker()
    client = broker.client()
    client.raw(octets)
    assert client.take("ERROR")[0].headers["stompkit-code"] == "websocket-protocol"
    assert client.code() == code
    client.transport.deliver(octets)
    assert client.lost
    assert broker.factory.broker.connections == set()
    assert broker.clock.getDelayedCalls() == []


def test_a_client_that_does_not_answer_the_close_is_cut() -> None:
    broker = WebSocketBroker(BrokerConfig(linger_s=1))
    client = broker.client()
    client.is_polite = False
    client.send(b"DISCONNECT\n\n\0")
    assert client.code() == 1000
    assert not client.transport.lost
    broker.clock.advance(1)
    assert client.lost
    assert client.transport.aborted


def test_what_comes_after_the_close_is_not_looked_at() -> None:
    broker = WebSocketBroker()
    client = broker.client()
    client.is_polite = False
    send = client.octets(SEND.format(1).encode())
    client.send(b"DISCONNECT\n\n\0")
    client.raw(send)
    assert receipts(client) == []
    assert broker.factory.broker.hosts[""].destinations == {}


def test_the_error_waits_for_a_client_that_reads_slowly() -> None:
    broker = WebSocketBroker()
    client = broker.client()
    client.transport.stop_reading(10)
    client.send(SEND.format(1).encode())
    client.send(b"NONSENSE\n\n\0")
    assert client.code() is None
    client.transport.start_reading()
    assert [frame.command for frame in client.take()] == ["RECEIPT", "ERROR"]
    assert client.code() == 1002
    assert client.lost


def test_the_defaults_are_those_that_are_documented() -> None:
    listener = WebSocketListener(endpoint="tcp:15674")
    assert (listener.path, listener.allow_origins, listener.messages) == ("/", (), "as-received")
    assert listener.max_message_bytes == 8_192
