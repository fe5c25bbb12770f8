"""The ways of a message through a server: whichever it takes, it arrives unchanged.

Other cases test a message that a queue delivers at once. Servers store those that wait, and route
those of topics and transactions by other code. A message of each of these ways is compared with one
that a queue has delivered at once: what is wrong with both is not tested here.
"""

from collections.abc import Callable

from stompkit.conformance import FailedError, Peer, Target, UnsupportedError, trial
from stompkit.conformance.requirements import statements
from stompkit.conformance.scenarios import SINCE_1_1, assert_same_body, begin, takes
from stompkit.frames import Frame

SECTION = "Server Frames / MESSAGE"
ALL_VERSIONS = ("1.0", *SINCE_1_1)
UNCHANGED = statements("message/body-is-content", "message/body", "message/user-headers")
#: User headers that a server may change on the way; 1.0 does not say that MESSAGE has them.
HEADERS = {
    "X-Capitals": "Upper and lower",
    "x-colon": "a:b\\c",
    "x-blanks": " a\tb  ",
    "x-empty": "",
    "content-type": "application/x-stompkit",
    "x-accents": "Z\u00fcrich \u20ac",
}
TEXT = b"a\r\nb\t \\n\n\n"
#: A body that is not UTF-8; a receiver may take one without content-length for text.
BINARY = b"\xff\xfe\xc3(\r\n"
#: A body whose first part a server may take for the whole.
WITH_NUL = b"before\0after\0"
#: A body of 100 KiB, which a server may store in another way than a small one.
LARGE = bytes(range(1, 256)) * 400

#: A function that sends one message to a new destination, and returns it as it arrives.
Way = Callable[[Target, dict[str, str], bytes], Frame]


def at_once(target: Target, headers: dict[str, str], body: bytes) -> Frame:
    """Send to a queue that has a subscriber."""
    queue, peer = target.queue(), target.connect()
    target.subscribe(peer, queue)
    return sent_to(peer, peer, queue, headers, body)


def through_a_topic(target: Target, headers: dict[str, str], body: bytes) -> Frame:
    """Send to a topic, from another connection than that of the subscriber."""
    topic, peer = target.topic(), target.connect()
    target.subscribe(peer, topic)
    return sent_to(target.connect(), peer, topic, headers, body)


def after_waiting(target: Target, headers: dict[str, str], body: bytes) -> Frame:
    """Send to a queue without subscribers, and subscribe later."""
    queue, peer = target.queue(), target.connect()
    if not takes(peer, "SEND", {"destination": queue, **headers}, body):
        raise UnsupportedError("the target refuses such headers")
    target.subscribe(peer, queue)
    return peer.expect("MESSAGE")


def by_a_transaction(target: Target, headers: dict[str, str], body: bytes) -> Frame:
    """Send in a transaction, and COMMIT it."""
    queue, peer = target.queue(), target.connect()
    target.subscribe(peer, queue)
    begin(peer, "t")
    peer.send("SEND", {"destination": queue, "transaction": "t", **headers}, body)
    peer.call("COMMIT", {"transaction": "t"})
    return peer.expect("MESSAGE")


def sent_to(
    sender: Peer, receiver: Peer, destination: str, headers: dict[str, str], body: bytes
) -> Frame:
    """Send a message to a destination that has a subscriber."""
    if not takes(sender, "SEND", {"destination": destination, **headers}, body):
        raise UnsupportedError("the target refuses such headers")
    return receiver.expect("MESSAGE")


def assert_unchanged(target: Target, way: Way) -> None:
    """Fail if a message arrives by this way other than at once."""
    is_first = target.version == "1.0"
    sent = {name: it for name, it in HEADERS.items() if not is_first or (it and it.isascii())}
    # On 1.0 a content-length should be read, which leaves a NUL in a body to the server.
    for body in (TEXT, BINARY, LARGE) if is_first else (TEXT, BINARY, WITH_NUL, LARGE):
        try:
            expected = at_once(target, sent, body)
        except UnsupportedError:
            if body is not LARGE:
                raise
            target.note(f"a body of {len(body):,} octets is more than the target takes")
            continue
        got = way(target, sent, body)
        if body is LARGE:
            assert_same_body(got.body, expected.body)
        assert got.body == expected.body, f"the body {expected.body!r} arrived as {got.body!r}"
        if target.version == "1.0":
            continue
        for name in sent:
            if got.headers.get(name) != expected.headers.get(name):
                raise FailedError(
                    f"{name}:{expected.headers.get(name)!r} arrived as {got.headers.get(name)!r}"
                )


@trial(
    "behaviour/message/waiting",
    "A message that has waited in its queue is the same as one that is delivered at once.",
    level="MUST",
    section=SECTION,
    versions=ALL_VERSIONS,
    rests_on=UNCHANGED,
)
def test_message_that_has_waited(target: Target) -> None:
    """Send bodies of four kinds with unusual headers, and subscribe later; they are unchanged."""
    assert_unchanged(target, after_waiting)


@trial(
    "behaviour/message/topic",
    "A message to a topic arrives as one to a queue does.",
    level="MUST",
    section=SECTION,
    versions=ALL_VERSIONS,
    rests_on=UNCHANGED,
)
def test_message_to_a_topic(target: Target) -> None:
    """Send bodies of four kinds with unusual headers to a topic; they arrive unchanged."""
    assert_unchanged(target, through_a_topic)


@trial(
    "behaviour/message/transaction",
    "A message of a transaction is the same as one that is sent by itself.",
    level="MUST",
    section=SECTION,
    versions=ALL_VERSIONS,
    rests_on=UNCHANGED,
)
def test_message_of_a_transaction(target: Target) -> None:
    """Send bodies of four kinds with unusual headers in transactions; they arrive unchanged."""
    assert_unchanged(target, by_a_transaction)
