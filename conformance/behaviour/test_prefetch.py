"""How many messages are delivered before an ACK is waited for: the window of a subscription."""

from stompkit._common.spelling import amount
from stompkit.conformance import Peer, Target, UnsupportedError, trial
from stompkit.conformance.requirements import statements
from stompkit.conformance.scenarios import (
    bodies,
    fill,
    numbered,
    require_ack_header,
    window_headers,
)
from stompkit.frames import Frame

SECTION = "SUBSCRIBE / SUBSCRIBE ack Header"
#: How many unacknowledged messages are tried at the most.
MOST = 200


def held_back(target: Target, peer: Peer, queue: str, window: int) -> list[Frame]:
    """Subscribe in the mode client with a window, and receive as many messages as that allows.

    Raises UnsupportedError where that many do not come: the target may know no such header.
    """
    target.subscribe(peer, queue, ack="client", headers=window_headers(window))
    messages = [peer.expect("MESSAGE")]
    require_ack_header(messages[0], target)
    messages += peer.gather_messages(window, target.quiet_s)
    if len(messages) != window:
        raise UnsupportedError(
            f"with a window of {window}, the target delivers {amount(len(messages), 'message')}"
        )
    return messages


@trial(
    "behaviour/prefetch/window",
    "How many messages are delivered before an ACK is left open.",
    level="MAY",
    section=SECTION,
)
def test_how_many_come_unacknowledged(target: Target, peer: Peer) -> None:
    """Subscribe to a queue of 200 in the mode client; record how many come without an ACK."""
    target.subscribe(peer, fill(target, MOST), ack="client")
    number = len(peer.gather_messages(MOST, target.quiet_s))
    target.profile("delivered without ACK", f"{MOST} or more" if number == MOST else str(number))


@trial(
    "behaviour/prefetch/activemq-header",
    "ActiveMQ's header activemq.prefetchSize is not in the specification.",
    level="MAY",
    section=SECTION,
)
def test_header_of_activemq(target: Target, peer: Peer) -> None:
    """Subscribe with activemq.prefetchSize:2; record whether two messages of five come."""
    record_header(target, peer, "activemq.prefetchSize")


@trial(
    "behaviour/prefetch/rabbitmq-header",
    "RabbitMQ's header prefetch-count is not in the specification.",
    level="MAY",
    section=SECTION,
)
def test_header_of_rabbitmq(target: Target, peer: Peer) -> None:
    """Subscribe with prefetch-count:2; record whether two messages of five come."""
    record_header(target, peer, "prefetch-count")


def record_header(target: Target, peer: Peer, name: str) -> None:
    """Ask for two messages at a time, and record whether that is what comes."""
    target.subscribe(peer, fill(target, 5), ack="client", headers={name: "2"})
    number = len(peer.gather_messages(5, target.quiet_s))
    target.profile(f"{name} of SUBSCRIBE", "honoured" if number == 2 else "ignored")


@trial(
    "behaviour/prefetch/scope",
    "Whether a window is one subscription's or the connection's is left open.",
    level="MAY",
    section=SECTION,
)
def test_scope_of_a_window(target: Target, peer: Peer) -> None:
    """Subscribe twice with a window of one; record whether a message comes to each."""
    queues = [fill(target, 2), fill(target, 2)]
    held_back(target, peer, queues[0], 1)
    target.subscribe(peer, queues[1], ack="client", id="s2", headers=window_headers(1))
    is_own = peer.gather_messages(1, target.quiet_s)
    target.profile("a prefetch window is", "a subscription's" if is_own else "the connection's")


@trial(
    "behaviour/prefetch/next-after-ack",
    "When the window is full, an ACK lets the next message come.",
    level="FACT",
    section=SECTION,
    versions=("1.1", "1.2"),
    rests_on=statements("subscribe/delivered-as-message"),
)
def test_ack_lets_the_next_come(target: Target, peer: Peer) -> None:
    """Take five messages with a window of one, and ACK each; the next comes every time."""
    (message,) = held_back(target, peer, fill(target, 5), 1)
    arrived = [message.body]
    for _ in range(4):
        peer.acknowledge(message)
        message = peer.expect("MESSAGE")
        arrived.append(message.body)
    assert sorted(arrived) == numbered(5), f"arrived: {arrived}"


@trial(
    "behaviour/prefetch/cumulative-refill",
    "A cumulative ACK makes room for as many messages as it settles.",
    level="SHOULD",
    section=SECTION,
)
def test_cumulative_ack_empties_the_window(target: Target, peer: Peer) -> None:
    """Fill a window of three in the mode client and ACK the third; three more come."""
    messages = held_back(target, peer, fill(target, 7), 3)
    peer.acknowledge(messages[-1])
    more = bodies(peer.gather_messages(3))
    assert len(more) == 3, f"after an ACK for three, {len(more)} came"


@trial(
    "behaviour/prefetch/others-go-on",
    "What the window of one consumer has no room for goes to another.",
    level="SHOULD",
    section=SECTION,
)
def test_a_full_window_stops_nobody_else(target: Target, peer: Peer) -> None:
    """Leave one message of five unacknowledged, in a window of one; another consumer gets four."""
    queue = fill(target, 5)
    held_back(target, peer, queue, 1)
    other = target.connect()
    target.subscribe(other, queue, ack="client", headers=window_headers(1))
    arrived: list[bytes] = []
    for _ in range(4):
        messages = other.gather_messages(1)
        assert messages, f"only {len(arrived)} of four came to the other consumer"
        other.acknowledge(messages[0])
        arrived += bodies(messages)
    assert len(set(arrived)) == 4, f"arrived: {arrived}"
