"""Rules of Spring's simple broker."""

from __future__ import annotations

from stompkit.testing.memory import MemoryBroker
from tests.testing.server.quirks.talks import heard, shows


@shows("everything-is-a-topic", on=[["/queue/a"], ["/queue/a"]], off=[["/queue/a"], []])
def queue(broker: MemoryBroker) -> object:
    sender, first, second = (broker.client() for _ in range(3))
    sender.publish("/queue/a", b"lost")
    for client in (first, second):
        client.subscribe("/queue/a")
        client.take()
    sender.publish("/queue/a", b"x")
    return [
        [each.headers["destination"] for each in client.take("MESSAGE")]
        for client in (first, second)
    ]


@shows("everything-is-a-topic", on=[b"x"], off="ERROR")
def any_name(broker: MemoryBroker) -> object:
    client = broker.client()
    client.subscribe("/app/ü*")
    if client.error:
        return "ERROR"
    client.publish("/app/ü*", b"x")
    return client.bodies()


@shows("acks-ignored", on=([False, False], ["RECEIPT"]), off=([True, True], ["ERROR", "end"]))
def acks(broker: MemoryBroker) -> object:
    client = broker.client()
    client.subscribe("/topic/a", ack="client", prefetch_count="2")
    for _ in range(2):
        client.publish("/topic/a", b"x")
    messages = client.take("MESSAGE")
    client.send("NACK", id="nonsense", receipt="r")
    return ["ack" in each.headers for each in messages], heard(client)


@shows("no-receipts", on=["RECEIPT", "end"], off=["RECEIPT", "RECEIPT", "end"])
def receipts(broker: MemoryBroker) -> object:
    client = broker.client()
    client.take()
    client.publish("/topic/a", receipt="1")
    client.send("DISCONNECT", receipt="2")
    return heard(client)


@shows("no-transactions", on=[[b"x"], [], ["RECEIPT"]], off=[[], [], ["RECEIPT"]])
def transactions(broker: MemoryBroker) -> object:
    client, other = broker.client(), broker.client()
    client.take()
    other.subscribe("/topic/a")
    client.send("BEGIN", transaction="t")
    client.publish("/topic/a", b"x", transaction="t")
    before = other.bodies()
    client.send("ABORT", transaction="t", receipt="r")
    return [before, other.bodies(), heard(client)]


@shows("no-heart-beats", on=("0,0", 0, False), off=("1000,1000", 1, True))
def heart_beats(broker: MemoryBroker) -> object:
    client = broker.client("1.1", heart_beat="1000,1000")
    before = client.beats
    broker.clock.advance(1)
    beats = client.beats - before
    broker.clock.advance(9)
    return client.connected["heart-beat"], beats, client.eof


@shows(
    "version-needed",
    on=[[], [], ["CONNECTED"]],
    off=[["CONNECTED"], ["ERROR", "end"], ["CONNECTED"]],
)
def versions(broker: MemoryBroker) -> object:
    outcome = []
    for headers in ({}, {"accept-version": "9.9"}, {"accept-version": "1.1"}):
        client = broker.connect()
        client.send("CONNECT", {"host": "memory", **headers})
        outcome.append(heard(client))
    return outcome


@shows(
    "connected-without-session",
    on=["heart-beat", "version"],
    off=["heart-beat", "server", "session", "version"],
)
def connected(broker: MemoryBroker) -> object:
    return sorted(broker.client("1.1").connected)


@shows("missing-headers-ignored", on=[["RECEIPT"]] * 4, off=[["ERROR", "end"]] * 4)
def missing_headers(broker: MemoryBroker) -> object:
    outcome = []
    for frame in (
        b"SEND\nreceipt:r\n\n\0",
        b"SUBSCRIBE\ndestination:/topic/a\nreceipt:r\n\n\0",
        b"SUBSCRIBE\nid:0\nreceipt:r\n\n\0",
        b"UNSUBSCRIBE\nreceipt:r\n\n\0",
    ):
        client = broker.client()
        client.take()
        client.write(frame)
        outcome.append(heard(client))
    return outcome


@shows("duplicate-id-ignored", on=(["RECEIPT"], [b"1"]), off=(["ERROR", "end"], []))
def one_id_for_two(broker: MemoryBroker) -> object:
    client, other = broker.client(), broker.client()
    client.subscribe("/topic/a")
    client.take()
    client.subscribe("/topic/b", receipt="r")
    told = heard(client)
    other.publish("/topic/a", b"1")
    other.publish("/topic/b", b"2")
    return told, client.bodies()


@shows("unknown-unsubscribe-ignored", on=["RECEIPT"], off=["ERROR", "end"])
def unsubscribe_of_nothing(broker: MemoryBroker) -> object:
    client = broker.client()
    client.take()
    client.send("UNSUBSCRIBE", id="0", receipt="r")
    return heard(client)


@shows(
    "disconnect-answered-by-error",
    on=[[("ERROR", "Session closed."), "end"], [("RECEIPT", None), "end"]],
    off=[["end"], [("RECEIPT", None), "end"]],
)
def disconnect(broker: MemoryBroker) -> object:
    outcome = []
    for headers in ({}, {"receipt": "r"}):
        client = broker.client()
        client.take()
        client.send("DISCONNECT", headers)
        outcome.append(heard(client, "message"))
    return outcome


@shows("error-without-body", on=(["message"], b""), off=(["content-type", "message"], b"text"))
def error(broker: MemoryBroker) -> object:
    client = broker.client()
    client.send("COMMIT", transaction="unknown")
    assert client.error is not None
    names = {"message", "content-type"} & client.error.headers.keys()
    return sorted(names), client.error.body and b"text"
