"""Durable subscriptions: topics that collect for a client while it is away.

They are asked for in all spellings at once; a target without them is UNSUPPORTED.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from stompkit._common.spelling import amount
from stompkit.conformance import FailedError, Peer, Target, UnsupportedError, trial
from stompkit.conformance.extensions import (
    PERSISTENT,
    durable_client,
    durable_subscription,
    new_name,
)

SECTION = "not in STOMP: durable subscriptions, as in JMS 1.1, 6.11.1"
END = b"end"


class Durable:
    """A subscription that may turn out to be durable, and its client."""

    def __init__(self, target: Target, topic: str, name: str, client: str) -> None:
        """Take the names; nothing is done yet."""
        self.target = target
        self.topic = topic
        self.name = name
        self.client = client
        self.headers = durable_subscription(name)

    def attach(self, ack: str = "auto") -> Peer:
        """Connect and subscribe."""
        peer = self.target.connect(durable_client(self.client))
        self.target.subscribe(peer, self.topic, ack=ack, headers=self.headers)
        return peer

    def leave_with(self, *bodies: bytes) -> None:
        """Attach once, leave, and send messages while nobody is there."""
        try:
            leave(self.attach())
        except FailedError as error:
            raise UnsupportedError(f"the target refuses a durable subscription: {error}") from None
        send(self.target, self.topic, *bodies)

    def come_back(self, ack: str = "auto") -> tuple[Peer, list[bytes]]:
        """Attach again, and take what has been collected: all up to a message that is sent now."""
        peer = self.attach(ack)
        return peer, self.take(peer)

    def collected(self) -> list[bytes]:
        """What has been collected; nobody is there before and after."""
        peer, bodies = self.come_back()
        leave(peer)
        return bodies

    def take(self, peer: Peer) -> list[bytes]:
        """What comes, up to a message that is sent now."""
        send(self.target, self.topic, END)
        bodies = []
        while (body := peer.expect("MESSAGE").body) != END:
            bodies.append(body)
        return bodies

    def end(self) -> None:
        """Have the target forget the subscription, by one of the two ways that there are."""
        peer = self.target.connect(durable_client(self.client))
        try:
            self.target.subscribe(peer, self.topic, headers=self.headers)
            self._unsubscribe(peer)
        except FailedError:
            # Some want nobody to be subscribed.
            leave(peer)
            self._unsubscribe(self.target.connect(durable_client(self.client)))

    def _unsubscribe(self, peer: Peer) -> None:
        peer.call("UNSUBSCRIBE", {"destination": self.topic, **self.headers})
        leave(peer)


def leave(peer: Peer) -> None:
    """DISCONNECT in an orderly way, so that the same client can come back at once."""
    with suppress(FailedError):
        peer.call("DISCONNECT")
    peer.close()


def send(target: Target, topic: str, *bodies: bytes) -> None:
    """Send messages that the target has dealt with when this returns."""
    peer = target.connect()
    for body in bodies:
        peer.call("SEND", {"destination": topic, **PERSISTENT}, body)
    peer.close()


@contextmanager
def durable(target: Target, topic: str | None = None) -> Iterator[Durable]:
    """A durable subscription, which is gone afterwards."""
    made = Durable(target, topic or target.topic(), new_name(), new_name())
    try:
        yield made
    finally:
        with suppress(FailedError):
            made.end()


def need_collected(bodies: list[bytes]) -> None:
    """Raise UnsupportedError where nothing was."""
    if not bodies:
        raise UnsupportedError("the target keeps nothing for a subscriber that is away")


@trial(
    "behaviour/durable/collects",
    "A server may keep messages of a topic for a subscriber that is away.",
    level="MAY",
    section=SECTION,
)
def test_durable_subscriptions(target: Target) -> None:
    """Ask for a durable subscription, leave and come back; record whether it has collected."""
    with durable(target) as subscription:
        try:
            subscription.leave_with(b"1")
        except UnsupportedError as reason:
            target.note(str(reason))
            target.profile("durable subscription", "refused")
            return
        does = "collects" if subscription.collected() else "like any other"
        target.profile("durable subscription", does)


@trial(
    "behaviour/durable/in-order",
    "A durable subscription gets all that came while it was away, in order, and then what is new.",
    level="SHOULD",
    section=SECTION,
)
def test_collected_messages_come_in_order(target: Target) -> None:
    """Send five messages to a subscriber that is away, and two when it is back; all come."""
    with durable(target) as subscription:
        subscription.leave_with(b"1", b"2", b"3", b"4", b"5")
        peer, bodies = subscription.come_back()
        need_collected(bodies)
        send(target, subscription.topic, b"6", b"7")
        bodies += subscription.take(peer)
        leave(peer)
        assert bodies == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"], f"there came {bodies}"


@trial(
    "behaviour/durable/acknowledged",
    "Of a durable subscription, what was acknowledged does not come again, and all else does.",
    level="SHOULD",
    section=SECTION,
)
def test_acknowledgements_are_remembered(target: Target) -> None:
    """Receive three messages, ACK the second, leave and come back; the others come again."""
    with durable(target) as subscription:
        subscription.leave_with(b"1", b"2", b"3")
        peer = subscription.attach("client-individual")
        send(target, subscription.topic, END)
        messages = [peer.expect("MESSAGE")]
        need_collected([each.body for each in messages if each.body != END])
        messages += peer.gather_messages(2)
        if len(messages) < 3:
            only = amount(len(messages), "message")
            raise UnsupportedError(f"the target delivers only {only} unacknowledged")
        peer.acknowledge(messages[1])
        leave(peer)
        bodies = subscription.collected()
        assert sorted(bodies) == [b"1", b"3"], f"there came {bodies}"


@trial(
    "behaviour/durable/unsubscribe",
    "UNSUBSCRIBE with the headers that made a durable subscription ends it for good.",
    level="SHOULD",
    section=SECTION,
)
def test_unsubscribe_ends_it(target: Target) -> None:
    """UNSUBSCRIBE, send, and subscribe by the same name; what was sent meanwhile does not come."""
    with durable(target) as subscription:
        subscription.leave_with(b"before")
        need_collected(subscription.collected())
        subscription.end()
        send(target, subscription.topic, b"after")
        bodies = subscription.collected()
        assert not bodies, f"it went on collecting: {bodies}"


@trial(
    "behaviour/durable/independent",
    "Each durable subscription has a copy of every message of its topic.",
    level="SHOULD",
    section=SECTION,
)
def test_subscriptions_are_independent(target: Target) -> None:
    """Two clients have one each, and are away; both get what was sent, one after the other."""
    topic = target.topic()
    with durable(target, topic) as one, durable(target, topic) as two:
        one.leave_with()
        two.leave_with(b"1", b"2")
        found = [one.collected(), two.collected()]
        need_collected(found[0] + found[1])
        assert found == [[b"1", b"2"]] * 2, f"one got {found[0]}, the other {found[1]}"


@trial(
    "behaviour/durable/second-subscriber",
    "A server is free in what it does with a second subscriber of a durable subscription.",
    level="MAY",
    section=SECTION,
)
def test_second_subscriber(target: Target) -> None:
    """Attach a second time while the first is there, as the same client; record what happens."""
    with durable(target) as subscription:
        subscription.leave_with(b"1")
        first, bodies = subscription.come_back()
        need_collected(bodies)
        about = "second subscriber of a durable subscription"
        target.profile(about, second_subscriber(target, subscription, first))
        leave(first)


def second_subscriber(target: Target, subscription: Durable, first: Peer) -> str:
    """What becomes of one more, in words."""
    try:
        second = target.connect(durable_client(subscription.client))
    except FailedError:
        return "its CONNECT is refused"
    try:
        headers = {"destination": subscription.topic, **subscription.headers}
        second.call("SUBSCRIBE", headers)
    except FailedError:
        return "its SUBSCRIBE is refused"
    send(target, subscription.topic, b"2", b"3", b"4", b"5")
    got = [
        [frame.body for frame in peer.collect(target.quiet_s) if frame.command == "MESSAGE"]
        for peer in (first, second)
    ]
    leave(second)
    target.note(f"the first got {got[0]}, the second {got[1]}")
    if first.is_closed_by_target:
        return "it takes the place of the first"
    if all(len(each) == 4 for each in got):
        return "each gets all"
    return "they share the messages" if all(got) else "one gets all"


@trial(
    "behaviour/durable/same-name",
    "A server is free to make the name of a durable subscription one of its client or of all.",
    level="MAY",
    section=SECTION,
)
def test_same_name_of_another_client(target: Target) -> None:
    """Use one name as another client, while the first is away; record whose messages those are."""
    with durable(target) as subscription:
        subscription.leave_with(b"1")
        other = Durable(target, subscription.topic, subscription.name, new_name())
        is_same = bool(other.collected())
        if not is_same:
            other.end()
            need_collected(subscription.collected())
        does = "is the same subscription" if is_same else "is another subscription"
        target.profile("the same durable name of another client", does)


@trial(
    "behaviour/durable/restart",
    "Durable subscriptions and what they have collected survive a restart of the server.",
    level="SHOULD",
    section=SECTION,
    alone=True,
)
def test_durable_subscriptions_survive(target: Target) -> None:
    """Send to a subscriber that is away and restart the target; all comes, before and after."""
    with durable(target) as subscription:
        subscription.leave_with(b"0")
        need_collected(subscription.collected())
        send(target, subscription.topic, b"1", b"2")
        target.restart()
        send(target, subscription.topic, b"3")
        bodies = subscription.collected()
        assert bodies == [b"1", b"2", b"3"], f"after the restart there came {bodies}"
