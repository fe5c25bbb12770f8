"""Rules of RabbitMQ."""

from __future__ import annotations

from stompkit.frames import Frame
from stompkit.testing.memory import MemoryBroker
from tests.testing.server.quirks.talks import heard, shows


@shows("nack-requeues", on=([b"x"] * 20, 0, []), off=([b"x"] * 5, 1, [b"y"]))
def nack(broker: MemoryBroker) -> object:
    client = broker.client()
    client.subscribe("/queue/a", ack="client")
    client.publish("/queue/a", b"x")
    bodies = []
    messages = client.take("MESSAGE")
    for _ in range(20):
        if messages:
            client.nack(messages[0])
            messages = client.take("MESSAGE")
            bodies += [each.body for each in messages]
    client.subscribe("/dlq/a", id="dead")
    dead = len(client.take("MESSAGE"))
    other = broker.client()
    other.subscribe("/queue/b", ack="client")
    other.publish("/queue/b", b"y")
    other.nack(other.take("MESSAGE")[0], requeue="false")
    other.subscribe("/dlq/b", id="dead")
    return bodies, dead, other.bodies()


@shows("nack-on-1.0", on=["MESSAGE"], off=["ERROR", "end"])
def nack_on_1_0(broker: MemoryBroker) -> object:
    client = broker.client("1.0")
    client.subscribe("/queue/a", ack="client")
    client.publish("/queue/a", b"x")
    [message] = client.take("MESSAGE")
    client.nack(message)
    return heard(client)


@shows("ack-across-subscriptions", on=[], off=[b"older"])
def ack_of_another_subscription(broker: MemoryBroker) -> object:
    client = broker.client()
    client.subscribe("/queue/a", id="1", ack="client-individual")
    client.subscribe("/queue/b", id="2", ack="client")
    client.publish("/queue/a", b"older")
    client.publish("/queue/b", b"newer")
    client.ack(client.take("MESSAGE")[1])
    client.close()
    other = broker.client()
    other.subscribe("/queue/a", id="1")
    other.subscribe("/queue/b", id="2")
    return other.bodies()


@shows(
    "spent-ack-closes",
    on=[("RECEIPT", "2"), ("ERROR", None), "end"],
    off=[("ERROR", "2"), "end"],
)
def spent_ack(broker: MemoryBroker) -> object:
    client = broker.client()
    client.subscribe("/queue/a", ack="client")
    client.publish("/queue/a", b"x")
    [message] = client.take("MESSAGE")
    client.ack(message)
    client.ack(message, receipt="2")
    return heard(client, "receipt-id")


@shows(
    "message-id-per-delivery", on=(True, True, True, ["RECEIPT"]), off=(False,) * 3 + (["RECEIPT"],)
)
def message_ids(broker: MemoryBroker) -> object:
    found: list[Frame] = []
    for _ in range(2):
        client = broker.client()
        client.subscribe("/queue/a", ack="client")
        if not found:
            client.publish("/queue/a", b"x")
        found += client.take("MESSAGE")
        if len(found) == 1:
            client.close()
    client.ack(found[1], receipt="r")
    first, second = (each.headers["message-id"] for each in found)
    return (
        first.startswith("T_0@@session-"),
        first != second,
        found[0].headers["ack"] == first,
        heard(client),
    )


@shows("message-id-per-delivery", on=["RECEIPT"], off=["ERROR", "end"])
def ack_without_a_subscription(broker: MemoryBroker) -> object:
    client = broker.client("1.1")
    client.subscribe("/queue/a", ack="client")
    client.publish("/queue/a", b"x")
    [message] = client.take("MESSAGE")
    client.send("ACK", {"message-id": message.headers["message-id"], "receipt": "r"})
    return heard(client)


@shows("message-id-on-send-refused", on=["ERROR", "end"], off=["RECEIPT"])
def message_id_of_the_sender(broker: MemoryBroker) -> object:
    client = broker.client()
    client.take()
    client.publish("/queue/a", b"x", message_id="mine", receipt="r")
    return heard(client)


@shows("transaction-holds-prefetch", on=[b"1"], off=[b"1", b"2", b"3"])
def prefetch_in_a_transaction(broker: MemoryBroker) -> object:
    client = broker.client()
    for body in (b"1", b"2", b"3"):
        client.publish("/queue/a", body)
    client.take()
    client.subscribe("/queue/a", ack="client-individual", prefetch_count="1")
    client.send("BEGIN", transaction="t")
    bodies = []
    while messages := client.take("MESSAGE"):
        bodies += [each.body for each in messages]
        client.ack(messages[0], transaction="t")
    return bodies


@shows("receipt-order", on=["b", "d", "a", "c"], off=["a", "b", "c", "d"])
def order_of_receipts(broker: MemoryBroker) -> object:
    client = broker.client()
    client.take()
    client.write(
        b"SEND\ndestination:/topic/a\nreceipt:a\n\n\0BEGIN\ntransaction:b\nreceipt:b\n\n\0"
        b"SEND\ndestination:/topic/a\nreceipt:c\n\n\0BEGIN\ntransaction:d\nreceipt:d\n\n\0"
    )
    broker.clock.advance(0)
    return [each.headers["receipt-id"] for each in client.take("RECEIPT")]


@shows(
    "transaction-receipts-late", on=[[], ["c", "s"], [], ["a"]], off=[["s"], ["c"], ["t"], ["a"]]
)
def receipts_of_a_transaction(broker: MemoryBroker) -> object:
    client = broker.client()
    outcome = []
    for receipt, end in (("s", "COMMIT"), ("t", "ABORT")):
        client.send("BEGIN", transaction="t")
        client.publish("/topic/a", transaction="t", receipt=receipt)
        outcome.append([each.headers["receipt-id"] for each in client.take("RECEIPT")])
        client.send(end, transaction="t", receipt=end[0].lower())
        broker.clock.advance(0)
        outcome.append([each.headers["receipt-id"] for each in client.take("RECEIPT")])
    return outcome


@shows("late-ack-refused", on=["ERROR", "end"], off=["RECEIPT"])
def late_ack(broker: MemoryBroker) -> object:
    client = broker.client()
    client.subscribe("/queue/a", ack="client")
    client.publish("/queue/a", b"x")
    [message] = client.take("MESSAGE")
    client.send("UNSUBSCRIBE", id="0")
    client.ack(message, receipt="r")
    return heard(client)


@shows("prefetch-count", on=[5, 2, 2, 5], off=[2, 2, 5, 5])
def prefetch(broker: MemoryBroker) -> object:
    outcome: list[object] = []
    client = broker.client()
    for number, headers in enumerate(
        ({"activemq.prefetchSize": "2"}, {"prefetch-count": "2"}, {}, {"prefetch-count": "0"})
    ):
        queue = f"/queue/{number}"
        for _ in range(5):
            client.publish(queue, b"x")
        client.send("SUBSCRIBE", {"destination": queue, "id": queue, "ack": "client", **headers})
        outcome.append(len(client.take("MESSAGE")))
    return outcome


@shows(
    "heart-beat-whole-seconds",
    on=["2000,1000", "0,0", "1000,0"],
    off=["1000,1000", "1000,1000", None],
)
def heart_beats(broker: MemoryBroker) -> object:
    offers = (("1.1", "500,2500"), ("1.1", "0,0"), ("1.0", "0,1"))
    return [
        broker.client(version, heart_beat=value).connected.get("heart-beat")
        for version, value in offers
    ]


@shows(
    "duplicate-id-closes",
    on=[("ERROR", None), ("RECEIPT", "2"), "end"],
    off=[("ERROR", "2"), "end"],
)
def one_id_for_two(broker: MemoryBroker) -> object:
    client = broker.client()
    client.subscribe("/topic/a")
    client.take()
    client.subscribe("/topic/b", receipt="2")
    return heard(client, "receipt-id")


@shows("id-not-needed", on=[("MESSAGE", None), ("RECEIPT", None)], off=[("ERROR", None), "end"])
def no_id(broker: MemoryBroker) -> object:
    client = broker.client("1.1")
    client.take()
    client.write(b"SUBSCRIBE\ndestination:/topic/a\n\n\0")
    if client.error is None:
        client.publish("/topic/a", b"x")
        client.write(b"UNSUBSCRIBE\ndestination:/topic/a\nreceipt:r\n\n\0")
    return heard(client, "subscription")


@shows("host-is-vhost", on=["CONNECTED", "ERROR", "end"], off=["CONNECTED", "CONNECTED"])
def hosts(broker: MemoryBroker) -> object:
    outcome = []
    for host in ("/", "127.0.0.1"):
        client = broker.connect()
        client.send("CONNECT", {"accept-version": "1.1", "host": host})
        outcome += heard(client)
    return outcome


@shows("version-error-stays-open", on=["ERROR", "CONNECTED"], off=["ERROR", "end"])
def another_try_with_another_version(broker: MemoryBroker) -> object:
    client = broker.connect()
    for version in ("9.9", "1.1"):
        client.send("CONNECT", {"accept-version": version, "host": "memory"})
    return heard(client)


@shows("error-with-versions", on="1.0,1.1,1.2", off=None)
def error(broker: MemoryBroker) -> object:
    client = broker.client()
    client.send("COMMIT", transaction="unknown")
    assert client.error is not None
    return client.error.headers.get("version")


@shows("second-connect-closes", on=["end"], off=["ERROR", "end"])
def second_connect(broker: MemoryBroker) -> object:
    client = broker.client()
    client.take()
    client.send("CONNECT", {"accept-version": "1.2", "host": "memory"})
    return heard(client)


@shows(
    "queue-properties",
    on=["precondition_failed", "resource_locked", None, None],
    off=[None, None, None, None],
)
def properties_of_queues(broker: MemoryBroker) -> object:
    outcome: list[object] = []
    for number, (first, second) in enumerate(
        (
            ({"x-max-length": "5"}, {}),
            ({"durable": "false"}, {}),
            ({}, {}),
            ({"x-max-length": "5"}, {"x-max-length": "5"}),
        )
    ):
        one, other, name = broker.client(), broker.client(), f"/queue/{number}"
        one.send("SEND", {"destination": name, **first}, b"x")
        other.send("SUBSCRIBE", {"destination": name, "id": "0", **second})
        outcome.append(other.error and other.error.headers["message"])
    return outcome


@shows("queue-properties", on=[], off=[b"x"])
def queue_of_a_connection(broker: MemoryBroker) -> object:
    client = broker.client()
    client.send("SEND", {"destination": "/queue/a", "persistent": "false"}, b"x")
    client.close()
    other = broker.client()
    other.subscribe("/queue/a")
    return other.bodies()


@shows(
    "rabbitmq-destinations",
    on=[["/queue/a"], "ERROR", "ERROR", ["/amq/queue/d"], ["/exchange/e/f"]],
    off=["ERROR", "ERROR", ["/queue/b/c"], "ERROR", "ERROR"],
)
def destinations(broker: MemoryBroker) -> object:
    outcome: list[object] = []
    for name in ("a", "/b/c", "/queue/b/c", "/amq/queue/d", "/exchange/e/f"):
        client = broker.client()
        client.subscribe(name)
        if client.error is None:
            client.publish(name, b"x")
        told = [each.headers["destination"] for each in client.take("MESSAGE")]
        outcome.append("ERROR" if client.error else told)
    return outcome
