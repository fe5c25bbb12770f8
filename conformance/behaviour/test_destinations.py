"""What queues and topics do that most brokers have, and what some offer beyond that."""

from itertools import pairwise

from stompkit.conformance import FailedError, Peer, Target, UnsupportedError, trial
from stompkit.conformance.extensions import (
    BROWSING,
    LOW,
    PRIORITIES,
    TOP,
    delayed,
    new_name,
)
from stompkit.conformance.scenarios import bodies, fill, numbered, takes

SECTION = "SEND; not in STOMP: queues and topics"
DELAY_MS = 700
#: More messages than a page or a window of usual servers has.
BACKLOG = 1_500


def bodies_until(peer: Peer, last: bytes) -> list[bytes]:
    """The messages that come before one with this body."""
    bodies = []
    while (body := peer.expect("MESSAGE").body) != last:
        bodies.append(body)
    return bodies


@trial(
    "behaviour/destination/topic-to-all",
    "Each subscriber of a topic gets every message, in the order in which it was sent.",
    level="SHOULD",
    section=SECTION,
)
def test_topic_to_all(target: Target, peer: Peer) -> None:
    """Send ten messages to a topic with three subscribers; each gets all, in order."""
    topic = target.topic()
    readers = [target.connect() for _ in range(3)]
    for reader in readers:
        target.subscribe(reader, topic)
    sent = [b"%d" % number for number in range(10)]
    for body in sent:
        peer.send("SEND", {"destination": topic}, body)
    for number, reader in enumerate(readers, 1):
        bodies = [frame.body for frame in reader.gather_messages(len(sent))]
        assert bodies == sent, f"subscriber {number} of 3 got {bodies}"


@trial(
    "behaviour/destination/topic-to-nobody",
    "What is sent to a topic without subscribers is kept for nobody.",
    level="SHOULD",
    section=SECTION,
)
def test_topic_to_nobody(target: Target, peer: Peer) -> None:
    """Send to a topic, subscribe, and send again; only what came later is delivered."""
    topic, sender = target.topic(), target.connect()
    sender.call("SEND", {"destination": topic}, b"early")
    target.subscribe(peer, topic)
    sender.send("SEND", {"destination": topic}, b"late")
    early = bodies_until(peer, b"late")
    assert not early, f"a later subscriber got {early}"


@trial(
    "behaviour/destination/backlog",
    "A subscriber of a queue gets all messages that wait there, however many, in their order.",
    level="SHOULD",
    section=SECTION,
)
def test_backlog(target: Target, peer: Peer) -> None:
    """Send 1,500 messages to a queue and subscribe; all arrive, in order."""
    sent = numbered(BACKLOG)
    try:
        queue = fill(target, len(sent))
    except FailedError as error:
        raise UnsupportedError(
            f"the target does not take {len(sent):,} messages: {error}"
        ) from None
    # The RECEIPT may come after all the messages, and then be late.
    peer.send("SUBSCRIBE", {"destination": queue, "id": "s1"})
    arrived = bodies(peer.gather_messages(len(sent)))
    assert len(arrived) == len(sent), f"of {len(sent):,} messages {len(arrived):,} arrived"
    assert arrived == sent, "the messages arrived in another order"


@trial(
    "behaviour/destination/own-messages",
    "A server may leave out the sender of a message where it delivers to a topic's subscribers.",
    level="MAY",
    section=SECTION,
)
def test_own_messages(target: Target, peer: Peer) -> None:
    """Subscribe to a topic and send to it; record whether the sender gets its own message."""
    topic = target.topic()
    target.subscribe(peer, topic)
    peer.send("SEND", {"destination": topic}, b"own")
    target.connect().send("SEND", {"destination": topic}, b"other's")
    bodies = {frame.body for frame in peer.expect_messages(1) + peer.collect(target.quiet_s)}
    does = "are delivered to it" if b"own" in bodies else "are not delivered to it"
    target.profile("the sender's own messages to a topic", does)


@trial(
    "behaviour/destination/two-subscriptions",
    "Of two subscriptions of a queue, also on one connection, each message goes to one.",
    level="SHOULD",
    section=SECTION,
)
def test_two_subscriptions(target: Target, peer: Peer) -> None:
    """Subscribe to a queue twice on one connection and send ten messages; each comes once."""
    queue = target.queue()
    target.subscribe(peer, queue, id="one")
    if not takes(peer, "SUBSCRIBE", {"destination": queue, "id": "two"}):
        raise UnsupportedError("the target refuses two subscriptions to a queue")
    sent = [b"%d" % number for number in range(10)]
    for body in sent:
        peer.call("SEND", {"destination": queue}, body)
    frames = peer.gather_messages(len(sent)) + peer.collect(target.quiet_s)
    messages = [frame for frame in frames if frame.command == "MESSAGE"]
    bodies = sorted(frame.body for frame in messages)
    assert bodies == sent, f"there came {bodies}"
    target.profile(
        "two subscriptions of a queue on one connection",
        in_words([frame.headers.get("subscription") for frame in messages]),
    )


def in_words(subscriptions: list[str | None]) -> str:
    """How messages were shared, by the subscriptions that they were for."""
    if None in subscriptions:
        return "MESSAGE does not tell"
    if len(set(subscriptions)) == 1:
        return "one gets all"
    takes_turns = all(one != two for one, two in pairwise(subscriptions))
    return "take turns" if takes_turns else "by no rule"


@trial(
    "behaviour/destination/kinds-apart",
    "A queue and a topic are two destinations, even with one name.",
    level="SHOULD",
    section=SECTION,
)
def test_kinds_are_apart(target: Target, peer: Peer) -> None:
    """Give a queue and a topic the same name and send to both; each subscription gets its own."""
    name = new_name()
    names = [target.address.queue_template.format(name), target.topic(name)]
    for kind, destination in zip(("queue", "topic"), names, strict=True):
        reader = target.connect()
        target.subscribe(reader, destination)
        for other in names:
            peer.call("SEND", {"destination": other}, other.encode())
        peer.call("SEND", {"destination": destination}, b"last")
        bodies = bodies_until(reader, b"last")
        reader.close()
        others = [body for body in bodies if body != destination.encode()]
        assert not others, f"the {kind} has messages of the other kind: {others}"


@trial(
    "behaviour/destination/letter-case",
    "A server is free to tell upper and lower case apart in the names of destinations.",
    level="MAY",
    section=SECTION,
)
def test_letter_case(target: Target, peer: Peer) -> None:
    """Send to the name of a topic in capitals; record whether its subscriber gets that."""
    name = new_name()
    target.subscribe(peer, target.topic(name))
    sender = target.connect()
    sender.call("SEND", {"destination": target.topic(name.upper())}, b"capital")
    sender.send("SEND", {"destination": target.topic(name)}, b"small")
    are_one = b"capital" in bodies_until(peer, b"small")
    target.profile("topics with one name in small and large letters", "one" if are_one else "two")


@trial(
    "behaviour/destination/wildcards",
    "A server may take signs in the name of a topic for any levels of names.",
    level="MAY",
    section=SECTION,
)
def test_wildcards(target: Target) -> None:
    """Subscribe to NAME.*, NAME.> and NAME.#; record which names with one and two levels match."""
    for sign in "*>#":
        name, mark = new_name(), target.topic()
        pattern, one, two = (target.topic(f"{name}.{rest}") for rest in (sign, "a", "a.b"))
        reader = target.connect()
        try:
            target.subscribe(reader, pattern)
            target.subscribe(reader, mark, id="mark")
        except FailedError as error:
            target.note(f"NAME.{sign}: {error}")
            target.profile(f"a subscription of the topic NAME.{sign}", "is refused")
            continue
        for destination, body in ((one, b"NAME.a"), (two, b"NAME.a.b"), (mark, b"end")):
            target.connect().call("SEND", {"destination": destination}, body)
        bodies = bodies_until(reader, b"end")
        # Topics need not keep to an order among them.
        bodies += [frame.body for frame in reader.collect(target.quiet_s / 2)]
        matched = " and ".join(sorted(body.decode() for body in bodies))
        target.profile(f"a subscription of the topic NAME.{sign}", f"gets {matched or 'neither'}")


@trial(
    "behaviour/destination/composite",
    "A server may take names with a comma in between for several destinations.",
    level="MAY",
    section=SECTION,
)
def test_composite(target: Target, peer: Peer) -> None:
    """Send one message to QUEUE,QUEUE; record which of the two get it."""
    one, two = target.queue(), target.queue()
    try:
        peer.call("SEND", {"destination": f"{one},{two}"}, b"x")
        number = sum(bool(target.leftovers(queue)) for queue in (one, two))
        does = ("goes to neither", "goes to one", "goes to both")[number]
    except FailedError as error:
        target.note(str(error))
        does = "is refused"
    target.profile("a message to QUEUE,QUEUE", does)


@trial(
    "behaviour/destination/browsing",
    "A server may show the messages of a queue without taking them out of it.",
    level="MAY",
    section=SECTION,
)
def test_browsing(target: Target, peer: Peer) -> None:
    """SUBSCRIBE with browser:true; record what comes, and what a new subscriber gets then."""
    queue = target.queue()
    for body in (b"1", b"2"):
        peer.call("SEND", {"destination": queue}, body)
    try:
        target.subscribe(peer, queue, headers=BROWSING)
    except FailedError as error:
        target.note(str(error))
        target.profile("browser:true", "is refused")
        return
    frames = peer.collect(target.quiet_s)
    shown = [frame.body for frame in frames if "browser" not in frame.headers]
    ends = [frame for frame in frames if frame.headers.get("browser") == "end"]
    target.note(f"shown: {shown}; {'then' if ends else 'no'} MESSAGE with browser:end")
    peer.close()
    left = target.leftovers(queue)
    target.profile("browser:true", "leaves the messages" if left else "takes the messages")


@trial(
    "behaviour/destination/priority",
    "A server may deliver messages of a higher priority first.",
    level="MAY",
    section=SECTION,
)
def test_priority(target: Target, peer: Peer) -> None:
    """Send with a low and then with a high priority; record which of the two comes first."""
    queue = target.queue()
    for headers, body in ((LOW, b"low"), (TOP, b"high")):
        peer.call("SEND", {"destination": queue, **PRIORITIES, **headers}, body)
    target.subscribe(peer, queue, headers=PRIORITIES)
    first, _ = (frame.body for frame in peer.expect_messages(2))
    target.profile("priority", "comes first" if first == b"high" else "changes nothing")


@trial(
    "behaviour/destination/delay",
    "A server may keep a message back for a time that its sender names.",
    level="MAY",
    section=SECTION,
)
def test_delay(target: Target, peer: Peer) -> None:
    """Send a message with a delay of 0.7 seconds, and one without; record which comes first."""
    queue = target.queue()
    target.subscribe(peer, queue)
    peer.call("SEND", {"destination": queue, **delayed(DELAY_MS)}, b"delayed")
    peer.call("SEND", {"destination": queue}, b"at once")
    if peer.expect("MESSAGE").body == b"delayed":
        target.profile("delay", "changes nothing")
        return
    target.profile("delay", "is kept")
    # Schedulers work by the second.
    came = peer.gather_messages(1) or peer.gather_messages(1)
    assert came, "the delayed message did not come"
