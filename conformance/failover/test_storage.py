"""What the nodes keep in common, and whether it is whole at another one when a node has ended.

All of it is UNSUPPORTED where the nodes keep their messages each for itself.
"""

import pytest

from stompkit.conformance import FailedError, Peer, Target, UnsupportedError, trial
from stompkit.conformance.cluster import Cluster, await_messages, cluster_of
from stompkit.conformance.crossing import Halves, across
from stompkit.conformance.extensions import (
    PERSISTENT,
    durable_client,
    durable_subscription,
    new_name,
)
from stompkit.conformance.requirements import statements
from stompkit.conformance.scenarios import (
    numbered,
    require_ack_header,
    send_all,
    unsubscribe,
)

SECTION = "Several nodes with a store in common"

cluster = pytest.fixture(cluster_of)


def take(target: Target, peer: Peer) -> bytes:
    """Acknowledge the next message, with receipt; gives its body."""
    message = peer.expect("MESSAGE")
    require_ack_header(message, target)
    peer.acknowledge(message)
    return message.body


def assert_once(target: Target, came: list[bytes]) -> None:
    """Record a lapse where messages have come more than once."""
    twice = sorted({body for body in came if came.count(body) > 1})
    target.should(not twice, f"these came more than once: {twice}")


@trial(
    "failover/storage/shared",
    "What one node has taken is delivered by another, when the first one has ended.",
    level="MAY",
    section=SECTION,
)
@across
def test_shared(target: Target, cluster: Cluster) -> Halves:
    """Send a persistent message with receipt, fail over, and subscribe; see whether it comes."""
    is_shared = cluster.has_one_store()
    if is_shared:
        queue = target.queue()
        send_all(target.connect(), queue, numbered(1), PERSISTENT)
        yield
        is_shared = target.leftovers(queue, 1) == numbered(1)
    else:
        target.note(cluster.reason)
    target.profile("messages after fail-over", "kept" if is_shared else "left at the other node")


@trial(
    "failover/storage/receipted",
    "Persistent messages that a node has given receipts for are not lost when it ends.",
    level="SHOULD",
    section=SECTION,
)
@across
def test_receipted_messages_are_kept(target: Target, cluster: Cluster) -> Halves:
    """Send ten persistent messages, each with receipt, and fail over; all are there, once each."""
    cluster.require_one_store()
    queue, peer = target.queue(), target.connect()
    for body in numbered(10):
        peer.call("SEND", {"destination": queue, **PERSISTENT}, body)
    yield
    came = target.leftovers(queue, 10)
    lost = [body for body in numbered(10) if body not in came]
    assert not lost, f"of 10 messages with receipts these are lost: {lost}"
    assert_once(target, came)


@trial(
    "failover/storage/order",
    "Messages of one producer keep their order when a node ends.",
    level="SHOULD",
    section=SECTION,
)
@across
def test_order_is_kept(target: Target, cluster: Cluster) -> Halves:
    """Send from two clients in turn, fail over, and subscribe; those of each come in order."""
    cluster.require_one_store()
    queue = target.queue()
    producers = {b"a": target.connect(), b"b": target.connect()}
    for number in numbered(6):
        for name, peer in producers.items():
            send_all(peer, queue, [name + number], PERSISTENT)
    yield
    came = target.leftovers(queue, 12)
    for name in producers:
        own = [body for body in came if body.startswith(name)]
        assert own == sorted(own), f"the messages of one producer come as {own}"


@trial(
    "failover/storage/unacknowledged",
    "Messages that were delivered and not acknowledged are delivered again at another node.",
    level="SHOULD",
    section=SECTION,
)
@across
def test_unacknowledged_messages_come_again(target: Target, cluster: Cluster) -> Halves:
    """Get three messages, acknowledge none, and fail over; a new subscriber gets all three."""
    cluster.require_one_store()
    queue, peer = target.queue(), target.connect()
    send_all(peer, queue, numbered(3), PERSISTENT)
    target.subscribe(peer, queue, ack="client")
    peer.expect("MESSAGE")
    peer.gather_messages(2)  # if there is no window of one
    yield
    came = target.leftovers(queue, 3)
    lost = [body for body in numbered(3) if body not in came]
    assert not lost, f"delivered and not acknowledged, these do not come again: {lost}"
    assert_once(target, came)


@trial(
    "failover/storage/acknowledged",
    "Messages whose ACK has its receipt are not delivered again at another node.",
    level="SHOULD",
    section=SECTION,
)
@across
def test_acknowledged_messages_stay_away(target: Target, cluster: Cluster) -> Halves:
    """Get messages, acknowledge two with receipts, and fail over; those two do not come again."""
    cluster.require_one_store()
    queue, peer = target.queue(), target.connect()
    send_all(peer, queue, numbered(3), PERSISTENT)
    target.subscribe(peer, queue, ack="client")
    acknowledged = [take(target, peer), take(target, peer)]
    yield
    again = [body for body in target.leftovers(queue, 1) if body in acknowledged]
    assert not again, f"acknowledged with receipts, these come again: {again}"


@trial(
    "failover/storage/transaction-open",
    "A transaction that was open when its node ended is aborted; it is never half applied.",
    level="FACT",
    section="Transactions",
    rests_on=statements("begin/atomic"),
)
@across
def test_open_transaction_is_aborted(target: Target, cluster: Cluster) -> Halves:
    """Send three messages in a transaction, do not commit it, and fail over; none of them comes."""
    cluster.require_one_store()
    queue, peer = target.queue(), target.connect()
    peer.call("BEGIN", {"transaction": "t"})
    send_all(peer, queue, numbered(3), {"transaction": "t", **PERSISTENT})
    yield
    came = target.leftovers(queue)
    assert len(set(came)) in (0, 3), f"of a transaction with 3 messages only {came} are applied"
    target.should(not came, "a transaction that nobody has committed is applied")


@trial(
    "failover/storage/transaction-committed",
    "A transaction whose COMMIT has its receipt is applied, all of it.",
    level="SHOULD",
    section="Transactions",
)
@across
def test_committed_transaction_is_whole(target: Target, cluster: Cluster) -> Halves:
    """Send three messages in a transaction, commit it with receipt, and fail over; all come."""
    cluster.require_one_store()
    queue, peer = target.queue(), target.connect()
    peer.call("BEGIN", {"transaction": "t"})
    send_all(peer, queue, numbered(3), {"transaction": "t", **PERSISTENT})
    peer.call("COMMIT", {"transaction": "t"})
    yield
    came = target.leftovers(queue, 3)
    lost = [body for body in numbered(3) if body not in came]
    assert not lost, f"of a transaction with 3 messages, committed with receipt, {lost} are lost"
    assert_once(target, came)


@trial(
    "failover/storage/durable-subscription",
    "A durable subscription and the messages that it keeps are there when its node has ended.",
    level="SHOULD",
    section=SECTION,
)
@across
def test_durable_subscription_survives(target: Target, cluster: Cluster) -> Halves:
    """Have a durable subscription keep a message, and fail over; it comes, and so does another."""
    cluster.require_one_store()
    topic, name = target.topic(), new_name()

    def come_back() -> Peer:
        peer = target.connect(durable_client(name))
        target.subscribe(peer, topic, id=name, headers=durable_subscription(name))
        return peer

    def send(body: bytes) -> None:
        send_all(target.connect(), topic, [body], PERSISTENT)

    try:
        come_back().call("DISCONNECT")
        send(b"is it durable?")
        peer = come_back()
    except FailedError as error:
        raise UnsupportedError(f"the target has no durable subscriptions: {error}") from None
    if not peer.gather_messages(1):
        raise UnsupportedError(
            "the target has no durable subscriptions by any headers that are known"
        )
    peer.call("DISCONNECT")
    send(b"before")
    yield
    send(b"after")
    peer = come_back()
    kept = (b"before", b"after")
    came = await_messages(peer, kept)
    unsubscribe(peer, topic, name)
    lost = [body for body in kept if body not in came]
    assert not lost, f"of messages to a durable subscription these are lost: {lost}"


@trial(
    "failover/storage/old-node",
    "What was acknowledged at another node is not delivered by the old one when it is back.",
    level="SHOULD",
    section=SECTION,
)
@across
def test_old_node_has_learnt(target: Target, cluster: Cluster) -> Halves:
    """Send two messages, fail over, acknowledge one there, and fail back; it does not come."""
    cluster.require_one_store()
    queue = target.queue()
    send_all(target.connect(), queue, numbered(2), PERSISTENT)
    yield
    peer = target.connect()
    target.subscribe(peer, queue, ack="client")
    acknowledged = take(target, peer)
    cluster.fail_over()
    again = target.leftovers(queue, 1)
    assert acknowledged not in again, f"{acknowledged!r} was acknowledged and comes again"
