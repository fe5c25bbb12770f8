"""What a server hands on as it came: bodies, names and values of headers, and what is its own.

The specifications say that user headers are passed through and that a body is the content of the
message. These cases try what servers and their libraries change on the way. A server may limit
headers; then it refuses the frame, and the case is UNSUPPORTED.
"""

from collections.abc import Mapping

from stompkit.conformance import FailedError, Peer, Target, UnsupportedError, raw_value, trial
from stompkit.conformance.requirements import statements
from stompkit.conformance.scenarios import (
    LONG_LOOKALIKES,
    LOOKALIKES,
    SINCE_1_1,
    assert_same_body,
    takes,
    unsubscribe,
)
from stompkit.frames import Frame

PASSED_THROUGH = "Client Frames / SEND"
USER_HEADERS = (
    *("1.1/send/user-headers-pass-through", "1.2/send/user-headers-pass-through"),
    *("1.1/message/user-headers", "1.2/message/user-headers"),
)
CASE = ("1.1/frame/case-sensitive", "1.2/frame/case-sensitive")


def passed_on(target: Target, peer: Peer, headers: Mapping[str, str], what: str) -> Frame:
    """The MESSAGE that comes of a SEND with these headers, to a new queue.

    Raises UnsupportedError where the target refuses them; ``what`` says what they are.
    """
    queue = target.queue()
    target.subscribe(peer, queue)
    if not takes(peer, "SEND", {"destination": queue, **headers}, b"x"):
        raise UnsupportedError(f"the target refuses {what}")
    return peer.expect("MESSAGE")


def assert_same(target: Target, message: Frame, headers: Mapping[str, str]) -> None:
    """Fail if one of these headers did not arrive as it was sent."""
    for name, value in headers.items():
        got = message.headers.get(name)
        if got is None:
            raise FailedError(f"the header {name[:40]!r} is lost")
        if got != value:
            how = f"{len(got):,} of {len(value):,} characters" if len(got) < len(value) else "other"
            raise FailedError(f"the header {name[:40]!r} arrived as {target.shown(got)}: {how}")


@trial(
    "behaviour/header/letter-case",
    "Names of headers keep their capitals, and two that differ by capitals only are two headers.",
    level="MUST",
    section=PASSED_THROUGH,
    versions=SINCE_1_1,
    covers=(*USER_HEADERS, *CASE),
)
def test_capitals_in_names(target: Target, peer: Peer) -> None:
    """Send X-Header and x-header with different values; both arrive."""
    sent = {"X-Header": "upper", "x-header": "lower"}
    assert_same(target, passed_on(target, peer, sent, "two such headers"), sent)


@trial(
    "behaviour/header/blanks-inside",
    "Tabs and several blanks inside a value arrive as they were sent.",
    level="MUST",
    section=PASSED_THROUGH,
    versions=SINCE_1_1,
    covers=USER_HEADERS,
)
def test_blanks_inside_values(target: Target, peer: Peer) -> None:
    """Send values with a tab, two tabs and three blanks inside; all arrive unchanged."""
    sent = {"x-tab": "a\tb", "x-tabs": "a\t\tb", "x-blanks": "a   b"}
    assert_same(target, passed_on(target, peer, sent, "blanks in values"), sent)


@trial(
    "behaviour/header/values",
    "Values arrive character by character, whatever they look like.",
    level="MUST",
    section=PASSED_THROUGH,
    versions=SINCE_1_1,
    covers=USER_HEADERS,
)
def test_values_that_look_like_something(target: Target, peer: Peer) -> None:
    """Send numbers, words, quotes, percent signs, accents and markup; all arrive unchanged."""
    sent = {
        "zeros": "007",
        "decimals": "1.50",
        "exponent": "1e3",
        "words": "True null None",
        "capitals": "MiXed",
        "quotes": '"quoted"',
        "percent": "100%41%20",
        "plus": "a+b",
        "accent": "e\u0301",
        "markup": "<&amp;>",
    }
    assert_same(target, passed_on(target, peer, sent, "such values"), sent)


@trial(
    "behaviour/header/names",
    "Names of user headers arrive as they were sent, with all their signs.",
    level="MUST",
    section=PASSED_THROUGH,
    versions=SINCE_1_1,
    covers=USER_HEADERS,
)
def test_names_that_look_like_something(target: Target, peer: Peer) -> None:
    """Send names with dots, dashes, digits, dollars and underscores; all arrive unchanged."""
    names = ("a.b", "a-b_c", "1st", "$cost", "_own", "__proto__", "constructor", "x=y")
    sent = {name: f"value of {name}" for name in names}
    assert_same(target, passed_on(target, peer, sent, "such names"), sent)


def assert_more_and_more(target: Target, peer: Peer, sent: dict[str, dict[str, str]]) -> None:
    """Send headers, the fewest or shortest first, by what they are; each arrives as it was.

    A target may refuse any but the first. Raises UnsupportedError where it refuses that, too.
    """
    is_taken = False
    for what, headers in sent.items():
        try:
            assert_same(target, passed_on(target, peer, headers, what), headers)
        except UnsupportedError as reason:
            if not is_taken:
                raise
            target.note(str(reason))
            break
        is_taken = True
        peer = target.connect()


@trial(
    "behaviour/header/long-value",
    "A long value arrives whole, or the frame is refused.",
    level="MUST",
    section=PASSED_THROUGH,
    versions=SINCE_1_1,
    covers=USER_HEADERS,
)
def test_long_values(target: Target, peer: Peer) -> None:
    """Send values of 300, 1,500 and 6,000 characters; each arrives whole, or is refused."""
    sizes = (300, 1_500, 6_000)
    sent = {
        f"a value of {size:,} characters": {"x-long": "0123456789" * (size // 10)} for size in sizes
    }
    assert_more_and_more(target, peer, sent)


@trial(
    "behaviour/header/many",
    "All headers of a user's arrive, however many, or the frame is refused.",
    level="MUST",
    section=PASSED_THROUGH,
    versions=SINCE_1_1,
    covers=USER_HEADERS,
)
def test_many_headers(target: Target, peer: Peer) -> None:
    """Send 15, 40 and 90 headers; each time all arrive, or the frame is refused."""
    sent = {
        f"{number} headers": {f"x-{n}": f"value {n}" for n in range(number)}
        for number in (15, 40, 90)
    }
    assert_more_and_more(target, peer, sent)


@trial(
    "behaviour/header/carriage-return",
    "On 1.1 a line ends in a line feed, and a carriage return before it is part of the value.",
    level="SHOULD",
    section="1.1, Augmented BNF",
    versions=("1.1",),
    covers=("1.1/send/user-headers-pass-through",),
)
def test_carriage_return_ends_a_value(target: Target, peer: Peer) -> None:
    """Send a value that ends in a carriage return; it arrives with it, or is refused."""
    message = passed_on(target, peer, {"x-cr": "a\r"}, "a carriage return in a value")
    got = raw_value(message, "x-cr", peer.version)
    assert got == b"a\r", f"the value arrived as {got!r}"


@trial(
    "behaviour/message/own-headers",
    "What MESSAGE says of itself is the server's to say, whatever the sender puts into SEND.",
    level="MUST",
    section="Server Frames / MESSAGE",
    versions=("1.0", *SINCE_1_1),
    covers=("1.0/message/message-id-header", "1.1/message/message-id", "1.2/message/message-id"),
    rests_on=statements("message/message-id-unique", "message/subscription", "message/ack-relates"),
)
def test_headers_that_are_the_servers(target: Target, peer: Peer) -> None:
    """SEND two with the same subscription, message-id and ack; none goes for the server's own.

    They may be passed on behind those of the server: the first of repeated headers counts.
    """
    queue = target.queue()
    mode = "client" if target.version == "1.0" else "client-individual"
    target.subscribe(peer, queue, ack=mode if peer.has_ack else "auto")
    forged = {"subscription": "forged", "message-id": "forged", "ack": "forged"}
    for _ in range(2):
        if not takes(target.connect(), "SEND", {"destination": queue, **forged}, b"x"):
            raise UnsupportedError("the target refuses headers of MESSAGE in SEND")
    # A window may hold back the second.
    messages = [peer.expect("MESSAGE"), *peer.gather_messages(1)]
    names = ["message-id"] if target.version == "1.0" else ["message-id", "subscription"]
    if target.version == "1.2" and peer.has_ack:
        names.append("ack")
    for message in messages:
        for name in names:
            got = message.headers.get(name)
            assert got != "forged", f"MESSAGE has the sender's {name} instead of the server's"
        if target.version != "1.0":
            subscription = message.headers.get("subscription")
            assert subscription == "s1", f"the subscription is {subscription!r}"


def is_utf8(body: bytes) -> bool:
    """Whether a body can be text, by the default encoding."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


@trial(
    "behaviour/body/line-ends",
    "A body is octets: line ends, blanks and what is not UTF-8 arrive as they were sent.",
    level="MUST",
    section="Server Frames / MESSAGE",
    versions=("1.0", *SINCE_1_1),
    covers=("1.0/message/body-is-content", "1.1/message/body", "1.2/message/body"),
)
def test_line_ends_in_bodies(target: Target, peer: Peer) -> None:
    """Send bodies that begin and end in line ends and blanks, with and without content-length.

    From 1.1 on a receiver SHOULD take a body without content-type for a binary blob. One that does
    not, and takes it for text, may change what is no UTF-8. 1.0 has no such choice: the body is the
    content of the message.
    """
    queue = target.queue()
    target.subscribe(peer, queue)
    texts = (b"a\r\nb\r\n", b"a\n\n\n", b"\n\na", b"\r\n", b"\n", b" a\t ", b"\xff\xfe\xc3(\n")
    for body in texts:
        for has_length in (True, False):
            peer.send("SEND", {"destination": queue}, body, length=has_length)
            got = peer.expect("MESSAGE").body
            told = f"the body {body!r} arrived as {got!r}"
            if target.version != "1.0" and not is_utf8(body):
                target.should(got == body, told)
            else:
                assert got == body, told


@trial(
    "behaviour/body/length-before",
    "The content-length of a frame counts for its body only, and not for the frames after it.",
    level="MUST",
    section="Server Frames / MESSAGE",
    versions=("1.0", *SINCE_1_1),
    covers=("1.0/message/body-is-content", "1.1/message/body", "1.2/message/body"),
)
def test_bodies_after_a_counted_one(target: Target, peer: Peer) -> None:
    """Send bodies with and without content-length in turn; each arrives as it was sent.

    Those without it are shorter and longer than the one before.
    """
    queue = target.queue()
    target.subscribe(peer, queue)
    for body, has_length in ((b"twelve bytes", True), (b"short", False), (b"long" * 9, False)):
        peer.send("SEND", {"destination": queue}, body, length=has_length)
        got = peer.expect("MESSAGE").body
        assert got == body, f"the body {body!r} arrived as {got!r}"


@trial(
    "behaviour/body/values",
    "A body is what was sent, though a language may take it for nothing or for a sign.",
    level="MUST",
    section="Server Frames / MESSAGE",
    versions=("1.0", *SINCE_1_1),
    covers=("1.0/message/body-is-content", "1.1/message/body", "1.2/message/body"),
)
def test_bodies_that_look_like_something(target: Target, peer: Peer) -> None:
    """Send words, quotes, escapes, markup, an accent and a byte order mark; each is unchanged."""
    queue = target.queue()
    target.subscribe(peer, queue)
    texts = (
        *("0", "false", '""', "null", "%00", "e\u0301", "\ufefftext"),
        *(r"a\nb\\c\cd", "<&amp;>", "007", "a+b"),
    )
    for body in map(str.encode, texts):
        peer.send("SEND", {"destination": queue}, body)
        got = peer.expect("MESSAGE").body
        assert got == body, f"the body {body!r} arrived as {got!r}"


@trial(
    "behaviour/body/sizes",
    "A body arrives whole, or the frame is refused.",
    level="MUST",
    section="Server Frames / MESSAGE",
    versions=("1.0", *SINCE_1_1),
    covers=("1.0/message/body-is-content", "1.1/message/body", "1.2/message/body"),
)
def test_bodies_of_usual_limits(target: Target, peer: Peer) -> None:
    """Send bodies at the limits of usual buffers, of up to 256 KiB; each arrives, or is refused."""
    queue = target.queue()
    target.subscribe(peer, queue)
    for power in (12, 13, 16, 18):
        for size in (2**power - 1, 2**power, 2**power + 1):
            body = (b"0123456789abcdefg" * (size // 17 + 1))[:size]
            if not takes(peer, "SEND", {"destination": queue}, body):
                if power == 12:
                    raise UnsupportedError(f"the target refuses a body of {size:,} octets")
                target.note(f"the target refuses a body of {size:,} octets")
                return
            assert_same_body(peer.expect("MESSAGE").body, body)


@trial(
    "behaviour/body/empty",
    "A message without a body is a message.",
    level="MUST",
    section="Client Frames / SEND",
    versions=("1.0", *SINCE_1_1),
    covers=("1.0/message/body-is-content", "1.1/message/body", "1.2/message/body"),
)
def test_empty_bodies(target: Target, peer: Peer) -> None:
    """Send a message without a body, and one with; both arrive, in this order."""
    queue = target.queue()
    target.subscribe(peer, queue)
    for body in (b"", b"x"):
        peer.send("SEND", {"destination": queue}, body)
    first, second = peer.expect_messages(2)
    assert (first.body, second.body) == (b"", b"x"), f"there came {[first.body, second.body]}"


@trial(
    "behaviour/subscribe/letter-case",
    "Ids that differ by capitals only are two ids, and MESSAGE has the one of its subscription.",
    level="MUST",
    section="SUBSCRIBE / SUBSCRIBE id Header",
    versions=SINCE_1_1,
    covers=("1.1/message/subscription", "1.2/message/subscription"),
    rests_on=statements("message/subscription", "subscribe/id-unique"),
)
def test_capitals_in_ids(target: Target, peer: Peer) -> None:
    """Subscribe to two queues with the ids Sub and sUB; each message has its own, unchanged."""
    queues = {"Sub": target.queue(), "sUB": target.queue()}
    for id, queue in queues.items():
        target.subscribe(peer, queue, id=id)
    for id, queue in queues.items():
        peer.call("SEND", {"destination": queue}, id.encode())
    for message in peer.expect_messages(2):
        id = message.headers.get("subscription", "none")
        assert id == message.body.decode(), f"MESSAGE for {message.body!r} has subscription {id!r}"


@trial(
    "behaviour/subscribe/lookalikes",
    "An id is what was sent: MESSAGE has it character by character, and none goes for another.",
    level="MUST",
    section="SUBSCRIBE / SUBSCRIBE id Header",
    versions=SINCE_1_1,
    covers=("1.1/message/subscription", "1.2/message/subscription"),
    rests_on=statements("message/subscription", "subscribe/id-unique"),
)
def test_ids_that_look_alike(target: Target, peer: Peer) -> None:
    """Subscribe with two ids that look alike, and again; each message has the id of its own."""
    for ids in LOOKALIKES:
        tell_apart(target, peer, *ids)
    if takes(peer, "SUBSCRIBE", {"destination": target.queue(), "id": "long" * 50 + "."}):
        tell_apart(target, peer, *LONG_LOOKALIKES)
    else:
        target.note("an id of 201 characters is more than the target takes")


def tell_apart(target: Target, peer: Peer, *ids: str) -> None:
    """Fail if one of some subscriptions at the same time goes for another."""
    queues = {id: target.queue() for id in ids}
    for id, queue in queues.items():
        target.subscribe(peer, queue, id=id)
    for id, queue in queues.items():
        peer.send("SEND", {"destination": queue}, b"x")
        got = peer.expect("MESSAGE").headers.get("subscription", "none")
        assert got == id, f"the subscription {id!r} arrived as {got!r}"
    for id, queue in queues.items():
        unsubscribe(peer, queue, id)


@trial(
    "behaviour/unsubscribe/one-of-two",
    "UNSUBSCRIBE ends the subscription whose id it has, and no other to the same destination.",
    level="MUST",
    section="Client Frames / UNSUBSCRIBE",
    versions=SINCE_1_1,
    covers=("1.1/unsubscribe/removes", "1.2/unsubscribe/removes"),
    rests_on=statements(
        "unsubscribe/removes", "subscribe/delivered-as-message", "send/unprocessable-error"
    ),
)
def test_unsubscribe_one_of_two(target: Target, peer: Peer) -> None:
    """Subscribe twice to a topic and end the one; a message comes for the other."""
    topic = target.topic()
    try:
        for id in ("one", "two"):
            target.subscribe(peer, topic, id=id)
    except FailedError as error:
        raise UnsupportedError(
            f"the target refuses two subscriptions to a topic: {error}"
        ) from None
    peer.call("UNSUBSCRIBE", {"id": "one"})
    target.connect().call("SEND", {"destination": topic}, b"x")
    ids = [
        frame.headers.get("subscription", "none")
        for frame in peer.gather_messages(1) + peer.collect(target.quiet_s)
        if frame.command == "MESSAGE"
    ]
    assert ids == ["two"], f"messages came for {ids or 'neither'}, and not for two alone"
