"""Messages that were not acknowledged come again; none is lost and none comes twice.

The specification lets the server do without: it MAY redeliver. What rests on that alone is
NON-STRICT. A server that does redeliver, and then loses some, has taken them for acknowledged.
"""

from collections import Counter

from stompkit.conformance import Peer, Target, UnsupportedError, trial
from stompkit.conformance.requirements import statements
from stompkit.conformance.scenarios import (
    SINCE_1_1,
    bodies,
    fill,
    left_after_reset,
    numbered,
    receive,
    require_ack_header,
    send_all,
    unsubscribe,
)

SECTION = "SUBSCRIBE / SUBSCRIBE ack Header"
#: How often a message is left unacknowledged at the most, to see when the target gives up.
MOST_DELIVERIES = 10


def once_each(contents: list[bytes], number: int, what: str) -> None:
    """Fail unless these are the bodies 1 to ``number``, each once."""
    wanted = Counter(numbered(number))
    missing, doubled = wanted - Counter(contents), Counter(contents) - wanted
    assert not missing, f"{what}: lost {sorted(missing)}"
    assert not doubled, f"{what}: came more than once: {sorted(doubled)}"


@trial(
    "behaviour/redelivery/rest-after-reset",
    "When a connection is lost what it has not acknowledged comes again, once, and nothing else.",
    level="FACT",
    section=SECTION,
    versions=SINCE_1_1,
    rests_on=statements("ack/unacked-not-consumed", "ack/acknowledges"),
)
def test_the_rest_comes_again(target: Target, peer: Peer) -> None:
    """Receive ten, ACK every other and cut the connection; the other five come, each once."""
    queue, messages = receive(target, peer, 10)
    for message in messages[1::2]:
        peer.acknowledge(message)
    peer.reset()
    rest = bodies(messages[::2])
    left = left_after_reset(target, queue, len(rest), "client-individual")
    assert sorted(left) == sorted(rest), f"a new subscriber got {left}"
    target.profile("order of redelivered messages", "kept" if left == rest else "changed")


@trial(
    "behaviour/redelivery/after-disconnect",
    "What was not acknowledged before DISCONNECT comes again.",
    level="SHOULD",
    section=SECTION,
    versions=("1.0", "1.1", "1.2"),
)
def test_unacknowledged_at_disconnect(target: Target, peer: Peer) -> None:
    """Receive in the mode client and DISCONNECT; a new subscriber gets the message."""
    queue, _ = receive(target, peer, 1, ack="client")
    peer.call("DISCONNECT")
    peer.close()
    left = target.leftovers(queue, 1)
    assert left == [b"1"], f"a new subscriber got {left}"


@trial(
    "behaviour/redelivery/after-unsubscribe",
    "What was not acknowledged before UNSUBSCRIBE comes again, at the latest when the client goes.",
    level="SHOULD",
    section=SECTION,
    versions=SINCE_1_1,
)
def test_unacknowledged_at_unsubscribe(target: Target, peer: Peer) -> None:
    """Receive and UNSUBSCRIBE; a new subscriber gets the message, once. Record when."""
    queue, _ = receive(target, peer, 1, ack="client")
    unsubscribe(peer, queue)
    other = target.connect()
    target.subscribe(other, queue, ack="client")
    early = other.gather_messages(1, target.quiet_s)
    for message in early:
        other.acknowledge(message)
    # One that just closes could still be given the message.
    other.call("DISCONNECT")
    when = "at once" if early else "after the connection's end"
    target.profile("what UNSUBSCRIBE leaves unacknowledged is free", when)
    peer.reset()
    came = bodies(early) + target.leftovers(queue, 1 - len(early))
    assert came == [b"1"], f"new subscribers got {came}"


@trial(
    "behaviour/redelivery/to-waiting-subscriber",
    "What comes back from a lost connection goes to a subscriber that waits already.",
    level="SHOULD",
    section=SECTION,
    versions=SINCE_1_1,
)
def test_redelivery_to_who_waits(target: Target, peer: Peer) -> None:
    """Receive on one connection, subscribe on another and cut the first; the other gets it."""
    queue, _ = receive(target, peer, 1, ack="client")
    other = target.connect()
    target.subscribe(other, queue, ack="client")
    peer.reset()
    assert bodies(other.gather_messages(1)) == [b"1"], "it does not come to the other subscriber"


@trial(
    "behaviour/redelivery/content",
    "A message that comes again has the body and the user headers that it had before.",
    level="FACT",
    section=SECTION,
    versions=SINCE_1_1,
    rests_on=statements("message/user-headers", "message/body"),
)
def test_redelivered_content(target: Target, peer: Peer) -> None:
    """Receive a message with user headers, cut the connection and receive it again, unchanged.

    Its body is no text: what of it was changed on the first way may not be changed once more.
    """
    sent = {"one": "1", "two": "two: \\ 2", "content-type": "application/x-stompkit"}
    queue = target.queue()
    target.connect().call("SEND", {"destination": queue, **sent}, b"\xff\xfe\xc3(\r\n\n")
    target.subscribe(peer, queue, ack="client-individual")
    first = peer.expect("MESSAGE")
    peer.reset()
    again = target.connect()
    target.subscribe(again, queue, ack="client-individual")
    found = again.gather_messages(1)
    if not found:
        raise UnsupportedError("the target redelivers nothing")
    assert found[0].body == first.body, f"the body came again as {found[0].body!r}"
    had = {name: first.headers[name] for name in sent if name in first.headers}
    changed = [name for name, value in had.items() if found[0].headers.get(name) != value]
    assert not changed, f"the header {changed[0]} was lost or changed when the message came again"


@trial(
    "behaviour/redelivery/marks",
    "How a redelivered message looks is left open.",
    level="MAY",
    section=SECTION,
)
def test_what_redelivery_looks_like(target: Target, peer: Peer) -> None:
    """Receive and cut the connection; record what differs in the message that comes again."""
    queue, (first,) = receive(target, peer, 1, ack="client")
    peer.reset()
    again = target.connect()
    target.subscribe(again, queue, ack="client")
    messages = again.gather_messages(1)
    if not messages:
        raise UnsupportedError("the target does not redeliver the message")
    second = messages[0]
    flags = [frame.headers.get("redelivered", "no header") for frame in (first, second)]
    target.profile("redelivered header, first and again", ", then ".join(flags))
    is_same = first.headers.get("message-id") == second.headers.get("message-id")
    target.profile("message-id of a redelivered message", "the same" if is_same else "a new one")


@trial(
    "behaviour/redelivery/attempts",
    "How often a message that is never acknowledged comes again is left open.",
    level="MAY",
    section=SECTION,
)
def test_how_often_a_message_comes(target: Target) -> None:
    """Receive a message and cut the connection, ten times; record how often it comes."""
    queue = fill(target, 1)
    times = in_vain = 0
    while times < MOST_DELIVERIES and in_vain < 2:
        peer = target.connect()
        target.subscribe(peer, queue, ack="client")
        if peer.gather_messages(1, target.quiet_s):
            times, in_vain = times + 1, 0
        else:
            # It may have come back too late for this subscription.
            in_vain += 1
        peer.reset()
    about = "deliveries without ACK until a message is given up"
    target.profile(about, f"{MOST_DELIVERIES} or more" if times == MOST_DELIVERIES else str(times))


@trial(
    "behaviour/redelivery/topic",
    "Whether an unacknowledged message of a topic comes again is left open.",
    level="MAY",
    section=SECTION,
)
def test_redelivery_of_a_topics_message(target: Target, peer: Peer) -> None:
    """Receive from a topic, cut the connection, subscribe again; record whether it comes again."""
    topic = target.topic()
    target.subscribe(peer, topic, ack="client")
    target.connect().call("SEND", {"destination": topic}, b"x")
    peer.expect("MESSAGE")
    peer.reset()
    left = target.leftovers(topic)
    target.profile("unacknowledged message of a topic", "comes again" if left else "is gone")


@trial(
    "behaviour/redelivery/consumer-dies",
    "When one of several consumers dies no message is lost, and none is consumed twice.",
    level="SHOULD",
    section=SECTION,
)
def test_one_of_several_consumers_dies(target: Target, peer: Peer) -> None:
    """Three share 60 messages, one acknowledges none and is cut off; each is consumed once."""
    queue = target.queue()
    consumers = [target.connect(), target.connect()]
    for consumer in (peer, *consumers):
        target.subscribe(consumer, queue, ack="client-individual")
    send_all(target.connect(), queue, numbered(60))
    consumed: list[bytes] = []

    def consume(consumer: Peer, number: int) -> None:
        for _ in range(number):
            messages = consumer.gather_messages(1, target.quiet_s)
            if not messages:
                break
            require_ack_header(messages[0], target)
            consumer.acknowledge(messages[0])
            consumed.extend(bodies(messages))

    for consumer in consumers:
        consume(consumer, 10)
    peer.expect("MESSAGE")
    peer.reset()
    for consumer in consumers:
        consume(consumer, 60)
    for consumer in consumers:
        consumer.reset()
    once_each(consumed + target.leftovers(queue, 60 - len(consumed)), 60, "60 messages")


@trial(
    "behaviour/order/per-sender",
    "One consumer of a queue gets the messages of each sender in the order they were sent.",
    level="SHOULD",
    section="SEND",
)
def test_order_of_each_sender(target: Target, peer: Peer) -> None:
    """Two connections send 100 messages each to a queue in turn; both series arrive in order."""
    queue = target.queue()
    target.subscribe(peer, queue, ack="auto")
    senders = {b"a": target.connect(), b"b": target.connect()}
    for first in range(0, 100, 10):
        for name, sender in senders.items():
            send_all(sender, queue, [b"%b%03d" % (name, n) for n in range(first, first + 10)])
    arrived = bodies(peer.expect_messages(200))
    for name in senders:
        series = [body for body in arrived if body.startswith(name)]
        assert series == sorted(series), "a sender's messages arrived in another order"


@trial(
    "behaviour/order/shared-queue",
    "Of several consumers of a queue exactly one gets each message.",
    level="SHOULD",
    section="SEND",
)
def test_consumers_share_a_queue(target: Target, peer: Peer) -> None:
    """Two connections subscribe to a queue; of 40 messages each arrives once, at either."""
    queue = target.queue()
    other = target.connect()
    for consumer in (peer, other):
        target.subscribe(consumer, queue, ack="auto")
    send_all(target.connect(), queue, numbered(40))
    shares = [bodies(consumer.collect(target.quiet_s)) for consumer in (peer, other)]
    once_each([*shares[0], *shares[1]], 40, "two consumers")
    lengths = sorted(len(share) for share in shares)
    target.note(f"one consumer got {lengths[0]}, the other {lengths[1]}")
