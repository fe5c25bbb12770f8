"""Scripts about messages: their acknowledgement and their headers."""

from __future__ import annotations

from stompkit.frames import Frame
from tests.integration.quirks.peer import Peer, Site, shown
from tests.integration.quirks.scripts import script

DEAD_LETTERS = "/queue/ActiveMQ.DLQ"
NO_PREFETCH = {"activemq.prefetchSize": "0"}


def mode(site: Site) -> str:
    """Return the ack mode in which messages are acknowledged individually."""
    return "client" if site.name == "coilmq" else "client-individual"


def named(message: Frame) -> dict[str, str]:
    """Return the headers by which ACK identifies a message on 1.1, in wire format."""
    escaped = message.headers["message-id"].replace("\\", "\\\\").replace(":", "\\c")
    return {"message_id": escaped, "subscription": message.headers["subscription"]}


def left(site: Site, destination: str, number: int) -> list[bytes]:
    """Return the bodies that the next consumer of a queue receives."""
    with site.peer() as peer:
        peer.subscribe(destination=destination, id="left")
        return [*peer.messages(number), *(frame.body for frame in peer.rest())]


def dead(site: Site, body: bytes) -> list[bytes]:
    """Return our bodies among ActiveMQ's dead letters."""
    with site.peer() as peer:
        frames = peer.call("SUBSCRIBE", destination=DEAD_LETTERS, id="dead")
        return [frame.body for frame in [*frames, *peer.rest()] if frame.body == body]


def filled(site: Site, *bodies: bytes, **headers: str) -> str:
    """Return a queue with messages."""
    queue = site.queue()
    with site.peer() as peer:
        for body in bodies:
            peer.call("SEND", body, destination=queue, **headers)
    return queue


def one(site: Site, peer: Peer, body: bytes, **headers: str) -> tuple[str, Frame]:
    """Return a queue with one message, which a peer has received and not acknowledged."""
    queue = filled(site, body, **headers)
    peer.subscribe(destination=queue, id="s", ack=mode(site))
    return queue, peer.message()


def nacked(site: Site, *, requeue: dict[str, str] | None = None, **headers: str) -> object:
    """Return the answer to NACK, the redelivery and the number of dead letters."""
    body = site.queue().encode()
    with site.peer() as peer:
        _, message = one(site, peer, body, **headers)
        answer = [shown(frame) for frame in peer.call("NACK", **named(message), **requeue or {})]
        again = [frame.headers.get("redelivered") for frame in peer.rest() if frame.body == body]
    return answer, again, len(dead(site, body))


@script("nack-dead-letters", "nack-requeues", "nack-refused", "nack-is-ack")
def nack_of_a_persistent_message(site: Site) -> object:
    return nacked(site, persistent="true")


@script("nack-dead-letters", "nack-requeues", "nack-refused", "nack-is-ack")
def nack_of_another_message(site: Site) -> object:
    return nacked(site)


@script("nack-requeues", brokers="activemq rabbitmq")
def nack_without_requeue(site: Site) -> object:
    return nacked(site, persistent="true", requeue={"requeue": "false"})


@script("nack-requeues", brokers="rabbitmq")
def nack_again_and_again(site: Site) -> object:
    flags = []
    with site.peer() as peer:
        _, message = one(site, peer, b"unwanted")
        for _ in range(12):
            peer.send("NACK", **named(message))
            message = peer.message()
            flags.append(message.headers["redelivered"])
    return flags


@script("nack-names-one", "nack-is-ack", brokers="activemq artemis rabbitmq")
def nack_of_several(site: Site) -> object:
    queue = filled(site, b"1", b"2", b"3", b"4", persistent="true")
    with site.peer() as peer:
        peer.subscribe(destination=queue, id="s", ack="client")
        third = [peer.message() for _ in range(4)][2]
        peer.call("NACK", **named(third))
        again = [frame.body for frame in peer.rest()]
    # Artemis takes it for the ACK of the first three.
    return again, left(site, queue, 1 if site.name == "artemis" else 3)


@script("nack-on-1.0", "nack-on-1.0-closes")
def nack_on_1_0(site: Site) -> object:
    with site.peer("1.0") as peer:
        _, message = one(site, peer, b"x", persistent="true")
        own = named(message)["message_id"] if site.name == "rabbitmq" else "x"
        return [frame.command for frame in peer.call("NACK", message_id=own)], peer.fate()[1]


@script("ack-across-subscriptions", brokers="activemq rabbitmq")
def ack_of_another_subscription(site: Site) -> object:
    first, second = site.queue(), site.queue()
    with site.peer() as peer:
        peer.call("SUBSCRIBE", destination=first, id="1", ack="client-individual")
        peer.call("SUBSCRIBE", destination=second, id="2", ack="client")
        peer.send("SEND", b"older", destination=first)
        peer.message()
        peer.send("SEND", b"newer", destination=second)
        peer.call("ACK", **named(peer.message()))
    return left(site, first, 0), left(site, second, 0)


@script("spent-ack-closes", "acks-by-subscription", "error-stays-open")
def ack_twice(site: Site) -> object:
    with site.peer() as peer:
        _, message = one(site, peer, b"x")
        peer.call("ACK", **named(message))
        peer.send("ACK", receipt="again", **named(message))
        frames, fate = peer.fate()
        return [shown(frame, "receipt-id") for frame in frames], fate


@script("message-id-per-delivery", "acks-by-subscription", "strange-ack-closes")
def ack_of_nothing(site: Site) -> object:
    with site.peer() as peer:
        peer.call("SUBSCRIBE", destination=site.queue(), id="s", ack="client")
        peer.send("ACK", message_id="nonsense", subscription="s", receipt="r")
        frames, fate = peer.fate()
        return [shown(frame, "receipt-id") for frame in frames], fate


@script("acks-by-subscription", brokers="coilmq")
def ack_of_another_message_than_the_pending_one(site: Site) -> object:
    with site.peer() as peer:
        _, message = one(site, peer, b"x")
        peer.send("ACK", message_id="nonsense", subscription="s", receipt="r")
        frames, fate = peer.fate()
        right = [frame.command for frame in peer.call("ACK", **named(message))]
        return [shown(frame, "receipt-id") for frame in frames], fate, right


@script("acks-by-subscription", brokers="coilmq")
def acks_of_other_versions(site: Site) -> object:
    outcome: list[object] = []
    for version, headers in (
        ("1.0", {"message-id": "MESSAGE"}),
        ("1.0", {"message-id": "MESSAGE", "id": "s"}),
        ("1.2", {"id": "MESSAGE"}),
        ("1.2", {"id": "s"}),
        ("1.2", {"id": "s", "message-id": "MESSAGE"}),
    ):
        queue = filled(site, b"1", b"2")
        with site.peer("1.2" if version == "1.2" else "1.0") as peer:
            peer.subscribe(destination=queue, id="s", ack="client")
            message = peer.message()
            name = message.headers["message-id"]
            told = {header: value.replace("MESSAGE", name) for header, value in headers.items()}
            peer.send("ACK", receipt="r", **told)
            outcome += [shown(frame, "receipt-id") for frame in peer.rest()]
            outcome.append("ack" in message.headers)
    return outcome


@script("unsubscribe-gives-back", "late-ack-refused", "acks-by-subscription", "given-back-unmarked")
def ack_after_unsubscribe(site: Site) -> object:
    with site.peer() as first, site.peer() as second:
        queue, message = one(site, first, b"x")
        second.subscribe(destination=queue, id="t")
        first.call("UNSUBSCRIBE", id="s", destination=queue)
        given = [shown(frame, "redelivered", "subscription") for frame in second.rest()]
        first.send("ACK", receipt="late", **named(message))
        late, fate = first.fate()
        first.close()
        after = [frame.body for frame in second.rest()]
        return given, [shown(frame, "receipt-id") for frame in late], fate, after


@script(
    "redelivered-always",
    "redelivered-never",
    "message-id-per-delivery",
    "message-id-per-consumer",
    "requeued-last",
)
def redelivery_after_a_lost_connection(site: Site) -> object:
    queue = filled(site, b"1", b"2", b"3")
    with site.peer() as peer:
        peer.subscribe(destination=queue, id="s", ack=mode(site))
        first = peer.message()
        peer.rest()
        # CoilMQ redelivers messages, but not to a subscription that already exists.
        peer.leave()
    with site.peer() as peer:
        peer.subscribe(destination=queue, id="s")
        again = [peer.message() for _ in range(3)]
    ids = {message.body: message.headers["message-id"] for message in again}
    flags = [message.headers.get("redelivered") for message in (first, *again)]
    is_same = ids[first.body] == first.headers["message-id"]
    return flags, is_same, [message.body for message in again]


@script("message-id-with-colons", "message-id-per-delivery", "message-id-per-consumer")
def message_ids(site: Site) -> object:
    with site.peer("1.2") as peer:
        _, message = one(site, peer, b"x")
        name, ack = message.headers["message-id"], message.headers.get("ack", "")
        return ":" in name, ":" in ack, name.startswith("T_s@@session-"), name == ack


def delivered(site: Site, **headers: str) -> int:
    """Return the number of deliveries, of five messages, before an acknowledgement."""
    queue = filled(site, *(b"%d" % number for number in range(5)))
    with site.peer() as peer:
        frames = peer.call("SUBSCRIBE", destination=queue, id="s", ack="client", **headers)
        return sum(frame.command == "MESSAGE" for frame in [*frames, *peer.rest()])


@script("prefetch-size", "prefetch-count", "one-in-flight")
def prefetch(site: Site) -> object:
    return (
        delivered(site),
        delivered(site, **{"activemq.prefetchSize": "2"}),
        delivered(site, prefetch_count="2"),
    )


@script("prefetch-size", brokers="activemq")
def prefetch_of_nothing(site: Site) -> object:
    queue = filled(site, b"x")
    with site.peer() as peer:
        none = peer.call("SUBSCRIBE", destination=queue, id="s", **NO_PREFETCH)
        auto = [frame.command for frame in [*none, *peer.rest()]]
    return (
        auto,
        delivered(site, **NO_PREFETCH),
        delivered(site, **{"activemq.prefetchSize": "many"}),
    )


def within(site: Site, ack: str, **headers: str) -> list[int]:
    """Return the number of deliveries of ten messages of 200 bytes, then after each of two ACKs."""
    queue = filled(site, *[b"x" * 200] * 10)
    with site.peer() as peer:
        frames = peer.call("SUBSCRIBE", destination=queue, id="s", ack=ack, **headers)
        messages = [each for each in [*frames, *peer.rest()] if each.command == "MESSAGE"]
        counts = [len(messages)]
        for message in messages[:2] if ack != "auto" else ():
            frames = peer.call("ACK", **named(message))
            counts.append(sum(each.command == "MESSAGE" for each in [*frames, *peer.rest()]))
    return counts


@script("prefetch-in-bytes", brokers="artemis")
def prefetch_in_octets(site: Site) -> object:
    """Prefetch of less than a message, and of all: the overhead of a message differs."""
    return (
        within(site, "client-individual", consumer_window_size="1"),
        within(site, "client-individual", consumer_window_size="-1"),
        within(site, "client-individual", **{"activemq.prefetchSize": "2"}),
        within(site, "auto", consumer_window_size="1"),
        within(site, "auto"),
        within(site, "client-individual", prefetch_count="1"),
    )


@script("ack-in-transaction-at-once", brokers="artemis")
def ack_in_a_transaction_that_is_aborted(site: Site) -> object:
    outcome = []
    for command in ("ACK", "NACK"):
        with site.peer() as peer:
            queue, message = one(site, peer, b"x")
            peer.call("BEGIN", transaction="t")
            answers = peer.call(command, **named(message), transaction="t")
            peer.call("ABORT", transaction="t")
        outcome.append(([frame.command for frame in answers], left(site, queue, 0)))
    return outcome


@script("prefetch-count", brokers="rabbitmq")
def prefetch_of_the_next_subscription(site: Site) -> object:
    first, second = (filled(site, b"1", b"2", b"3") for _ in range(2))
    with site.peer() as peer:
        peer.subscribe(destination=first, id="1", ack="client", prefetch_count="1")
        before = len(peer.rest())
        peer.subscribe(destination=second, id="2", ack="client")
        return before, len(peer.rest())


@script("transaction-holds-prefetch", brokers="rabbitmq")
def prefetch_within_a_transaction(site: Site) -> object:
    queue = filled(site, b"1", b"2")
    with site.peer() as peer:
        peer.subscribe(destination=queue, id="s", ack="client-individual", prefetch_count="1")
        peer.send("BEGIN", transaction="t")
        peer.call("ACK", **named(peer.message()), transaction="t")
        before = [frame.body for frame in peer.rest()]
        peer.call("COMMIT", transaction="t")
        return before, [frame.body for frame in peer.rest()]


@script("message-before-receipt")
def message_and_receipt(site: Site) -> object:
    queue = filled(site, b"x")
    with site.peer() as peer:
        peer.send("SUBSCRIBE", destination=queue, id="s", receipt="r")
        return [frame.command for frame in (peer.frame(), peer.frame()) if frame is not None]


@script("receipt-header-echoed", "transaction-header-echoed")
def headers_of_send(site: Site) -> object:
    queue = site.queue()
    with site.peer() as peer:
        peer.call("BEGIN", transaction="t")
        peer.send("SEND", b"x", destination=queue, transaction="t", receipt="mine", foo="bar")
        peer.call("COMMIT", transaction="t")
        peer.rest()
    with site.peer() as peer:
        peer.subscribe(destination=queue, id="s")
        return shown(peer.message(), "receipt", "transaction", "foo")


@script("message-id-on-send-refused", "message-id-of-client")
def message_id_of_the_sender(site: Site) -> object:
    queue = site.queue()
    with site.peer() as peer:
        answer = peer.call("SEND", b"x", destination=queue, message_id="mine")
        frames = peer.call("SUBSCRIBE", destination=queue, id="s") + peer.rest()
        ids = [frame.headers["message-id"] == "mine" for frame in frames if frame.body == b"x"]
        return [frame.command for frame in answer], ids


@script("content-length-not-added", "content-length-always")
def content_length(site: Site) -> object:
    queue = site.queue()
    lengths = []
    with site.peer() as peer:
        receipts = peer.call("SUBSCRIBE", destination=queue, id="s")
        for frame in (b"\n\nabc\0", b"\n\n\0", b"\ncontent-length:3\n\nabc\0"):
            peer.write(b"SEND\ndestination:" + queue.encode() + frame)
            lengths.append(peer.message().headers.get("content-length"))
    return [shown(frame, "content-length") for frame in receipts], lengths


def declared(site: Site, first: dict[str, str], second: dict[str, str]) -> object:
    """Return the results of a second connection that declares a queue with other arguments."""
    queue = site.queue()
    with site.peer() as one, site.peer() as other:
        one.call("SEND", b"1", destination=queue, **first)
        other.send("SUBSCRIBE", destination=queue, id="s", receipt="r", **second)
        told, fate = other.fate()
        one.close()
    with site.peer() as peer:
        frames = peer.call("SUBSCRIBE", destination=queue, id="s", **first)
        left = [frame.body for frame in [*frames, *peer.rest()] if frame.body]
    return [shown(frame, "message", "receipt-id") for frame in told], fate, left


@script("queue-properties", brokers="rabbitmq")
def properties_of_queues(site: Site) -> object:
    return [
        declared(site, {"persistent": "false"}, {}),
        declared(site, {"durable": "false"}, {"durable": "false"}),
        declared(site, {}, {"durable": "false"}),
        declared(site, {}, {"auto-delete": "true"}),
        declared(site, {"x-max-length": "5"}, {}),
        declared(site, {"x-max-length": "5"}, {"x-max-length": "5"}),
    ]


@script("artemis-destinations", brokers="artemis")
def kinds_of_destinations(site: Site) -> object:
    outcome = []
    for kind in ("ANYCAST", "MULTICAST"):
        name = site.queue().rpartition("/")[2]
        with site.peer() as one, site.peer() as other:
            for peer in (one, other):
                peer.call("SUBSCRIBE", destination=name, id="s", subscription_type=kind)
            frames = one.call("SEND", b"x", destination=name, destination_type=kind)
            frames += one.rest() + other.rest()
            outcome.append(sum(frame.body == b"x" for frame in frames))
    return outcome


@script("selector-ignored")
def selector(site: Site) -> object:
    queue = site.queue()
    with site.peer() as peer:
        peer.call("SUBSCRIBE", destination=queue, id="s", selector="colour = 'red'")
        peer.call("SEND", b"x", destination=queue, colour="blue")
        return [frame.body for frame in peer.rest()]


@script("browser-ignored")
def browsing(site: Site) -> object:
    queue = filled(site, b"1", b"2")
    with site.peer() as peer:
        frames = peer.call("SUBSCRIBE", destination=queue, id="s", browser="true") + peer.rest()
        seen = [frame.body for frame in frames if frame.body]
    return seen, left(site, queue, 0)


@script(
    "activemq-destinations", "artemis-destinations", "rabbitmq-destinations", "coilmq-destinations"
)
def destinations(site: Site) -> object:
    outcome = []
    for template in ("{}", "/{}/a", "/queue/{}/a", "/queue/{}.*", "/topic/{}"):
        name = template.format(site.queue().rpartition("/")[2])
        with site.peer() as peer:
            frames = peer.call("SUBSCRIBE", destination=name, id="s")
            if name.endswith("*") and site.name != "coilmq":
                continue
            frames += peer.call("SEND", b"x", destination=name) + peer.rest()
            outcome += [
                (frame.command, frame.headers.get("destination", "").replace(name, "NAME"))
                for frame in frames
                if frame.command in ("MESSAGE", "ERROR")
            ]
    return outcome
