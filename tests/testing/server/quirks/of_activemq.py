"""Rules of ActiveMQ."""

from __future__ import annotations

from stompkit.testing.memory import MemoryBroker
from tests.testing.server.quirks.talks import heard, shows


def nacked(broker: MemoryBroker, **headers: str) -> object:
    """Return the redelivered messages after a NACK, and the dead letters."""
    client = broker.client()
    client.subscribe("/queue/a", ack="client-individual")
    client.publish("/queue/a", b"x", **headers)
    [message] = client.take("MESSAGE")
    client.nack(message)
    again = client.bodies()
    client.subscribe("/queue/ActiveMQ.DLQ", id="dead")
    return again, [
        (each.body, each.headers["original-destination"]) for each in client.take("MESSAGE")
    ]


@shows("nack-dead-letters", on=([], [(b"x", "/queue/a")]), off=([b"x"], []))
def nack_of_a_persistent_message(broker: MemoryBroker) -> object:
    return nacked(broker, persistent="true")


@shows("nack-dead-letters", on=([], []), off=([b"x"], []))
def nack_of_another_message(broker: MemoryBroker) -> object:
    return nacked(broker)


@shows("nack-dead-letters", on=([], [], [b"x"]), off=([], [], []))
def nack_in_a_transaction(broker: MemoryBroker) -> object:
    client, other = broker.client(), broker.client()
    other.subscribe("/queue/ActiveMQ.DLQ")
    client.subscribe("/queue/a", ack="client")
    client.publish("/queue/a", b"x", persistent="true")
    [message] = client.take("MESSAGE")
    outcome = []
    for end in ("ABORT", "COMMIT"):
        client.send("BEGIN", transaction="t")
        client.nack(message, transaction="t")
        outcome.append(other.bodies())
        client.send(end, transaction="t")
    return outcome[0], outcome[1], other.bodies()


@shows("nack-names-one", on=[b"2"], off=[b"1", b"2"])
def nack_of_several(broker: MemoryBroker) -> object:
    client = broker.client()
    client.subscribe("/queue/a", ack="client")
    for body in (b"1", b"2", b"3"):
        client.publish("/queue/a", body)
    messages = client.take("MESSAGE")
    client.nack(messages[1])
    return client.bodies()


@shows("prefetch-size", on=[5, 5, 2, 0, 5], off=[5, 2, 2, 1, "ERROR"])
def prefetch(broker: MemoryBroker) -> object:
    outcome: list[object] = []
    size = "activemq.prefetchSize"
    for number, headers in enumerate(
        ({}, {"prefetch-count": "2"}, {size: "2"}, {size: "0"}, {size: "many"})
    ):
        client, queue = broker.client(), f"/queue/{number}"
        for _ in range(5):
            client.publish(queue, b"x")
        client.take()
        client.send("SUBSCRIBE", {"destination": queue, "id": "s", "ack": "client", **headers})
        outcome.append("ERROR" if client.error else len(client.take("MESSAGE")))
    return outcome


@shows("prefetch-size", on=[], off=[b"x"])
def prefetch_of_nothing_in_the_mode_auto(broker: MemoryBroker) -> object:
    client = broker.client()
    client.publish("/queue/a", b"x")
    client.send("SUBSCRIBE", {"destination": "/queue/a", "id": "s", "activemq.prefetchSize": "0"})
    return client.bodies()


@shows("prefetch-size", on=1000, off=100)
def prefetch_without_a_header(broker: MemoryBroker) -> object:
    client = broker.client()
    for _ in range(1010):
        client.publish("/queue/a", b"x")
    client.subscribe("/queue/a", ack="client")
    return len(client.take("MESSAGE"))


@shows("heart-beat-mirrored", on=["50,20", "0,-1", "0,0"], off=["1000,1000", "ERROR", None])
def heart_beats(broker: MemoryBroker) -> object:
    outcome = []
    for version, value in (("1.1", "20,50"), ("1.1", "-1,0"), ("1.0", "0,0")):
        client = broker.connect()
        client.send("CONNECT", {"accept-version": version, "host": "m", "heart-beat": value})
        outcome.append("ERROR" if client.error else client.connected.get("heart-beat"))
    return outcome


@shows("heart-beat-mirrored", on=2, off=0)
def beats_on_1_0(broker: MemoryBroker) -> object:
    client = broker.client("1.0", heart_beat="0,1000")
    before = client.beats
    for _ in range(5):
        broker.clock.advance(0.5)
    return client.beats - before


@shows(
    "duplicate-id-accepted",
    on=([b"1", b"2"], [b"3"], ["ERROR", "end"]),
    off=([], [], ["ERROR", "end"]),
)
def one_id_for_two(broker: MemoryBroker) -> object:
    client, other = broker.client(), broker.client()
    client.take()
    client.subscribe("/topic/a")
    client.subscribe("/topic/b")
    other.publish("/topic/a", b"1")
    other.publish("/topic/b", b"2")
    if client.error:
        return [], [], heard(client)
    both = client.bodies()
    client.send("UNSUBSCRIBE", id="0")
    other.publish("/topic/a", b"3")
    other.publish("/topic/b", b"4")
    one = client.bodies()
    client.send("UNSUBSCRIBE", id="0")
    return both, one, heard(client)


@shows("message-id-with-colons", on=(True, True, ["RECEIPT"]), off=(False, False, ["RECEIPT"]))
def message_ids(broker: MemoryBroker) -> object:
    client = broker.client()
    client.subscribe("/queue/a", ack="client")
    client.publish("/queue/a", b"x")
    [message] = client.take("MESSAGE")
    client.ack(message, receipt="r")
    return ":" in message.headers["message-id"], ":" in message.headers["ack"], heard(client)


@shows("strange-ack-closes", on=["end"], off=["ERROR", "end"])
def strange_ack(broker: MemoryBroker) -> object:
    client = broker.client("1.1")
    client.subscribe("/queue/a", ack="client")
    client.take()
    client.send("ACK", {"message-id": "nonsense", "subscription": "0"})
    return heard(client)


@shows("content-length-not-added", on=[None, "1"], off=["1", "1"])
def content_length(broker: MemoryBroker) -> object:
    client = broker.client()
    client.subscribe("/queue/a")
    client.write(b"SEND\ndestination:/queue/a\n\nx\0")
    client.publish("/queue/a", b"y")
    return [each.headers.get("content-length") for each in client.take("MESSAGE")]


@shows("undefined-escape-kept", on=[(r"a\tb")], off=[])
def undefined_escape(broker: MemoryBroker) -> object:
    client, other = broker.client(), broker.client()
    other.subscribe("/topic/a")
    client.write(b"SEND\ndestination:/topic/a\nnote:a\\tb\n\n\0")
    return [each.headers["note"] for each in other.take("MESSAGE")]


@shows("error-stack-trace", on=True, off=False)
def error(broker: MemoryBroker) -> object:
    client = broker.client()
    client.send("COMMIT", transaction="unknown")
    assert client.error is not None
    return client.error.body.startswith(b"org.apache.activemq.transport.stomp.ProtocolException: ")


@shows(
    "activemq-destinations",
    on=[["/queue/a"], ["/queue//b/c"], ["/queue/d"], ["queue://e"]],
    off=["ERROR", "ERROR", ["/queue/d"], "ERROR"],
)
def destinations(broker: MemoryBroker) -> object:
    outcome: list[object] = []
    for name in ("a", "/b/c", "/queue/d", "queue://e"):
        client = broker.client()
        client.subscribe(name)
        if client.error is None:
            client.publish(name, b"x")
        told = [each.headers["destination"] for each in client.take("MESSAGE")]
        outcome.append("ERROR" if client.error else told)
    return outcome
