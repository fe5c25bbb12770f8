"""Rules of Artemis."""

from __future__ import annotations

from stompkit.testing.memory import MemoryBroker
from tests.testing.server.quirks.talks import heard, shows


@shows("nack-is-ack", on=([], []), off=([b"x"], [b"x"]))
def nack(broker: MemoryBroker) -> object:
    client = broker.client()
    client.subscribe("/queue/a", ack="client")
    client.publish("/queue/a", b"x")
    client.nack(client.take("MESSAGE")[0])
    again = client.bodies()
    client.close()
    other = broker.client()
    other.subscribe("/queue/a")
    return again, other.bodies()


@shows("nack-is-ack", on=[b"3"], off=[b"1", b"2", b"3"])
def nack_of_several(broker: MemoryBroker) -> object:
    client = broker.client()
    client.subscribe("/queue/a", ack="client")
    for body in (b"1", b"2", b"3"):
        client.publish("/queue/a", body)
    client.nack(client.take("MESSAGE")[1])
    client.close()
    other = broker.client()
    other.subscribe("/queue/a")
    return other.bodies()


@shows("ack-in-transaction-at-once", on=[[], [b"y"]], off=[[b"x"], [b"y"]])
def ack_in_a_transaction(broker: MemoryBroker) -> object:
    outcome = []
    for body, command, end in ((b"x", "ACK", "ABORT"), (b"y", "NACK", "ABORT")):
        queue = f"/queue/{command}"
        client = broker.client()
        client.subscribe(queue, ack="client")
        client.publish(queue, body)
        [message] = client.take("MESSAGE")
        client.send("BEGIN", transaction="t")
        client.send(command, id=message.headers["ack"], transaction="t")
        client.send(end, transaction="t")
        client.close()
        other = broker.client()
        other.subscribe(queue)
        outcome.append(other.bodies())
    return outcome


def windowed(broker: MemoryBroker, ack: str, **headers: str) -> list[object]:
    """Return the number of deliveries of ten small messages, then after each of two ACKs."""
    client = broker.client()
    for _ in range(10):
        client.publish("/queue/a", b"x" * 100)
    client.subscribe("/queue/a", ack=ack, **headers)
    broker.clock.advance(0)
    messages = client.take("MESSAGE")
    counts: list[object] = [len(messages)]
    for message in messages[:2]:
        if "ack" in message.headers:
            client.ack(message)
        counts.append(len(client.take("MESSAGE")))
    client.close()
    return counts


@shows("prefetch-in-bytes", on=[1, 1], off=[2, 1, 1])
def window(broker: MemoryBroker) -> object:
    return windowed(
        broker, "client-individual", prefetch_count="2", **{"activemq.prefetchSize": "2"}
    )


@shows("prefetch-in-bytes", on=[2, 1, 1], off=[10, 0, 0])
def window_of_300_octets(broker: MemoryBroker) -> object:
    return windowed(broker, "client-individual", consumer_window_size="250")


@shows("prefetch-in-bytes", on=[1, 0], off=[10, 0, 0])
def window_in_the_mode_auto(broker: MemoryBroker) -> object:
    return windowed(broker, "auto", **{"activemq.prefetchSize": "1"})


@shows("prefetch-in-bytes", on=[10, 0, 0], off=[1, 1])
def no_window(broker: MemoryBroker) -> object:
    headers = {"consumer-window-size": "-1", "activemq.prefetchSize": "1"}
    return windowed(broker, "client-individual", **headers)


@shows("prefetch-in-bytes", on=[1, 1], off=[100, 1, 1])
def default_window(broker: MemoryBroker) -> object:
    client = broker.client()
    for _ in range(150):
        client.publish("/queue/a", b"x" * 10_240)
    client.subscribe("/queue/a", ack="client-individual")
    messages = client.take("MESSAGE")
    counts = [len(messages)]
    for message in messages[:2]:
        client.ack(message)
        counts.append(len(client.take("MESSAGE")))
    return counts


@shows("prefetch-in-bytes", on=[10, 0, 0], off=[1, 1])
def window_of_many_digits(broker: MemoryBroker) -> object:
    """Have a number that Python does not convert; it is as good as no window."""
    headers = {"consumer-window-size": "9" * 5_000, "activemq.prefetchSize": "1"}
    return windowed(broker, "client-individual", **headers)


@shows("prefetch-in-bytes", on=[("ERROR",), "end"], off=[("MESSAGE",)])
def window_that_is_no_number(broker: MemoryBroker) -> object:
    client = broker.client()
    client.publish("/queue/a", b"x")
    client.take()
    client.subscribe("/queue/a", consumer_window_size="many")
    return [(each,) if each != "end" else each for each in heard(client)]


@shows(
    "subscription-named-after-destination",
    on=[("MESSAGE", "subscription/a"), ("RECEIPT", None)],
    off=[("MESSAGE", None), ("RECEIPT", None)],
)
def no_id(broker: MemoryBroker) -> object:
    client = broker.client("1.0")
    client.take()
    client.subscribe("/topic/a", id=None)
    client.publish("/topic/a", b"x")
    client.send("UNSUBSCRIBE", destination="/topic/a", receipt="r")
    return [(each.command, each.headers.get("subscription")) for each in client.take()]


@shows("subscription-named-after-destination", on=["MESSAGE"], off=["ERROR", "end"])
def no_id_on_1_1(broker: MemoryBroker) -> object:
    client, other = broker.client("1.1"), broker.client()
    client.take()
    client.write(b"SUBSCRIBE\ndestination:/topic/a\n\n\0")
    other.publish("/topic/a", b"x")
    return heard(client)


@shows(
    "heart-beat-least-500ms",
    on=["500,500", "2000,1000", "0,30000", None, None],
    off=["1000,1000", "1000,1000", "1000,1000", "1000,1000", None],
)
def heart_beats(broker: MemoryBroker) -> object:
    offers = (("1.1", "20,50"), ("1.1", "1000,2000"), ("1.1", "0,0"), ("1.1", None), ("1.0", "1,1"))
    return [
        broker.client(version, **({} if value is None else {"heart_beat": value})).connected.get(
            "heart-beat"
        )
        for version, value in offers
    ]


@shows("silence-of-60s", on=([[], ["ERROR", "end"]], [[], []]), off=([[], []], [[], []]))
def long_silence(broker: MemoryBroker) -> object:
    silent, noisy = broker.client("1.0"), broker.client("1.1")
    outcome: tuple[list[object], list[object]] = ([], [])
    for client in (silent, noisy):
        client.take()
    for seconds in (59, 2):
        broker.clock.advance(seconds / 2)
        noisy.write(b"\n")
        broker.clock.advance(seconds / 2)
        for client, told in zip((silent, noisy), outcome, strict=True):
            told.append(heard(client))
    return outcome


@shows(
    "artemis-destinations",
    on=[[b"x"], [b"x"], [b"x", b"x"]],
    off=["ERROR", [b"x"], "ERROR"],
)
def destinations(broker: MemoryBroker) -> object:
    outcome: list[object] = []
    for name, kind in (("a", "ANYCAST"), ("/queue/b", "ANYCAST"), ("c", "MULTICAST")):
        client = broker.client()
        for number in ("1", "2"):
            client.subscribe(name, id=number, subscription_type=kind)
        if client.error is None:
            client.publish(name, b"x", destination_type=kind)
        outcome.append("ERROR" if client.error else client.bodies())
    return outcome


@shows("message-id-per-consumer", on=(False, True, True), off=(True, False, True))
def message_id(broker: MemoryBroker) -> object:
    """Compare the ids of two deliveries of a message with each other and with its ack header."""
    first, second = broker.client(), broker.client()
    first.publish("/queue/a", b"x")
    first.subscribe("/queue/a", ack="client")
    [early] = first.take("MESSAGE")
    first.close()
    second.subscribe("/queue/a", ack="client")
    [late] = second.take("MESSAGE")
    second.send("ACK", id=late.headers["ack"], receipt="r")
    ids = [each.headers["message-id"] for each in (early, late)]
    return ids[0] == ids[1], late.headers["ack"] == ids[1], heard(second)[-1:] == ["RECEIPT"]


@shows("message-id-per-consumer", on=["ERROR", "end"], off=["RECEIPT"])
def id_as_it_would_be_without(broker: MemoryBroker) -> object:
    client = broker.client("1.1")
    client.publish("/queue/a", b"x")
    client.subscribe("/queue/a", ack="client")
    [message] = client.take("MESSAGE")
    name = message.headers["message-id"].partition(",")
    client.send("ACK", message_id=name[2] or name[0], subscription="0", receipt="r")
    return heard(client)


@shows("given-back-unmarked", on=None, off="true", given=("unsubscribe-gives-back",))
def given_back(broker: MemoryBroker) -> object:
    first, second = broker.client(), broker.client()
    first.publish("/queue/a", b"x")
    first.subscribe("/queue/a", ack="client", id="s")
    second.subscribe("/queue/a", ack="client")
    first.send("UNSUBSCRIBE", id="s")
    [message] = second.take("MESSAGE")
    return message.headers.get("redelivered")


@shows("unknown-transaction-begins", on=([], [b"x", b"y"], "ERROR"), off=([], [], "ERROR"))
def transaction_that_nobody_began(broker: MemoryBroker) -> object:
    client, other = broker.client(), broker.client()
    other.subscribe("/queue/a")
    client.publish("/queue/a", b"x", transaction="t")
    before = other.bodies()
    client.send("BEGIN", transaction="t")
    client.publish("/queue/a", b"y", transaction="t")
    client.send("COMMIT", transaction="t")
    for _ in range(2):
        client.send("BEGIN", transaction="twice")
    return before, other.bodies(), heard(client)[-2]


@shows(
    "subscribe-error-without-receipt-id",
    on=[("ERROR", None), "end"],
    off=[("ERROR", "r"), "end"],
)
def refused_subscription(broker: MemoryBroker) -> object:
    client = broker.client()
    client.take()
    client.send("SUBSCRIBE", id="s", receipt="r")
    return heard(client, "receipt-id")


@shows("header-last-wins-before-1.2", on=["2", "2", "1"], off=["1", "1", "1"])
def repeated_header(broker: MemoryBroker) -> object:
    outcome = []
    for version in ("1.0", "1.1", "1.2"):
        client = broker.client(version)
        client.subscribe("/topic/a")
        client.write(b"SEND\ndestination:/topic/a\na:1\na:2\n\n\0")
        outcome.append(client.take("MESSAGE")[0].headers["a"])
    return outcome


@shows("stomp-needs-1.1", on=["ERROR", "ERROR", "CONNECTED"], off=["CONNECTED"] * 3)
def stomp_frame(broker: MemoryBroker) -> object:
    outcome: list[object] = []
    for line in ("", "accept-version:1.0\n", "accept-version:1.0,1.1\n"):
        client = broker.connect()
        client.write(f"STOMP\nhost:x\n{line}\n\0".encode())
        outcome.append(heard(client)[0])
    return outcome


@shows("nack-on-1.0-closes", on=["ERROR", "end"], off=["ERROR"], given=("error-stays-open",))
def nack_that_1_0_does_not_know(broker: MemoryBroker) -> object:
    client = broker.client("1.0")
    client.take()
    client.send("NACK", message_id="x")
    return heard(client)


@shows("early-frame-wedges", on=[], off=["ERROR", "end"])
def early_frame(broker: MemoryBroker) -> object:
    client = broker.connect()
    client.write(b"SEND\ndestination:/queue/a\n\n\0CONNECT\naccept-version:1.2\nhost:x\n\n\0")
    return heard(client)


@shows("bad-content-length-wedges", on=[], off=["ERROR", "end"])
def bad_content_length(broker: MemoryBroker) -> object:
    client = broker.client()
    client.take()
    client.write(b"SEND\ndestination:/queue/a\ncontent-length:x\n\n\0BEGIN\nreceipt:r\n\n\0")
    return heard(client)


@shows(
    "error-stays-open-before-1.2",
    on=[["ERROR"], ["ERROR"], ["ERROR", "end"]],
    off=[["ERROR", "end"]] * 3,
)
def error(broker: MemoryBroker) -> object:
    outcome = []
    for version in ("1.0", "1.1", "1.2"):
        client = broker.client(version)
        client.take()
        client.send("SEND")
        outcome.append(heard(client))
    return outcome
