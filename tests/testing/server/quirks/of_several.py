"""Rules that several profiles share."""

from __future__ import annotations

from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.testing.server.quirks.talks import heard, shows


def connect(broker: MemoryBroker, **headers: str) -> MemoryClient:
    """Return a client that has sent CONNECT."""
    client = broker.connect()
    client.send("CONNECT", {"host": "memory"}, **headers)
    return client


@shows("error-stays-open", on=["ERROR", "RECEIPT"], off=["ERROR", "end"])
def error(broker: MemoryBroker) -> object:
    client = broker.client()
    client.take()
    client.send("COMMIT", transaction="unknown")
    client.send("BEGIN", transaction="t", receipt="r")
    return heard(client)


@shows("failed-connect-stays-open", on=["ERROR", "CONNECTED"], off=["ERROR", "end"])
def failed_connect(broker: MemoryBroker) -> object:
    client = connect(broker, accept_version="1.1", heart_beat="a,b")
    client.send("CONNECT", accept_version="1.1", host="memory")
    return heard(client)


@shows("malformed-closes-silently", on=["end"], off=["ERROR", "end"])
def malformed(broker: MemoryBroker) -> object:
    client = broker.client()
    client.take()
    client.write(b"SEND\nnothing\n\n\0")
    return heard(client)


@shows("timeouts-close-silently", on=["end"], off=["ERROR", "end"])
def timeout(broker: MemoryBroker) -> object:
    client = broker.connect()
    broker.clock.advance(10)
    return heard(client)


@shows("silent-client-two-checks", on=[False, True], off=[True, True])
def silence(broker: MemoryBroker) -> object:
    client = broker.client("1.1", heart_beat="1000,0")
    ends = []
    for seconds in (2.5, 0.5):
        broker.clock.advance(seconds)
        ends.append(client.eof)
    return ends


@shows("silent-client-two-checks", on=[False, True], off=[True, True])
def silence_after_beats(broker: MemoryBroker) -> object:
    """The last byte arrives at 3.5 s; the checks at 5 s and at 6 s find nothing new."""
    client = broker.client("1.1", heart_beat="1000,0")
    for _ in range(7):
        broker.clock.advance(0.5)
        client.write(b"\n")
    ends = []
    for seconds in (2.4, 0.1):
        broker.clock.advance(seconds)
        ends.append(client.eof)
    return ends


@shows("error-without-receipt-id", on=[("ERROR", None), "end"], off=[("ERROR", "r"), "end"])
def error_for_a_receipt(broker: MemoryBroker) -> object:
    client = broker.client()
    client.take()
    client.send("COMMIT", transaction="unknown", receipt="r")
    return heard(client, "receipt-id")


@shows("spaces-hide-versions", on="1.0", off="1.1")
def spaces(broker: MemoryBroker) -> object:
    return connect(broker, accept_version="1.0, 1.1").version


@shows(
    "version-error-without-versions",
    on=[("ERROR", None), "end"],
    off=[("ERROR", "1.0,1.1,1.2"), "end"],
)
def no_common_version(broker: MemoryBroker) -> object:
    return heard(connect(broker, accept_version="9.9"), "version")


@shows("second-connect-answered", on=["CONNECTED"], off=["ERROR", "end"])
def second_connect(broker: MemoryBroker) -> object:
    client = broker.client()
    client.take()
    client.send("CONNECT", accept_version="1.2", host="memory")
    return heard(client)


@shows("unescapes-connect", on=["ERROR", "end"], off=["CONNECTED"])
def undefined_escape_in_connect(broker: MemoryBroker) -> object:
    return heard(connect(broker, accept_version="1.2", note=r"a\tb"))


def noted(broker: MemoryBroker, note: str) -> object:
    """Return the value of a header as received on 1.0."""
    client = broker.client("1.0")
    client.subscribe("/topic/a")
    client.publish("/topic/a", note=note)
    return client.take("MESSAGE")[0].headers["note"]


@shows("unescapes-1.0", on="a:b", off=r"a\cb")
def escape_on_1_0(broker: MemoryBroker) -> object:
    return noted(broker, r"a\cb")


@shows("escapes-1.0", on=r"a\\b", off=r"a\b")
def backslash_on_1_0(broker: MemoryBroker) -> object:
    return noted(broker, r"a\b")


@shows("crlf-anywhere", on=["RECEIPT"], off=["ERROR", "end"])
def line_ends(broker: MemoryBroker) -> object:
    client = broker.client("1.1")
    client.take()
    client.write(b"SEND\r\ndestination:/topic/a\r\nreceipt:r\r\n\r\n\0")
    return heard(client)


def strange_mode(broker: MemoryBroker) -> object:
    """Return the answer to an invalid ack mode, and the deliveries of a message."""
    client = broker.client()
    client.take()
    client.subscribe("/queue/a", ack="sometimes", receipt="r")
    client.publish("/queue/a", b"x")
    told = heard(client)
    client.close()
    other = broker.client()
    other.subscribe("/queue/a")
    return told, other.bodies()


@shows("unknown-ack-mode-is-auto", on=(["RECEIPT", "MESSAGE"], []), off=(["ERROR", "end"], []))
def unknown_mode(broker: MemoryBroker) -> object:
    return strange_mode(broker)


@shows(
    "unknown-ack-mode-is-client", on=(["RECEIPT", "MESSAGE"], [b"x"]), off=(["ERROR", "end"], [])
)
def another_unknown_mode(broker: MemoryBroker) -> object:
    return strange_mode(broker)


@shows("selector-ignored", on=[b"x"], off=[])
def selector(broker: MemoryBroker) -> object:
    client = broker.client()
    client.subscribe("/queue/a", selector="colour = 'red'")
    client.publish("/queue/a", b"x", colour="blue")
    return client.bodies()


@shows("browser-ignored", on=([b"x"], []), off=([b"x", b""], [b"x"]))
def browser(broker: MemoryBroker) -> object:
    client, other = broker.client(), broker.client()
    client.publish("/queue/a", b"x")
    client.subscribe("/queue/a", browser="true")
    other.subscribe("/queue/a")
    return client.bodies(), other.bodies()


@shows("unsubscribe-gives-back", on=([("MESSAGE", "true")], "ERROR"), off=([], "RECEIPT"))
def unsubscribe(broker: MemoryBroker) -> object:
    first, second = broker.client(), broker.client()
    first.subscribe("/queue/a", ack="client")
    second.publish("/queue/a", b"x")
    [message] = first.take("MESSAGE")
    second.take()
    second.subscribe("/queue/a")
    first.send("UNSUBSCRIBE", id="0")
    first.ack(message, receipt="r")
    return heard(second, "redelivered"), first.take()[0].command


def flags(broker: MemoryBroker) -> object:
    """Return the redelivered headers of a first and a second delivery."""
    found: list[str | None] = []
    for _ in range(2):
        client = broker.client()
        client.subscribe("/queue/a", ack="client")
        if not found:
            client.publish("/queue/a", b"x")
        found += [each.headers.get("redelivered") for each in client.take("MESSAGE")]
        client.close()
    return found


@shows("redelivered-always", on=["false", "true"], off=[None, "true"])
def redelivered(broker: MemoryBroker) -> object:
    return flags(broker)


@shows("redelivered-never", on=[None, None], off=[None, "true"])
def not_redelivered(broker: MemoryBroker) -> object:
    return flags(broker)


def echoed(broker: MemoryBroker) -> object:
    """Return the headers of a SEND that its MESSAGE repeats."""
    client = broker.client()
    client.subscribe("/queue/a")
    client.send("BEGIN", transaction="t")
    client.publish("/queue/a", b"x", transaction="t", receipt="r", foo="bar")
    client.send("COMMIT", transaction="t")
    headers = client.take("MESSAGE")[0].headers
    return [headers.get(name) for name in ("receipt", "transaction", "foo")]


@shows("receipt-header-echoed", on=["r", None, "bar"], off=[None, None, "bar"])
def receipt_header(broker: MemoryBroker) -> object:
    return echoed(broker)


@shows("transaction-header-echoed", on=[None, "t", "bar"], off=[None, None, "bar"])
def transaction_header(broker: MemoryBroker) -> object:
    return echoed(broker)


@shows("begin-restarts", on=(["RECEIPT"], [b"2"]), off=(["ERROR", "end"], []))
def begin_twice(broker: MemoryBroker) -> object:
    client, other = broker.client(), broker.client()
    other.subscribe("/queue/a")
    client.take()
    client.send("BEGIN", transaction="t")
    client.publish("/queue/a", b"1", transaction="t")
    client.send("BEGIN", transaction="t", receipt="r")
    if not client.eof:
        client.publish("/queue/a", b"2", transaction="t")
        client.send("COMMIT", transaction="t")
    return heard(client), other.bodies()


@shows("frames-end-with-nul", on=(1, 1), off=(2, 1))
def ends(broker: MemoryBroker) -> object:
    client = broker.client()
    before = client.octets
    client.send("BEGIN", transaction="t", receipt="r")
    return len(before) - before.index(b"\0"), client.octets.count(b"receipt-id:r\n\n\0")


@shows("disconnect-stays-open", on=(["RECEIPT"], ["end"]), off=(["RECEIPT", "end"], ["end"]))
def disconnect(broker: MemoryBroker) -> object:
    client = broker.client()
    client.take()
    client.send("DISCONNECT", receipt="r")
    first = heard(client)
    client.write(b"BEGIN\ntransaction:t\nreceipt:late\n\n\0")
    return first, heard(client)
