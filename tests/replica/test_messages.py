"""Messages between replicas: encoded in frames and decoded, after changes by a broker."""

from __future__ import annotations

import hashlib
import tracemalloc
from random import Random
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import assume, given
from hypothesis import strategies as st

from stompkit.replica.messages import (
    CONTENT_TYPE,
    MAX_FACTS_BYTES,
    MAX_ITEMS,
    MAX_PARTS,
    Message,
    MessageError,
    Unpacker,
    pack,
)
from stompkit.replica.signing import Signer, UntrustedError, Verifier
from stompkit.replication.model.frames import Packet

SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(b"1" * 32))
OTHER = Signer(Ed25519PrivateKey.from_private_bytes(b"2" * 32))
SENDER = "A~1f2e3d4c"
KEYS = Verifier({"A": SIGNER.public, "B": OTHER.public})

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
_ITEMS = st.binary(max_size=60) | st.text(max_size=60).map(
    lambda text: text.encode("utf-8", "surrogatepass")
)
MESSAGES = st.builds(
    Message,
    kind=st.sampled_from(["changes", "have", "page_want"]),
    sender=st.sampled_from([SENDER, "B~00000000"]),
    facts=st.dictionaries(_TEXT, _JSON, max_size=3),
    items=st.lists(_ITEMS, max_size=6),
)


def add(unpacker: Unpacker, packet: Packet) -> Message | None:
    """Add a frame, with the headers that a broker adds."""
    added = {"message-id": "7", "subscription": "0", "destination": "/topic/c"}
    return unpacker.add({**packet.headers, **added}, packet.body)


def large(octets: int, name: str = "") -> Message:
    """Return a message that needs several frames."""
    return Message("changes", SENDER, {"name": name}, [b"x" * octets])


def test_a_small_message_is_one_frame() -> None:
    message = Message("have", SENDER, {"vector": {SENDER: 3}}, [b"one", b"\xc3\xa9", b"a\nb", b""])
    (packet,) = pack(message)
    assert packet.body == b'{"vector":{"A~1f2e3d4c":3}}\n=one\n=\xc3\xa9\n+YQpi\n='
    id = packet.headers["stompkit-message"]
    assert packet.headers == {
        "content-type": CONTENT_TYPE,
        "stompkit-schema": "1",
        "stompkit-kind": "have",
        "stompkit-node": SENDER,
        "stompkit-message": id,
        "stompkit-part": "1",
        "stompkit-parts": "1",
        "event-id": f"{id}.1",
    }
    whole = add(Unpacker(), packet)
    assert whole == message
    assert whole is not None
    assert whole.id == id


@given(message=MESSAGES, most=st.integers(16, 200), is_signed=st.booleans(), data=st.data())
def test_whole_again_from_parts_in_any_order_and_more_than_once(
    *, message: Message, most: int, is_signed: bool, data: st.DataObject
) -> None:
    signer = {"A": SIGNER, "B": OTHER}[message.sender[0]] if is_signed else None
    packets = pack(message, max_body_bytes=most, signer=signer)
    unpacker = Unpacker(KEYS if is_signed else None)
    frames = data.draw(st.permutations(packets))
    last = frames.pop()
    repeated = data.draw(st.lists(st.sampled_from(frames), max_size=4)) if frames else []
    for each in [*frames, *repeated]:
        assert add(unpacker, each) is None
    assert add(unpacker, last) == message
    assert (unpacker.waiting, unpacker.waiting_bytes, unpacker.dropped) == (0, 0, 0)


@given(MESSAGES, st.integers(16, 200))
def test_each_frame_is_text_of_at_most_that_many_octets(message: Message, most: int) -> None:
    """Brokers may decode it, convert line ends, and stop at a NUL."""
    for packet in pack(message, max_body_bytes=most):
        assert 0 < len(packet.body) <= most
        text = packet.body.decode()
        assert "\0" not in text
        assert "\r" not in text


@given(MESSAGES, MESSAGES, st.integers(16, 60), st.randoms(use_true_random=False))
def test_messages_between_each_other(
    one: Message, other: Message, most: int, random: Random
) -> None:
    assume(one != other)
    frames = [*pack(one, max_body_bytes=most), *pack(other, max_body_bytes=most)]
    random.shuffle(frames)
    unpacker = Unpacker()
    whole = [found for each in frames if (found := add(unpacker, each)) is not None]
    assert whole in ([one, other], [other, one])


@given(MESSAGES, st.data())
def test_a_message_of_which_parts_are_missing_is_not_there(
    message: Message, data: st.DataObject
) -> None:
    packets = pack(message, max_body_bytes=16)
    missing = data.draw(st.sampled_from(packets))
    unpacker = Unpacker()
    assert [add(unpacker, each) for each in packets if each is not missing] == [None] * (
        len(packets) - 1
    )
    # It is complete after all parts were sent once more.
    assert message in [add(unpacker, each) for each in packets]


@pytest.mark.parametrize("signer", [None, SIGNER])
@pytest.mark.parametrize("persistent", [False, True])
def test_frames_can_be_sent_on_as_they_were(*, signer: Signer | None, persistent: bool) -> None:
    packets = pack(large(100), max_body_bytes=40, signer=signer, persistent=persistent)
    assert len(packets) > 2
    unpacker = Unpacker(KEYS if signer else None)
    *_, whole = [add(unpacker, each) for each in packets]
    assert whole is not None
    assert whole.packets == packets
    assert {each.headers.get("persistent") for each in packets} == {"true" if persistent else None}


def test_a_broker_that_writes_persistent_as_a_number_is_understood() -> None:
    (packet,) = pack(Message("changes", SENDER, {}), persistent=True)
    whole = Unpacker().add({**packet.headers, "persistent": "1"}, packet.body)
    assert whole is not None
    assert whole.packets == [packet]


def test_an_equal_answer_to_a_later_request_is_no_duplicate_of_the_first() -> None:
    """A spool, a buffer of a bridge and some brokers drop a message whose event-id they know."""
    answers = [pack(large(40), max_body_bytes=20, occasion=each) for each in ("a", "b")]
    ids = [packet.headers["event-id"] for answer in answers for packet in answer]
    assert len(set(ids)) == len(ids) > 2
    names = {packet.headers["stompkit-message"] for answer in answers for packet in answer}
    assert len(names) == 1
    # A relay sends what it has received.
    unpacker = Unpacker()
    [whole] = filter(None, (add(unpacker, packet) for packet in answers[1]))
    assert whole.packets == answers[1]


def test_the_same_said_again_has_the_same_name() -> None:
    """Any other message has another name."""
    message = Message("have", SENDER, {"a": 1, "b": 2}, [b"x"])
    again = Message("have", SENDER, {"b": 2, "a": 1}, [b"x"])
    assert pack(message) == pack(again)
    others = [
        Message("want", SENDER, message.facts, message.items),
        Message("have", "A~00000000", message.facts, message.items),
        Message("have", SENDER, {}, message.items),
        Message("have", SENDER, message.facts, [b"y"]),
        Message("have", SENDER, message.facts, [b"x", b""]),
        Message("have", SENDER, message.facts, []),
    ]
    names = {pack(each)[0].headers["stompkit-message"] for each in [message, *others]}
    assert len(names) == 7


# Untrusted messages.


def test_a_node_that_is_trusted_is_heard() -> None:
    (packet,) = pack(Message("have", SENDER, {}), signer=SIGNER)
    assert add(Unpacker(KEYS), packet) is not None


@pytest.mark.parametrize(
    ("sender", "signer", "told"),
    [
        (SENDER, None, "the node 'A' has not signed this"),
        (SENDER, OTHER, "not signed with the key of the node 'A'"),
        ("C~00000000", OTHER, "the node 'C' is not one of those that are trusted"),
    ],
)
def test_a_node_that_is_not_trusted_is_refused(
    sender: str, signer: Signer | None, told: str
) -> None:
    (packet,) = pack(Message("have", sender, {}), signer=signer)
    with pytest.raises(MessageError, match=told) as caught:
        add(Unpacker(KEYS), packet)
    assert isinstance(caught.value.__cause__, UntrustedError)


def test_what_was_changed_on_the_way_is_refused_part_by_part() -> None:
    """Otherwise a forged part would use memory or spoil the others."""
    first, second, third = pack(large(40), max_body_bytes=20, signer=SIGNER)
    unpacker = Unpacker(KEYS)
    assert add(unpacker, first) is None
    names = ["stompkit-part", "stompkit-parts", "stompkit-message", "stompkit-signature"]
    forged = [
        Packet(second.headers, second.body.replace(b"x", b"y", 1)),
        *(
            Packet({**second.headers, name: third.headers[name]}, second.body)
            for name in ("stompkit-part", "stompkit-signature")
        ),
        Packet({**second.headers, "stompkit-parts": "4"}, second.body),
        Packet({**second.headers, "stompkit-message": "0" * 64}, second.body),
    ]
    for each in forged:
        assert {*each.headers} >= {*names}
        with pytest.raises(MessageError, match="not signed with the key"):
            add(unpacker, each)
    assert unpacker.waiting == 1
    assert add(unpacker, second) is None
    assert add(unpacker, third) == large(40)


def test_what_a_node_has_signed_can_be_told_as_nothing_else() -> None:
    """It is neither valid as another kind of message, nor as that of the node's other store."""
    (packet,) = pack(Message("have", SENDER, {}), signer=SIGNER)
    for name, value in [("stompkit-kind", "gone"), ("stompkit-node", "A~00000000")]:
        with pytest.raises(MessageError, match="is not that of what it says"):
            Unpacker(KEYS).add({**packet.headers, name: value}, packet.body)


def test_a_signature_is_no_obstacle_to_those_without_keys() -> None:
    (packet,) = pack(Message("have", SENDER, {}), signer=OTHER)
    assert add(Unpacker(), packet) is not None


# Malformed messages.


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("stompkit-schema", "", "format ''"),
        ("stompkit-schema", "2", "this is format '2' of a message, and 1 is known"),
        ("stompkit-kind", "", "stompkit-kind is ''"),
        ("stompkit-kind", "Have", "stompkit-kind is 'Have'"),
        ("stompkit-kind", "x" * 33, "stompkit-kind is"),
        ("stompkit-node", "A", "stompkit-node is 'A'"),
        ("stompkit-message", "0" * 63, "stompkit-message is"),
        ("stompkit-message", "0" * 63 + "G", "stompkit-message is"),
        ("stompkit-part", "0", "stompkit-part is '0'"),
        ("stompkit-part", "01", "stompkit-part is '01'"),
        ("stompkit-part", "2", "part 2 of 1"),
        ("stompkit-part", "\u0661", "stompkit-part is"),
        ("stompkit-parts", "9" * 5000, "stompkit-parts is '9{80}'"),
        ("stompkit-parts", "-1", "stompkit-parts is '-1'"),
        ("stompkit-signature", "x", "stompkit-signature is 'x'"),
        ("stompkit-signature", "!" * 86 + "==", "stompkit-signature is"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(name: str, value: str, told: str) -> None:
    (packet,) = pack(Message("have", SENDER, {}))
    unpacker = Unpacker()
    with pytest.raises(MessageError, match=told):
        unpacker.add({**packet.headers, name: value}, packet.body)
    assert unpacker.waiting == 0


def test_a_frame_of_somebody_else_is_refused() -> None:
    with pytest.raises(MessageError, match="this is format '' of a message"):
        Unpacker().add({}, b"hello")


def named(body: bytes, kind: str = "have") -> dict[str, str]:
    """Return the headers with which such a body would be accepted."""
    (packet,) = pack(Message(kind, SENDER, {}))
    # The name is a hash of format, kind, sender and body, which others can compute.
    hashed = hashlib.blake2b(f"1\n{kind}\n{SENDER}\n".encode() + body, digest_size=32)
    return {**packet.headers, "stompkit-message": hashed.hexdigest()}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "no object in JSON"),
        (b"\n", "no object in JSON"),
        (b"[]", "no object in JSON"),
        (b'{"a":', "no object in JSON"),
        (b'{"a":"\xff"}', "no object in JSON"),
        (b'{"a":' + b"[" * 100_000, "no object in JSON: .*recursion"),
        (b'{"a":' + b"9" * 10_000 + b"}", "no object in JSON"),
        (b"{}\n", "neither with '=' nor with"),
        (b"{}\nx", "neither with '=' nor with"),
        (b"{}\n=a\n\n=b", "neither with '=' nor with"),
        (b"{}\n+YQ", "no base64"),
        (b"{}\n+\xff", "no base64"),
        (b'{"a":"' + b"x" * MAX_FACTS_BYTES + b'"}', "too many facts or items"),
        (b"{}" + b"\n=" * (MAX_ITEMS + 1), "too many facts or items"),
    ],
)
def test_a_body_that_makes_no_sense_is_refused(body: bytes, told: str) -> None:
    with pytest.raises(MessageError, match=told):
        Unpacker().add(named(body), body)


def test_a_body_that_is_not_what_it_is_called_is_refused() -> None:
    with pytest.raises(MessageError, match="is not that of what it says"):
        Unpacker().add(named(b"{}"), b"{} ")
    first, second = pack(large(10), max_body_bytes=16)
    unpacker = Unpacker()
    add(unpacker, first)
    with pytest.raises(MessageError, match="is not that of what it says"):
        add(unpacker, Packet(second.headers, b"x"))
    # The message is lost, and can be sent once more.
    assert unpacker.waiting == 0
    assert [add(unpacker, each) for each in (second, first)] == [None, large(10)]


_HEADERS: st.SearchStrategy[dict[str, str]] = st.fixed_dictionaries(
    {},
    optional={
        "stompkit-schema": st.sampled_from(["1"]) | st.text(),
        "stompkit-kind": st.sampled_from(["have"]) | st.text(),
        "stompkit-node": st.sampled_from([SENDER]) | st.text(),
        "stompkit-message": st.sampled_from(["0" * 64]) | st.text(),
        "stompkit-part": st.sampled_from(["1", "2"]) | st.text(),
        "stompkit-parts": st.sampled_from(["1", "3", "9999"]) | st.text(),
        "stompkit-signature": st.sampled_from(["A" * 86 + "=="]) | st.text(),
        "persistent": st.text(),
    },
)


@given(
    frames=st.lists(st.tuples(_HEADERS, st.binary(), st.booleans()), max_size=5),
    is_strict=st.booleans(),
    message=MESSAGES,
)
def test_whatever_comes_is_a_message_or_a_part_or_refused(
    *, frames: list[tuple[dict[str, str], bytes, bool]], is_strict: bool, message: Message
) -> None:
    """Later valid messages are decoded as usual."""
    unpacker = Unpacker(KEYS if is_strict else None)
    for headers, body, is_named in frames:
        try:
            unpacker.add({**named(body), **headers} if is_named else headers, body)
        except MessageError:
            continue
    signer = {"A": SIGNER, "B": OTHER}[message.sender[0]]
    found = [add(unpacker, each) for each in pack(message, max_body_bytes=16, signer=signer)]
    assert found[-1] == message


@given(MESSAGES, st.data())
def test_a_frame_that_was_damaged_is_refused(message: Message, data: st.DataObject) -> None:
    packets = pack(message)
    (packet,) = packets
    place = data.draw(st.integers(0, len(packet.body) - 1))
    octet = data.draw(st.integers(0, 255).filter(lambda each: each != packet.body[place]))
    body = packet.body[:place] + bytes([octet]) + packet.body[place + 1 :]
    with pytest.raises(MessageError):
        add(Unpacker(), Packet(packet.headers, body))


# Limits.


def test_what_waits_is_bounded_and_the_oldest_goes_first() -> None:
    messages = [large(4000, name) for name in "abcd"]
    parts = [pack(each, max_body_bytes=3000) for each in messages]
    assert {len(each) for each in parts} == {2}
    unpacker = Unpacker(max_bytes=10_000)
    for first, _ in parts:
        assert add(unpacker, first) is None
        assert unpacker.waiting_bytes <= 10_000
    assert (unpacker.waiting, unpacker.dropped) == (2, 2)
    # The second part of a dropped message starts it again, which evicts another one.
    assert [add(unpacker, second) for _, second in parts[2:]] == messages[2:]
    assert [add(unpacker, second) for _, second in parts[:2]] == [None, None]


def test_a_part_that_comes_again_takes_no_more_room() -> None:
    first, *_ = pack(large(4000), max_body_bytes=3000)
    unpacker = Unpacker(max_bytes=10_000)
    add(unpacker, first)
    once = unpacker.waiting_bytes
    for _ in range(10):
        assert add(unpacker, first) is None
    assert unpacker.waiting_bytes == once


def test_a_message_that_still_grows_is_not_the_oldest() -> None:
    one, other, third = (pack(large(3000, name), max_body_bytes=1100) for name in "abc")
    unpacker = Unpacker(max_partial=2)
    for packet in (one[0], other[0], one[1], third[0]):
        assert add(unpacker, packet) is None
    assert unpacker.dropped == 1
    assert add(unpacker, one[2]) == large(3000, "a")
    assert [add(unpacker, each) for each in other[1:]] == [None, None]


def test_messages_that_are_not_whole_are_counted_as_well() -> None:
    """Otherwise empty parts would use memory without limit."""
    unpacker = Unpacker(max_partial=10)
    (packet,) = pack(Message("have", SENDER, {}))
    for number in range(100):
        name = f"{number:064x}"
        headers = {**packet.headers, "stompkit-message": name, "stompkit-parts": "2"}
        assert unpacker.add(headers, b"") is None
    assert (unpacker.waiting, unpacker.dropped) == (10, 90)


def test_many_parts_of_nothing_are_counted_as_more_than_nothing() -> None:
    unpacker = Unpacker(max_bytes=100_000)
    (packet,) = pack(Message("have", SENDER, {}))
    with pytest.raises(MessageError, match="takes more than 100000 octets"):
        for number in range(1, MAX_PARTS):
            headers = {
                **packet.headers,
                "stompkit-parts": str(MAX_PARTS),
                "stompkit-part": str(number),
            }
            unpacker.add(headers, b"")
    assert (unpacker.waiting, unpacker.waiting_bytes) == (0, 0)


@pytest.mark.parametrize("most", [2_000, 1_000_000])
def test_a_message_that_is_too_large_is_refused_and_leaves_nothing(most: int) -> None:
    unpacker = Unpacker(max_bytes=10_000)
    packets = pack(large(11_000), max_body_bytes=most)
    with pytest.raises(MessageError, match="takes more than 10000 octets"):
        for each in packets:
            add(unpacker, each)
    assert (unpacker.waiting, unpacker.waiting_bytes) == (0, 0)
    assert add(unpacker, pack(Message("have", SENDER, {}))[0]) is not None


def test_memory_is_bounded_whatever_is_sent() -> None:
    """Parts that never become complete, each with headers that some broker has made long."""
    random = Random(7)
    (packet,) = pack(Message("have", SENDER, {}))
    unpacker = Unpacker(max_bytes=1_000_000, max_partial=100)
    tracemalloc.start()
    try:
        for _ in range(5_000):
            headers: dict[str, Any] = {
                **packet.headers,
                "stompkit-message": f"{random.getrandbits(6):064x}",
                "stompkit-parts": "90000",
                "stompkit-part": str(random.randint(1, 90_000)),
                "foo": "x" * 10_000,
            }
            try:
                unpacker.add(headers, bytes(random.choice([0, 1, 20_000])))
            except MessageError:
                continue
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 3_000_000
    assert peak < 4_000_000


def test_facts_and_items_up_to_the_bounds_come_through() -> None:
    facts = {"a": "x" * (MAX_FACTS_BYTES - len('{"a":""}'))}
    message = Message("have", SENDER, facts, [b""] * MAX_ITEMS)
    (packet,) = pack(message, max_body_bytes=2 * MAX_FACTS_BYTES)
    assert add(Unpacker(), packet) == message


@pytest.mark.parametrize(
    ("message", "most", "told"),
    [
        (Message("Have", SENDER, {}), 1000, "kind 'Have'"),
        (Message("have", "A", {}), 1000, "sender 'A'"),
        (Message("have", SENDER, {"a": "x" * MAX_FACTS_BYTES}), 1000, "too much"),
        (Message("have", SENDER, {}, [b""] * (MAX_ITEMS + 1)), 1000, "too much"),
        (Message("have", SENDER, {}), 15, "of at most 15 octets holds nothing"),
        (large(16 * MAX_PARTS), 16, "would go in 100000 parts, more than 99999"),
    ],
)
def test_what_nobody_would_take_is_not_sent(message: Message, most: int, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        pack(message, max_body_bytes=most)
