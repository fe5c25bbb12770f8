"""SEND and MESSAGE, as all versions have them."""

from stompkit.conformance import Outcome, Peer, Target, case
from stompkit.conformance.requirements import statements
from stompkit.conformance.scenarios import bodies, takes


@case(
    "1.0/send/delivers-to-destination",
    "1.1/send/delivers",
    "1.2/send/delivers",
    "1.0/subscribe/delivered-as-message",
    "1.1/subscribe/delivered-as-message",
    "1.2/subscribe/delivered-as-message",
    "1.1/overview/client-both-roles",
    "1.2/overview/client-both-roles",
)
def test_message_is_delivered(target: Target, peer: Peer) -> None:
    """SUBSCRIBE, and SEND from this and another connection; both messages arrive."""
    queue = target.queue()
    target.subscribe(peer, queue)
    peer.send("SEND", {"destination": queue}, b"own")
    target.connect().send("SEND", {"destination": queue}, b"other")
    bodies = sorted(frame.body for frame in peer.expect_messages(2))
    assert bodies == [b"other", b"own"], f"arrived: {bodies}"


@case(
    "1.0/send/body-is-message",
    "1.1/send/body-is-message",
    "1.2/send/body-is-message",
    "1.0/message/body-is-content",
    "1.1/message/body",
    "1.2/message/body",
    "1.1/overview/binary-bodies",
    "1.2/overview/binary-bodies",
    "1.1/content-type/absent-is-blob",
    "1.2/content-type/absent-is-blob",
)
def test_body_arrives_unchanged(target: Target, peer: Peer) -> None:
    """Send every octet but NUL, without a content-type, then all; the same octets arrive.

    Of a body with NULs 1.0 says no more than that the octets of its content-length should be read.
    """
    queue = target.queue()
    target.subscribe(peer, queue)
    for first in (1, 0):
        body = bytes(range(first, 256))
        peer.send("SEND", {"destination": queue}, body)
        if target.version == "1.0" and not first:
            arrived = bodies(peer.gather_messages(1))
            target.should(arrived == [body], "a body with NUL is lost or changed")
        else:
            assert peer.expect("MESSAGE").body == body, "the body was changed"


@case(
    "1.0/send/destination-required",
    "1.1/send/destination-required",
    "1.2/send/destination-required",
    "1.2/headers/send",
    level={"1.0": "SHOULD"},
    rests_on=statements("send/destination-required", "send/unprocessable-error"),
)
def test_send_needs_destination(peer: Peer) -> None:
    """SEND without destination gets no RECEIPT but an ERROR, or the connection ends.

    There is nowhere to send the message to, so that it can't be processed. 1.0 does not say what
    the server does then.
    """
    peer.send("SEND", {"receipt": "r"}, b"x")
    peer.expect_refusal("r")


@case("1.1/send/unprocessable-error", "1.2/send/unprocessable-error")
def test_bad_send_draws_error(target: Target) -> None:
    """SEND without destination draws ERROR; so does one in an unknown transaction.

    A server that takes the latter can process it: the specification does not forbid to begin a
    transaction so.
    """
    refusals = (Outcome.ERROR, Outcome.ERROR_AND_CLOSE)
    for headers in ({}, {"destination": target.queue(), "transaction": "unknown"}):
        peer = target.connect()
        peer.send("SEND", {**headers, "receipt": "r"}, b"x")
        outcome = peer.outcome("r", 0.0)
        if headers and outcome is Outcome.ACCEPTED:
            target.should(False, f"SEND in an unknown transaction is {outcome}")
        else:
            assert outcome in refusals, f"SEND with {headers} is {outcome}"


@case("1.1/send/unprocessable-close", "1.2/send/unprocessable-close")
def test_bad_send_closes(peer: Peer) -> None:
    """After the ERROR for a SEND without destination the server closes the connection."""
    peer.send("SEND", {"receipt": "r"}, b"x")
    peer.expect_refusal("r")
    peer.expect_close()


@case(
    "1.0/message/destination-header",
    "1.1/message/destination",
    "1.2/message/destination",
    "1.0/message/message-id-header",
    "1.1/message/message-id",
    "1.2/message/message-id",
    "1.2/headers/message",
)
def test_message_headers(target: Target, peer: Peer) -> None:
    """Send to a queue and a topic, if any; each MESSAGE has destination and message-id."""
    sender = target.connect()
    names = [target.queue(), target.topic()] if target.has_topics else [target.queue()]
    for number, name in enumerate(names):
        target.subscribe(peer, name, id=f"s{number}")
        sender.send("SEND", {"destination": name}, b"x")
        headers = peer.expect("MESSAGE").headers
        assert headers.get("destination"), f"{name}: MESSAGE has no destination"
        assert headers.get("message-id"), f"{name}: MESSAGE has no message-id"


@case(
    "1.1/message/subscription",
    "1.2/message/subscription",
    "1.0/subscribe/subscription-header-should",
)
def test_message_names_its_subscription(target: Target, peer: Peer) -> None:
    """Subscribe twice to a topic; each MESSAGE has the id of one of the two.

    A target may refuse the second subscription; then the MESSAGE has the id of the only one.
    """
    topic, wanted = target.topic(), ["first", "second"]
    target.subscribe(peer, topic, id="first")
    if not takes(peer, "SUBSCRIBE", {"destination": topic, "id": "second"}):
        target.note("a second subscription to a topic is refused")
        peer, wanted = target.connect(), ["only"]
        target.subscribe(peer, topic, id="only")
    target.connect().send("SEND", {"destination": topic}, b"x")
    messages = peer.expect_messages(len(wanted))
    ids = sorted(frame.headers.get("subscription", "none") for frame in messages)
    assert ids == wanted, f"the subscription headers are {ids}"


@case(
    "1.0/message/message-id-unique",
    "1.1/message/message-id-unique",
    "1.2/message/message-id-unique",
)
def test_message_ids_differ(target: Target, peer: Peer) -> None:
    """Send 100 messages to two queues; they arrive with 100 different message-ids."""
    queues = [target.queue(), target.queue()]
    for number, queue in enumerate(queues):
        target.subscribe(peer, queue, id=f"s{number}")
    for number in range(100):
        peer.call("SEND", {"destination": queues[number % 2]}, b"%d" % number)
    ids = {frame.headers.get("message-id") for frame in peer.expect_messages(100)}
    assert len(ids) == 100, f"only {len(ids)} different ids"


@case("1.2/message/destination-same-as-send")
def test_destination_as_sent(target: Target) -> None:
    """Send to names with spaces, a percent sign and an accent; MESSAGE repeats them exactly.

    A target may refuse such a name.
    """
    for suffix in ("", " b", " ", "%2Fb", "\u00e9"):
        peer, name = target.connect(), target.queue() + suffix
        if not takes(peer, "SUBSCRIBE", {"destination": name, "id": "s1"}) and suffix:
            target.note(f"a destination that ends in {suffix!r} is refused")
            continue
        peer.send("SEND", {"destination": name}, b"x")
        got = peer.expect("MESSAGE").headers.get("destination")
        assert got == name, f"sent to {name!r}, delivered as {got!r}"


@case(
    "1.1/send/user-headers-pass-through",
    "1.2/send/user-headers-pass-through",
    "1.1/message/user-headers",
    "1.2/message/user-headers",
    "1.1/send/user-headers-may",
    "1.2/send/user-headers-may",
    "1.2/headers/user-headers-may",
)
def test_user_headers_arrive(target: Target, peer: Peer) -> None:
    """Send twenty invented headers, or five where so many are refused; all arrive as sent."""
    queue = target.queue()
    target.subscribe(peer, queue)
    sent = {f"x-{n}": f"value {n}" for n in range(20)}
    if not takes(peer, "SEND", {"destination": queue, **sent}, b"x"):
        target.note("twenty headers of a user's are more than the target takes")
        peer = target.connect()
        target.subscribe(peer, queue)
        sent = {f"x-{n}": f"value {n}" for n in range(5)}
        peer.call("SEND", {"destination": queue, **sent}, b"x")
    headers = peer.expect("MESSAGE").headers
    wrong = {name: headers.get(name) for name, value in sent.items() if headers.get(name) != value}
    assert not wrong, f"headers lost or changed: {wrong}"


@case("1.2/headers/user-headers-part-of-message")
def test_user_headers_survive_queueing(target: Target, peer: Peer) -> None:
    """Send a header to a queue nobody listens to; a later subscriber gets it."""
    queue = target.queue()
    peer.call("SEND", {"destination": queue, "x-kept": "yes"}, b"x")
    target.subscribe(peer, queue)
    assert peer.expect("MESSAGE").headers.get("x-kept") == "yes", "the header was lost"


@case(
    "1.0/message/content-length-recommended",
    "1.1/message/content-length-should",
    "1.2/message/content-length-should",
    "1.1/content-length/should-with-body",
    "1.2/content-length/should-with-body",
)
def test_message_has_content_length(target: Target, peer: Peer) -> None:
    """Send a body without content-length; MESSAGE has it."""
    queue = target.queue()
    target.subscribe(peer, queue)
    peer.send("SEND", {"destination": queue}, b"uncounted", length=False)
    length = peer.expect("MESSAGE").headers.get("content-length")
    assert length is not None, "MESSAGE with a body has no content-length"
    assert length == "9", f"content-length is {length} for 9 octets"


@case("1.0/message/content-length-octets", "1.0/message/null-terminated")
def test_message_length_is_right(target: Target, peer: Peer) -> None:
    """Send bodies of several kinds; content-length, if any, is right each time, and NUL follows."""
    queue = target.queue()
    target.subscribe(peer, queue)
    for body in (b"", b"x", b"a\0\0b", "\u00e9\u20ac".encode(), b"y" * 5_000):
        peer.send("SEND", {"destination": queue}, body)
        message = peer.expect("MESSAGE")
        assert message.body == body, f"{body[:20]!r} arrived as {target.shown(message.body)}"
        length = message.headers.get("content-length", str(len(body)))
        assert length == str(len(body)), f"content-length is {length} for {len(body)} octets"


@case(
    "1.1/message/content-type-should",
    "1.2/message/content-type-should",
    "1.1/content-type/should-with-body",
    "1.2/content-type/should-with-body",
    "1.1/content-type/charset-for-other-encodings",
    "1.2/content-type/charset-for-other-encodings",
    "1.1/content-type/charset-for-non-text",
    "1.2/content-type/charset-for-non-text",
)
def test_content_type_arrives(target: Target, peer: Peer) -> None:
    """Send bodies with content-types; they arrive unchanged."""
    queue = target.queue()
    target.subscribe(peer, queue)
    for kind in ("text/plain", "text/html;charset=utf-16", "application/xml;charset=utf-8"):
        peer.send("SEND", {"destination": queue, "content-type": kind}, "h\u00e9".encode("utf-16"))
        message = peer.expect("MESSAGE")
        got = message.headers.get("content-type")
        assert got == kind, f"sent {kind}, got {got}"
        assert message.body == "h\u00e9".encode("utf-16"), f"{kind}: the body was changed"


@case("1.1/message/server-headers-may", "1.2/message/server-headers-may")
def test_headers_added_by_the_server(target: Target, peer: Peer) -> None:
    """Send a message; record which headers the server adds."""
    queue = target.queue()
    target.subscribe(peer, queue, ack="client")
    peer.send("SEND", {"destination": queue, "receipt": "seen-by-others"}, b"x")
    standard = {"destination", "subscription", "message-id", "ack", "content-length"}
    target.note(f"added: {sorted(peer.expect('MESSAGE').headers.keys() - standard)}")


@case("1.0/message/conveys", "1.1/message/conveys", "1.2/message/conveys")
def test_no_message_without_subscription(target: Target, peer: Peer) -> None:
    """Send to a topic without subscribing; no MESSAGE comes back."""
    peer.call("SEND", {"destination": target.topic()}, b"x")
    peer.expect_nothing(target.quiet_s)
