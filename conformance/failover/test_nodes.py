"""One node ends or hangs, and a client goes on with another.

What is asked here takes no store in common: two brokers that know nothing of each other will do.
"""

import time

import pytest

from stompkit.conformance import FailedError, Outcome, Target, UnsupportedError, trial
from stompkit.conformance.cluster import Cluster, await_messages, cluster_of
from stompkit.conformance.crossing import Halves, across
from stompkit.conformance.extensions import PERSISTENT
from stompkit.frames import parse_heart_beat

SECTION = "Several nodes"
#: The longest interval between heart-beats that there is time to watch, in milliseconds.
LONGEST_MS = 2_000

cluster = pytest.fixture(cluster_of)


def chosen_versions(target: Target, node: int = 0) -> dict[str, str]:
    """What a node answers CONNECT with, by what it is offered."""
    chosen = {}
    for offered in (*target.versions, ",".join(target.versions)):
        peer = target.open(node=node)
        peer.send("CONNECT", target.connect_headers(offered))
        chosen[offered] = peer.expect("CONNECTED").headers.get("version", "none")
        peer.close()
    return chosen


@trial(
    "failover/nodes/same-versions",
    "All nodes speak the same versions of STOMP, since a client can't tell where it will be next.",
    level="SHOULD",
    section=SECTION,
)
@across
def test_same_versions(target: Target, cluster: Cluster) -> Halves:
    """Offer each version, and all at once, to each node; what they choose is the same."""
    answers = {
        cluster.name(node): chosen_versions(target, node)
        for node in range(target.address.nodes)
        if cluster.serves(node)
    }
    yield
    answers[cluster.name()] = chosen_versions(target)
    (first, expected), *others = answers.items()
    for name, chosen in others:
        for offered, version in chosen.items():
            assert version == expected[offered], (
                f"offered {offered}, {first} chooses {expected[offered]} and {name} {version}"
            )


@trial(
    "failover/nodes/refused",
    "A node that serves nobody for now says so at once, so that a client tries the next.",
    level="SHOULD",
    section=SECTION,
)
def test_no_node_keeps_clients_waiting(target: Target, cluster: Cluster) -> None:
    """Connect to each of the nodes in turn; each answers CONNECT or turns the client away."""
    served = 0
    for node in range(target.address.nodes):
        name, began = cluster.name(node), time.monotonic()
        try:
            peer = target.open(node=node)
        except FailedError:
            waited = time.monotonic() - began
            assert waited < target.timeout_s, f"{name} does not even refuse a connection"
            target.note(f"{name} refuses connections")
            continue
        peer.send("CONNECT", target.connect_headers())
        outcome = peer.outcome(None, target.quiet_s)
        target.note(f"CONNECT to {name} is {outcome}")
        assert outcome is not Outcome.NOTHING, f"CONNECT to {name} is {outcome}"
        served += outcome is Outcome.ACCEPTED
    assert served, "no node answers CONNECT"


@trial(
    "failover/nodes/served",
    "When the node that served a client has ended, another one serves it.",
    level="SHOULD",
    section=SECTION,
)
@across
def test_another_node_serves(target: Target, cluster: Cluster) -> Halves:
    """End the node of a client; another answers CONNECT, and a SEND with receipt, before long."""
    target.connect().call("SEND", {"destination": target.queue()}, b"to the first node")
    seconds = yield
    target.note(f"another node answered CONNECT {seconds:.1f} s after the suite left the first")
    target.connect().call("SEND", {"destination": target.queue()}, b"to the second node")


@trial(
    "failover/nodes/subscription-resumed",
    "A client that makes its subscriptions again at another node gets the messages sent there.",
    level="SHOULD",
    section=SECTION,
)
@across
def test_subscription_resumed(target: Target, cluster: Cluster) -> Halves:
    """Subscribe to a queue and a topic, fail over, and do it again; new messages come to both."""
    destinations = {"queue": target.queue()}
    if target.has_topics:
        destinations["topic"] = target.topic()

    def exchange(when: str) -> None:
        peer = target.connect()
        for kind, destination in destinations.items():
            target.subscribe(peer, destination, id=kind)
        sent = {destinations[kind]: f"{kind}, {when}".encode() for kind in destinations}
        sender = target.connect()
        for destination, body in sent.items():
            sender.call("SEND", {"destination": destination}, body)
        came = await_messages(peer, sent.values())
        lost = [body for body in sent.values() if body not in came]
        assert not lost, f"sent to subscriptions {when} the fail-over, these did not come: {lost}"

    exchange("before")
    yield
    exchange("after")


@trial(
    "failover/nodes/hanging",
    "Heart-beats tell a client of a node that hangs but does not close: none come from it.",
    level="SHOULD",
    section=SECTION,
)
def test_hanging_node(target: Target, cluster: Cluster) -> None:
    """Pause a node; its heart-beats stop. Resume it; it serves again and has lost nothing."""
    if target.version == "1.0":
        raise UnsupportedError("the target speaks STOMP 1.0 only, which has no heart-beats")
    peer = target.connect({"heart-beat": "0,500"})
    can_ms, _ = parse_heart_beat(peer.frames[0].headers.get("heart-beat"))
    if not 0 < can_ms <= LONGEST_MS:
        raise UnsupportedError(f"the target's heart-beats, {can_ms} ms apart, can't be watched")
    interval_s = max(can_ms, 500) / 1000
    queue = target.queue()
    peer.call("SEND", {"destination": queue, **PERSISTENT}, b"before the pause")
    peer.expect_beat(3 * interval_s)
    with cluster.paused():
        peer.collect(target.quiet_s)  # what was on its way
        seen = peer.eols
        peer.collect(1.5 * interval_s)
        assert peer.eols == seen, "heart-beats come from a node that stands still"
        is_closed = peer.is_closed_by_target
    target.note(f"the session was {'closed' if is_closed else 'open'} while the node stood still")
    assert target.leftovers(queue, 1) == [b"before the pause"], "the message from before is lost"
