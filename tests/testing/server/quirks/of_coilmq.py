"""Rules of CoilMQ."""

from __future__ import annotations

from socket import getfqdn

from stompkit.frames import Frame
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.testing.server.quirks.talks import heard, shows


def filled(broker: MemoryBroker, *bodies: bytes) -> MemoryClient:
    """Return a client that has filled /queue/a."""
    client = broker.client("1.1")
    for body in bodies:
        client.publish("/queue/a", body)
    client.take()
    return client


def left(broker: MemoryBroker) -> list[bytes]:
    """Return the bodies that the next consumer of /queue/a receives."""
    client = broker.client("1.1")
    client.subscribe("/queue/a")
    bodies = client.bodies()
    client.close()
    return bodies


@shows("nack-refused", on=["ERROR", "end"], off=["MESSAGE", "RECEIPT"])
def nack(broker: MemoryBroker) -> object:
    client = filled(broker, b"x")
    client.subscribe("/queue/a", ack="client")
    client.nack(client.take("MESSAGE")[0], receipt="r")
    return sorted(str(each) for each in heard(client))


@shows("client-individual-is-auto", on=[], off=[b"x"])
def client_individual(broker: MemoryBroker) -> object:
    client = filled(broker, b"x")
    client.subscribe("/queue/a", ack="client-individual")
    client.close()
    return left(broker)


@shows("ack-mode-of-connection", on=[[], [b"y"]], off=[[b"x"], []])
def ack_mode_of_another_subscription(broker: MemoryBroker) -> object:
    outcome = []
    for body, first, second in ((b"x", "client", "auto"), (b"y", "auto", "client")):
        client, other = broker.client(), broker.client()
        client.subscribe("/queue/a", id="1", ack=first)
        client.subscribe("/queue/b", id="2", ack=second)
        other.publish("/queue/a", body)
        client.close()
        outcome.append(left(broker))
    return outcome


@shows("ack-mode-of-connection", on=[b"1", b"2"], off=[b"1"])
def topic_in_the_mode_client(broker: MemoryBroker) -> object:
    client = broker.client()
    client.subscribe("/topic/a", ack="client", prefetch_count="1")
    client.publish("/topic/a", b"1")
    client.publish("/topic/a", b"2")
    return client.bodies()


@shows("one-in-flight", on=([b"1"], [b"2"]), off=([b"1", b"2", b"3"], []))
def prefetch(broker: MemoryBroker) -> object:
    client = filled(broker, b"1", b"2", b"3")
    client.subscribe("/queue/a", ack="client", prefetch_count="10")
    messages = client.take("MESSAGE")
    client.ack(messages[0])
    return [each.body for each in messages], client.bodies()


def acked(broker: MemoryBroker, version: str, **headers: str) -> object:
    """Return the results of an ACK with these headers, where MESSAGE stands for the message id."""
    filled(broker, b"1", b"2")
    client = broker.client(version)
    client.subscribe("/queue/a", id="s", ack="client", prefetch_count="1")
    [message] = client.take("MESSAGE")
    name = message.headers["message-id"]
    own = {key.replace("_", "-"): value.replace("MESSAGE", name) for key, value in headers.items()}
    lines = "".join(f"{key}:{value}\n" for key, value in own.items())
    client.write(f"ACK\nreceipt:r\n{lines}\n\0".encode())
    return "ack" in message.headers, sorted(str(each) for each in heard(client))


@shows("acks-by-subscription", on=(False, ["RECEIPT"]), off=(False, ["MESSAGE", "RECEIPT"]))
def ack_on_1_0(broker: MemoryBroker) -> object:
    return acked(broker, "1.0", message_id="MESSAGE")


@shows("acks-by-subscription", on=(False, ["MESSAGE", "RECEIPT"]), off=(True, ["ERROR", "end"]))
def ack_on_1_2(broker: MemoryBroker) -> object:
    return acked(broker, "1.2", id="s", message_id="MESSAGE")


@shows("acks-by-subscription", on=["RECEIPT"], off=["ERROR", "end"])
def ack_of_nothing(broker: MemoryBroker) -> object:
    client = broker.client("1.1")
    client.take()
    client.send("ACK", {"message-id": "nonsense", "subscription": "s", "receipt": "r"})
    return heard(client)


@shows("acks-by-subscription", on=["ERROR", "end"], off=["ERROR", "end", "other words"])
def ack_of_another_message(broker: MemoryBroker) -> object:
    client = filled(broker, b"x")
    client.subscribe("/queue/a", id="s", ack="client")
    client.take()
    client.send("ACK", {"message-id": "nonsense", "subscription": "s"})
    told = heard(client)
    assert client.error is not None
    is_its_own = "no attribute" in client.error.headers["message"]
    return told if is_its_own else [*told, "other words"]


BOTH = "subscriptions-by-id-and-destination"


@shows(BOTH, on=(["RECEIPT", "RECEIPT"], [b"1", b"2"], [b"3"]), off=(["ERROR", "end"], [], []))
def one_id_for_two(broker: MemoryBroker) -> object:
    client, other = broker.client("1.1"), broker.client()
    client.take()
    client.subscribe("/topic/a")
    client.subscribe("/topic/b", receipt="2")
    client.write(b"SUBSCRIBE\ndestination:/topic/b\nid:0\nreceipt:3\n\n\0")
    told = heard(client)
    other.publish("/topic/a", b"1")
    other.publish("/topic/b", b"2")
    before = client.bodies()
    client.send("UNSUBSCRIBE", id="0", destination="/topic/b")
    other.publish("/topic/a", b"3")
    other.publish("/topic/b", b"4")
    return told, before, client.bodies()


@shows(BOTH, on=["RECEIPT"], off=["ERROR", "end"])
def unsubscribe_of_nothing(broker: MemoryBroker) -> object:
    client = broker.client("1.1")
    client.take()
    client.send("UNSUBSCRIBE", id="0", destination="/topic/a", receipt="r")
    return heard(client)


@shows(BOTH, on=["ERROR", "end"], off=["RECEIPT"])
def unsubscribe_by_id(broker: MemoryBroker) -> object:
    client = broker.client("1.1")
    client.subscribe("/topic/a")
    client.take()
    client.send("UNSUBSCRIBE", id="0", receipt="r")
    return heard(client)


@shows(BOTH, on="0", off=None)
def subscription_on_1_0(broker: MemoryBroker) -> object:
    client = broker.client("1.0")
    client.subscribe("/topic/a", id=None)
    client.publish("/topic/a", b"x")
    return client.take("MESSAGE")[0].headers.get("subscription")


@shows("requeued-last", on=[b"2", b"3", b"1"], off=[b"1", b"2", b"3"])
def requeued(broker: MemoryBroker) -> object:
    filled(broker, b"1", b"2", b"3")
    client = broker.client()
    client.subscribe("/queue/a", ack="client", prefetch_count="1")
    client.close()
    return left(broker)


@shows("message-id-of-client", on="mine", off="another")
def message_id(broker: MemoryBroker) -> object:
    client = broker.client()
    client.subscribe("/queue/a")
    client.publish("/queue/a", b"x", message_id="mine")
    name = client.take("MESSAGE")[0].headers["message-id"]
    return name if name == "mine" else "another"


@shows("message-before-receipt", on=["MESSAGE", "RECEIPT"], off=["RECEIPT", "MESSAGE"])
def message_and_receipt(broker: MemoryBroker) -> object:
    client = filled(broker, b"x")
    client.subscribe("/queue/a", receipt="r")
    return heard(client)


@shows("receipt-twice", on=[["s", "a"], ["s", "a", "c"]], off=[["s", "a"], ["c"]])
def receipts(broker: MemoryBroker) -> object:
    client = filled(broker, b"x")
    client.subscribe("/queue/a", ack="client")
    [message] = client.take("MESSAGE")
    client.send("BEGIN", transaction="t")
    client.publish("/topic/a", transaction="t", receipt="s")
    client.ack(message, transaction="t", receipt="a")
    outcome = [[each.headers["receipt-id"] for each in client.take("RECEIPT")]]
    client.send("COMMIT", transaction="t", receipt="c")
    return [*outcome, [each.headers["receipt-id"] for each in client.take("RECEIPT")]]


@shows("content-length-always", on=["0", "0", "1"], off=[None, None, "1"])
def content_length(broker: MemoryBroker) -> object:
    client = broker.client()
    client.send("BEGIN", transaction="t", receipt="r")
    client.subscribe("/topic/a")
    client.publish("/topic/a", b"x")
    return [each.headers.get("content-length") for each in client.take()]


@shows(
    "heart-beat-least-100ms",
    on=["700,700", "500,2000", "1000,100", "100,100", None],
    off=["1000,1000", "1000,1000", "1000,1000", "1000,1000", "1000,1000"],
)
def heart_beats(broker: MemoryBroker) -> object:
    outcome = []
    for value in ("500,700", "2000,500", "0,1000", "0,0", None):
        more = {} if value is None else {"heart_beat": value}
        outcome.append(broker.client("1.1", **more).connected.get("heart-beat"))
    return outcome


@shows("heart-beat-least-100ms", on=(5, False), off=(0, False))
def beats_that_nobody_asked_for(broker: MemoryBroker) -> object:
    client = broker.client("1.1", heart_beat="0,0")
    before = client.beats
    for _ in range(5):
        broker.clock.advance(0.061)
    return client.beats - before, client.eof


@shows("no-version-on-1.0", on=None, off="1.0")
def version(broker: MemoryBroker) -> object:
    return broker.client("1.0").connected.get("version")


@shows(
    "host-is-fqdn",
    on=[["ERROR", "end"], ["ERROR", "end"], ["CONNECTED"], ["CONNECTED"]],
    off=[["CONNECTED"]] * 4,
)
def hosts(broker: MemoryBroker) -> object:
    outcome = []
    for versions, host in (
        ("1.2", {}),
        ("1.1,1.2", {"host": "elsewhere"}),
        ("1.1", {"host": "elsewhere"}),
        ("1.2", {"host": getfqdn()}),
    ):
        client = broker.connect()
        client.send("CONNECT", {"accept-version": versions, **host})
        outcome.append(heard(client))
    return outcome


@shows("accept-version-without-spaces", on=[["ERROR", "end"]] * 2, off=[["CONNECTED"]] * 2)
def versions(broker: MemoryBroker) -> object:
    outcome = []
    for frame in (
        Frame("CONNECT", {"accept-version": "1.0, 1.1", "host": "memory"}),
        Frame("STOMP", {"host": "memory"}),
    ):
        client = broker.connect()
        client.send(frame.command, frame.headers)
        outcome.append(heard(client))
    return outcome


@shows(
    "coilmq-destinations",
    on=[["a", "a"], ["/b/c", "/b/c"], ["/queue/d"], ["/topic/*", "/topic/*"]],
    off=["ERROR", "ERROR", ["/queue/d"], []],
)
def destinations(broker: MemoryBroker) -> object:
    outcome: list[object] = []
    for name in ("a", "/b/c", "/queue/d", "/topic/*"):
        client, other = broker.client(), broker.client()
        for number in ("1", "2"):
            client.subscribe(name, id=number)
        if client.error is not None:
            outcome.append("ERROR")
            continue
        other.publish(name, b"x")
        told = [each.headers["destination"] for each in client.take("MESSAGE")]
        outcome.append(told)
    return outcome


def written(broker: MemoryBroker, *writes: bytes) -> list[object]:
    """Return the answers to bytes on 1.1."""
    client = broker.client("1.1")
    client.take()
    for octets in writes:
        client.write(octets)
    return heard(client)


SEND = b"SEND\ndestination:/topic/a\nreceipt:r\n"


@shows("eol-wedges", on=[["RECEIPT"], []], off=[["RECEIPT", "RECEIPT"], ["RECEIPT"]])
def end_of_line(broker: MemoryBroker) -> object:
    frame = SEND + b"\nx\0"
    return [written(broker, frame + b"\n", frame), written(broker, b"\n", frame)]


@shows("split-frame-closes", on=[["ERROR", "end"]] * 3 + [["RECEIPT"]] * 2, off=[["RECEIPT"]] * 5)
def split_frames(broker: MemoryBroker) -> object:
    rest = b"content-length:2\n\nxy\0"
    return [
        written(broker, SEND, b"\nx\0"),
        written(broker, SEND + b"\nx", b"\0"),
        written(broker, SEND + b"\n" + b"x" * 5000 + b"\0"),
        written(broker, SEND + rest[:-2], rest[-2:]),
        written(broker, SEND + rest[:17], rest[17:]),
    ]


@shows("content-length-not-checked", on=["RECEIPT"], off=["ERROR", "end"])
def octet_behind_the_body(broker: MemoryBroker) -> object:
    return written(broker, SEND + b"content-length:1\n\nxy")


@shows("second-colon-closes", on=["ERROR", "end"], off=["RECEIPT"])
def colons(broker: MemoryBroker) -> object:
    return written(broker, SEND + b"time:12:30\n\nx\0")


def passed_on(broker: MemoryBroker, lines: bytes) -> dict[str, str]:
    """Return the headers that a subscriber receives for these header lines."""
    client, other = broker.client("1.1"), broker.client("1.1")
    other.subscribe("/topic/a")
    client.write(b"SEND\ndestination:/topic/a\n" + lines + b"\nx\n\r\ny\0")
    known = ("destination", "subscription", "message-id", "content-length")
    [message] = other.take("MESSAGE")
    # The head ends at the first blank line.
    assert message.body == b"x\n\r\ny"
    return {name: value for name, value in message.headers.items() if name not in known}


@shows("lines-trimmed", on={"a": " b", "c": "d"}, off={" a": " b ", "c": "d"})
def padding(broker: MemoryBroker) -> object:
    return passed_on(broker, b" a: b \nc:d\n")


@shows("header-last-wins", on={"a": "2"}, off={"a": "1"})
def repeated_header(broker: MemoryBroker) -> object:
    return passed_on(broker, b"a:1\na:2\n")


@shows("no-escapes", on=b"note:a\\cb\\t", off=b"")
def escapes(broker: MemoryBroker) -> object:
    client, other = broker.client("1.1"), broker.client("1.1")
    other.subscribe("/topic/a")
    client.write(b"SEND\ndestination:/topic/a\nnote:a\\cb\\t\n\nx\0")
    lines = other.transport.take().split(b"\n")
    return next((line for line in lines if line.startswith(b"note:")), b"")


@shows(
    "early-frame-closes",
    given=("error-stays-open", "failed-connect-stays-open"),
    on=[["ERROR", "end"], ["ERROR", "end"]],
    off=[["ERROR"], ["ERROR", "ERROR"]],
)
def early_frames(broker: MemoryBroker) -> object:
    first, second = broker.connect(), broker.connect()
    first.send("SEND", destination="/queue/a")
    second.send("CONNECT", {"accept-version": "1.1", "host": "memory", "heart-beat": "a,b"})
    second.send("SEND", destination="/queue/a")
    return [heard(first), heard(second)]
