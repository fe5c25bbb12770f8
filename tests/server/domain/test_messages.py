"""Changes of a SEND frame on its way to a MESSAGE frame, between any two versions."""

from __future__ import annotations

import re
from itertools import cycle

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stompkit.frames import VERSIONS, Tolerance, Version, escape
from stompkit.server import BrokerConfig
from stompkit.testing.memory import MemoryBroker, MemoryClient

DESTINATION = "/queue/a"
ALL_OCTETS = bytes(range(256))

#: Values that need escapes or conversion in at least one version.
TRICKY = {
    "colon": "a:b",
    "colons": ":a::b:",
    "backslash": "a\\b",
    "backslash-at-the-end": "a\\",
    "what-looks-like-an-escape": "\\n\\c\\r\\\\",
    "carriage-return": "a\rb",
    "carriage-return-at-the-end": "a\r",
    "line-feed": "a\nb",
    "line-feed-and-backslash": "\n\\n",
    "all": "\\:\r\n:\\",
    "blanks": "  a b  ",
    "empty": "",
    "not-ascii": "Grüße, 世界 \U0001f680",
}


def pair(sender: str, receiver: str) -> tuple[MemoryClient, MemoryClient]:
    """Return two clients of one broker, the second one subscribed to DESTINATION."""
    broker = MemoryBroker()
    producer, consumer = broker.client(sender), broker.client(receiver)
    consumer.subscribe(DESTINATION, id="s")
    consumer.take()
    return producer, consumer


def can_send(version: str, text: str) -> bool:
    """Return True if a header value of this version can contain the text."""
    return version != "1.0" or "\n" not in text


def as_read(version: Version, text: str) -> str:
    """Return the value that a receiver reads: 1.0 has no line feeds, and gets the escaped form."""
    return escape(text, "1.1") if version == "1.0" and "\n" in text else text


@pytest.mark.parametrize("receiver", VERSIONS)
@pytest.mark.parametrize(
    ("sender", "value"),
    [
        pytest.param(sender, value, id=f"{sender}-{name}")
        for sender in VERSIONS
        for name, value in TRICKY.items()
        if can_send(sender, value)
    ],
)
def test_header_values_arrive_as_they_were_sent(
    sender: Version, value: str, receiver: Version
) -> None:
    producer, consumer = pair(sender, receiver)
    producer.publish(DESTINATION, b"body", x=value)
    [message] = consumer.take("MESSAGE")
    assert message.headers["x"] == as_read(receiver, value)
    assert message.body == b"body"


@pytest.mark.parametrize("receiver", VERSIONS)
@pytest.mark.parametrize(
    ("sender", "name"),
    [
        (sender, name)
        for sender in VERSIONS
        for name in ("a\\b", "a\rb", "a\nb", "a:b", "é")
        if can_send(sender, name) and (sender != "1.0" or ":" not in name)
    ],
)
def test_header_names_arrive_as_they_were_sent(
    sender: Version, name: str, receiver: Version
) -> None:
    producer, consumer = pair(sender, receiver)
    producer.send("SEND", {"destination": DESTINATION, name: "value"})
    [message] = consumer.take("MESSAGE")
    wanted = escape(name, "1.1") if receiver == "1.0" and {":", "\n"} & set(name) else name
    assert message.headers[wanted] == "value"


@pytest.mark.parametrize(
    ("sender", "receiver", "text"),
    [
        (sender, receiver, text)
        for sender in VERSIONS
        for receiver in VERSIONS
        for text in ("a:b", "a\\b", "a\rb", "a\nb", "世界")
        if can_send(sender, text) and can_send(receiver, text)
    ],
)
def test_destination_and_subscription_are_those_that_the_client_named(
    sender: Version, receiver: Version, text: str
) -> None:
    broker = MemoryBroker()
    producer, consumer = broker.client(sender), broker.client(receiver)
    consumer.subscribe(f"/queue/{text}", id=text)
    producer.publish(f"/queue/{text}")
    [message] = consumer.take("MESSAGE")
    assert message.headers["destination"] == f"/queue/{text}"
    assert message.headers["subscription"] == text


@pytest.mark.parametrize(
    ("version", "text"),
    [
        pytest.param(version, text, id=f"{version}-{name}")
        for version in VERSIONS
        for name, text in TRICKY.items()
        if can_send(version, text)
    ],
)
def test_a_receipt_names_what_was_asked_for(version: Version, text: str) -> None:
    client = MemoryBroker().client(version)
    client.send("BEGIN", transaction="t", receipt=text)
    [receipt] = client.take("RECEIPT")
    assert receipt.headers == {"receipt-id": text}


def test_headers_of_the_application_are_passed_on_in_their_order() -> None:
    producer, consumer = pair("1.2", "1.2")
    own = {"z": "1", "content-type": "text/plain", "a": "2", "persistent": "true", "priority": "4"}
    producer.publish(DESTINATION, b"x", **own)
    [message] = consumer.take("MESSAGE")
    passed_on = [(name, value) for name, value in message.headers.items() if name in own]
    assert passed_on == [
        ("z", "1"),
        ("content-type", "text/plain"),
        ("a", "2"),
        ("persistent", "true"),
        ("priority", "4"),
    ]


#: A small choice, so that heads are often identical.
HEADERS = st.dictionaries(
    st.sampled_from(["x", "receipt", "a:b", "transaction-id"]),
    st.sampled_from(["", "1", "a b", "\\", ":", "\r", "ü\n"]),
)
SENT = st.lists(st.tuples(HEADERS, st.sampled_from([b"", b"1", b"12"]), st.booleans()), max_size=8)


@given(SENT)
def test_messages_sent_at_once_arrive_with_their_own_headers(
    sent: list[tuple[dict[str, str], bytes, bool]],
) -> None:
    producer, consumer = pair("1.2", "1.2")
    octets, wanted = b"", []
    for headers, body, is_counted in sent:
        told = {"destination": DESTINATION, **headers}
        if is_counted:
            told["content-length"] = str(len(body))
        lines = [f"{escape(name, '1.2')}:{escape(told[name], '1.2')}\n" for name in told]
        octets += b"SEND\n" + "".join(lines).encode() + b"\n" + body + b"\0"
        kept = {name: value for name, value in told.items() if name != "receipt"}
        wanted.append((kept | ({"content-length": str(len(body))} if body else {}), body))
    producer.write(octets)
    made = {"message-id", "subscription"}
    found = [
        ({name: value for name, value in each.headers.items() if name not in made}, each.body)
        for each in consumer.take("MESSAGE")
    ]
    assert found == wanted


_NAMES = st.sampled_from(
    [
        "x", "y-2", "content-type", "priority", "type", "receipt", "message-id", "subscription",
        "ack", "redelivered", "delivery-count", "browser", "dead-letter-reason", "a:b",
        "stompkit-dead-letter-claim", "stompkit-dead-letter-source", "reply-to", "expires",
    ]
)  # fmt: skip
_VALUES = st.sampled_from(
    ["", "1", "end", "a b", "\\", "12:30:00", "\r", "ü\n", "/queue/b", "\\c:"]
)
_APPLICATION = st.dictionaries(_NAMES, _VALUES, max_size=6).map(
    lambda headers: {**headers, **({"expires": "9999999999999"} if "expires" in headers else {})}
)
_DESTINATIONS = st.sampled_from([DESTINATION, "/topic/a"])


def _send_frame(
    version: Version, headers: dict[str, str], body: bytes, *, is_counted: bool
) -> bytes:
    """Return a SEND frame with these headers; 1.0 gets those that it can express."""
    headers = headers | ({"content-length": str(len(body))} if is_counted else {})
    if version == "1.0":
        lines = [
            f"{name}:{value}\n"
            for name, value in headers.items()
            if ":" not in name and "\n" not in value and "\r" not in value
        ]
    else:
        lines = [f"{escape(k, version)}:{escape(v, version)}\n" for k, v in headers.items()]
    return b"SEND\n" + "".join(lines).encode() + b"\n" + body + b"\0"


@pytest.mark.parametrize("sender", VERSIONS)
@settings(deadline=None)
@given(
    st.lists(
        st.tuples(_DESTINATIONS, _APPLICATION, st.sampled_from([b"", b"12"]), st.booleans()),
        min_size=1,
        max_size=5,
    )
)
def test_earlier_messages_of_a_sender_change_no_byte(
    sender: Version, sent: list[tuple[str, dict[str, str], bytes, bool]]
) -> None:
    """One connection for all messages has the same effect as one connection for each message."""
    frames = [b"SEND\ndestination:/queue/none\nx:%d\n\n\0" % number for number in range(12)]
    # Shapes of heads are kept when they arrive for the first time, and found later.
    frames += 3 * [
        _send_frame(sender, {"destination": name, **headers}, body, is_counted=is_counted)
        for name, headers, body, is_counted in sent
    ]
    got = []
    for is_one in (True, False):
        broker = MemoryBroker()
        readers = [broker.client(version) for version in VERSIONS for _ in range(2)]
        for reader in readers[::2]:
            reader.subscribe(DESTINATION, id="q", ack="client")
        for reader in readers[1::2]:
            reader.subscribe("/topic/a", id="t", ack="client")
        producers = [broker.client(sender) for _ in range(1 if is_one else len(frames))]
        for producer, frame in zip(cycle(producers), frames, strict=False):
            producer.write(frame)
        # Ids of messages and sessions begin differently for each broker.
        got.append([re.sub(rb"\b[0-9a-f]{8}-", b"", each.octets) for each in readers])
    assert got[0] == got[1]


def test_nothing_is_made_up_for_a_message_without_a_body() -> None:
    producer, consumer = pair("1.2", "1.2")
    producer.publish(DESTINATION)
    [message] = consumer.take("MESSAGE")
    assert message.headers.keys() == {"destination", "message-id", "subscription"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "name",
    [
        "receipt",
        "message-id",
        "subscription",
        "ack",
        "redelivered",
        "delivery-count",
    ],
)
def test_reserved_headers_of_the_sender_are_not_passed_on(name: str, version: Version) -> None:
    broker = MemoryBroker()
    producer, consumer = broker.client(version), broker.client(version)
    consumer.subscribe(DESTINATION, id="own", ack="client")
    producer.send("SEND", {"destination": DESTINATION, name: "forged", "x": "y"}, b"body")
    [message] = consumer.take("MESSAGE")
    assert "forged" not in message.headers.values()
    assert message.headers["x"] == "y"
    assert message.headers["subscription"] == "own"
    assert message.repeated == ()
    consumer.ack(message, receipt="r")
    assert consumer.error is None


def test_the_name_of_a_transaction_is_not_passed_on() -> None:
    producer, consumer = pair("1.2", "1.2")
    producer.send("BEGIN", transaction="t")
    producer.publish(DESTINATION, transaction="t", receipt="r")
    producer.send("COMMIT", transaction="t")
    [message] = consumer.take("MESSAGE")
    assert "transaction" not in message.headers
    assert "receipt" not in message.headers


@pytest.mark.parametrize("receiver", VERSIONS)
def test_of_a_repeated_header_the_first_is_passed_on_alone(receiver: Version) -> None:
    producer, consumer = pair("1.2", receiver)
    producer.write(b"SEND\ndestination:/queue/a\nx:first\nx:second\nx:third\n\n\0")
    [message] = consumer.take("MESSAGE")
    assert message.values("x") == ["first"]


@pytest.mark.parametrize("sender", VERSIONS)
@pytest.mark.parametrize("receiver", VERSIONS)
def test_a_body_gets_its_content_length(sender: Version, receiver: Version) -> None:
    producer, consumer = pair(sender, receiver)
    producer.write(b"SEND\ndestination:/queue/a\n\nhello\0")
    [message] = consumer.take("MESSAGE")
    assert message.headers["content-length"] == "5"
    assert message.body == b"hello"


def test_a_content_length_is_sent_once() -> None:
    producer, consumer = pair("1.2", "1.2")
    producer.publish(DESTINATION, b"hello")
    assert consumer.octets.count(b"content-length") == 1


@pytest.mark.parametrize("sender", VERSIONS)
@pytest.mark.parametrize("receiver", VERSIONS)
@pytest.mark.parametrize("body", [ALL_OCTETS, b"\0", b"\0\n\n\0", b"\n", b"\r\n", b"x" * 200_000])
def test_bodies_arrive_octet_for_octet(body: bytes, sender: Version, receiver: Version) -> None:
    producer, consumer = pair(sender, receiver)
    producer.publish(DESTINATION, body)
    assert consumer.bodies() == [body]


def test_message_ids_are_unique() -> None:
    producer, consumer = pair("1.2", "1.2")
    for _ in range(100):
        producer.publish(DESTINATION)
    ids = {message.headers["message-id"] for message in consumer.take("MESSAGE")}
    assert len(ids) == 100


def test_two_brokers_do_not_use_the_same_message_ids() -> None:
    ids: set[str] = set()
    for _ in range(2):
        producer, consumer = pair("1.2", "1.2")
        producer.publish(DESTINATION)
        ids.update(message.headers["message-id"] for message in consumer.take("MESSAGE"))
    assert len(ids) == 2


@pytest.mark.parametrize("receiver", VERSIONS)
def test_line_ends_of_the_sender_are_not_passed_on(receiver: Version) -> None:
    producer, consumer = pair("1.2", receiver)
    producer.write(b"SEND\r\ndestination:/queue/a\r\nx:y\r\n\r\n\0")
    [message] = consumer.take("MESSAGE")
    assert message.headers["x"] == "y"
    assert b"\r" not in consumer.octets


def test_a_raw_colon_is_escaped_for_those_who_can_read_it() -> None:
    producer, consumer = pair("1.2", "1.2")
    producer.write(b"SEND\ndestination:/queue/a\nurl:http://a:1/\n\n\0")
    assert b"\nurl:http\\c//a\\c1/\n" in consumer.octets


def test_a_raw_colon_is_refused_where_no_tolerance_is_set() -> None:
    client = MemoryBroker(BrokerConfig(tolerance=Tolerance.NONE)).client()
    client.write(b"SEND\ndestination:/queue/a\nurl:http://a:1/\nreceipt:r\n\n\0")
    assert client.error is not None
    assert client.error.headers["receipt-id"] == "r"


@pytest.mark.parametrize("receiver", VERSIONS)
@pytest.mark.parametrize("sender", VERSIONS)
@pytest.mark.parametrize("line", [b"x:\xff\xfe", b"x:\xff:y", b"\xff:x"])
@pytest.mark.parametrize("body", [b"", b"body"])
def test_octets_that_are_not_utf8_are_passed_on_where_they_are_tolerated(
    body: bytes, line: bytes, sender: Version, receiver: Version
) -> None:
    broker = MemoryBroker(BrokerConfig(tolerance=Tolerance.LENIENT))
    producer, consumer = broker.client(sender), broker.client(receiver)
    consumer.subscribe(DESTINATION)
    producer.write(b"SEND\ndestination:/queue/a\n%b\n\n%b\0" % (line, body))
    octets = consumer.transport.take()
    name, _, value = line.partition(b":")
    assert b"\n%b:%b" % (name, value.split(b":")[0]) in octets
    assert octets.endswith(b"\n\n%b\0\n" % body)
    producer.publish(DESTINATION, b"next")
    assert consumer.transport.take().endswith(b"next\0\n")


@pytest.mark.parametrize("receiver", VERSIONS)
def test_blanks_that_1_0_pads_headers_with_are_not_passed_on_where_they_are_tolerated(
    receiver: Version,
) -> None:
    broker = MemoryBroker(BrokerConfig(tolerance=Tolerance.LENIENT))
    producer, consumer = broker.client("1.0"), broker.client(receiver)
    consumer.subscribe(DESTINATION)
    producer.write(b"SEND\ndestination: /queue/a \n x : y \n\n\0")
    [message] = consumer.take("MESSAGE")
    assert message.headers["destination"] == DESTINATION
    assert message.headers["x"] == "y"


def test_a_destination_that_is_not_utf8_works_where_it_is_tolerated() -> None:
    broker = MemoryBroker(BrokerConfig(tolerance=Tolerance.LENIENT))
    client = broker.client()
    client.write(b"SUBSCRIBE\nid:1\ndestination:/queue/\xff\n\n\0")
    client.write(b"SEND\ndestination:/queue/\xff\n\nbody\0")
    octets = client.transport.take()
    assert b"destination:/queue/\xff\n" in octets
    assert octets.endswith(b"body\0\n")


def test_a_message_for_several_versions_is_right_for_each() -> None:
    broker = MemoryBroker()
    producer = broker.client("1.2")
    consumers = {version: broker.client(version) for version in VERSIONS}
    for consumer in consumers.values():
        consumer.subscribe("/topic/t")
    producer.publish("/topic/t", b"body", x="a:\\\r", y="plain")
    for consumer in consumers.values():
        [message] = consumer.take("MESSAGE")
        assert message.headers["x"] == "a:\\\r"
        assert message.headers["y"] == "plain"
        assert message.body == b"body"


#: What readers of 1.0 remove from the ends of names: some only the first two.
REMOVED = " \t\r\v\x01\x1f\u00a0\u2003"
names = st.sampled_from(["", "a", "a b", "message-id", "subscription", "ack", "destination", "é"])
padding = st.text(REMOVED, max_size=2)


@settings(deadline=None)
@given(
    names=st.lists(st.builds("{}{}{}".format, padding, names, padding).filter(bool), max_size=4),
    value=st.sampled_from(["forged", "a:b", "é"]),
    order=st.permutations(VERSIONS),
    size=st.sampled_from([1, 10_000]),
)
@example(names=["\t"], value="forged", order=list(VERSIONS), size=1)
@example(names=[" message-id"], value="forged", order=["1.2", "1.0", "1.1"], size=1)
def test_readers_of_1_0_that_remove_blanks_read_no_other_names(
    names: list[str], value: str, order: list[Version], size: int
) -> None:
    broker = MemoryBroker()
    consumers = {version: broker.client(version) for version in order}
    for consumer in consumers.values():
        consumer.subscribe("/topic/t")
        consumer.take()
    sent = dict.fromkeys(names, value) | {"destination": "/topic/t"}
    before = len(consumers["1.0"].octets)
    broker.client("1.2").send("SEND", sent, b"x" * size)
    head = consumers["1.0"].octets[before:].partition(b"\n\n")[0].decode()
    read = [line.partition(":")[0].strip().strip(REMOVED) for line in head.split("\n")[1:]]
    assert "" not in read
    assert len(read) == len(set(read))
    own = {"message-id", "subscription", "ack", "destination"}
    for version, consumer in consumers.items():
        [message] = consumer.take("MESSAGE")
        for name in set(names) - own:
            is_same = version != "1.0" or name == name.strip().strip(REMOVED)
            assert message.headers.get(name) == (value if is_same else None)


@pytest.mark.parametrize("end", [b"\0\n", b"\0"])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("destination", ["/queue/a", "/topic/a"])
def test_a_large_body_has_the_same_headers_as_a_small_one(
    destination: str, version: str, end: bytes
) -> None:
    """The frames of both are equal bytes, except for ids, lengths and bodies."""
    broker = MemoryBroker(BrokerConfig(eol_after_frames=end == b"\0\n"))
    producer, consumer = broker.client("1.2"), broker.client(version)
    ack = {} if version == "1.0" else {"ack": "client-individual"}
    consumer.subscribe(destination, id="s", **ack)
    consumer.take()
    small, large = ALL_OCTETS, ALL_OCTETS * 100
    frames = []
    for body in (small, large):
        before = len(consumer.octets)
        producer.publish(destination, body, **{"x:y": TRICKY["all"]})
        frames.append(consumer.octets[before:])
        [message] = consumer.take("MESSAGE")
        assert message.body == body
        if ack:
            consumer.ack(message)
    expected = frames[0].replace(small, large)
    expected = expected.replace(b"length:%d\n" % len(small), b"length:%d\n" % len(large))
    without_ids = [
        re.sub(rb"\n(message-id|ack):[^\n]*", b"", each) for each in (frames[1], expected)
    ]
    assert without_ids[0] == without_ids[1]
    assert frames[1].endswith(large + end)
