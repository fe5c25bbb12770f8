"""Scripts about sessions: their start and end, receipts, errors, transactions, bytes."""

from __future__ import annotations

from typing import Literal

from stompkit.frames import VERSIONS, Frame
from tests.integration.quirks.peer import Peer, Shown, Site, shown
from tests.integration.quirks.scripts import script

#: Time in seconds without output after which a broker counts as silent.
DEAF_S = 1.5
#: Timeout of an expected answer in seconds, and of one that takes up to a minute.
PATIENCE_S = 10.0
MINUTE_S = 100.0


def told(peer: Peer, *headers: str) -> object:
    """Return the frames that a peer has received, and the state of the connection."""
    frames, fate = peer.fate()
    return [shown(frame, *headers) for frame in frames], fate


def end(peer: Peer) -> list[Shown]:
    """Return the frames up to the end of the connection."""
    frames: list[Shown] = []
    while frame := peer.frame():
        frames.append(shown(frame))
    return frames


# CONNECT.


def answer(site: Site, version: Literal["1.0", "1.1", "1.2"] | None, **headers: str) -> object:
    """Return the answer to CONNECT, and to a second CONNECT after an ERROR."""
    with site.raw() as peer:
        peer.connect(version, **headers)
        answers = [peer.frame()]
        if answers[0] is not None and answers[0].command == "ERROR":
            peer.connect("1.1")
            answers.append(peer.frame())
        return [
            "closed" if each is None else shown(each, "version", "heart-beat") for each in answers
        ]


@script(
    "heart-beat-mirrored",
    "heart-beat-whole-seconds",
    "heart-beat-least-100ms",
    "heart-beat-least-500ms",
    "no-version-on-1.0",
)
def heart_beats_of_connected(site: Site) -> object:
    offers = ("0,0", "500,700", "1500,2500", "2000,50", "0,1000", "1000,0")
    outcome = [answer(site, "1.1", heart_beat=offer) for offer in offers]
    return [*outcome, answer(site, "1.1"), answer(site, "1.0", heart_beat="500,700")]


@script("failed-connect-stays-open")
def malformed_heart_beat(site: Site) -> object:
    return answer(site, "1.1", heart_beat="a,b")


@script("host-is-vhost", "host-is-fqdn", "failed-connect-stays-open")
def strange_host(site: Site) -> object:
    return answer(site, "1.1", host="elsewhere"), answer(site, "1.2", host="elsewhere")


@script("host-is-fqdn", "early-frame-closes", brokers="coilmq")
def no_host(site: Site) -> object:
    with site.raw() as peer:
        peer.send("CONNECT", accept_version="1.1,1.2")
        return told(peer)


@script(
    "error-with-versions",
    "version-error-without-versions",
    "version-error-stays-open",
    "spaces-hide-versions",
    "accept-version-without-spaces",
    "stomp-needs-1.1",
)
def versions(site: Site) -> object:
    words = ("1.0, 1.1", "1.2,1.0", "9.9")
    outcome: list[object] = [answer(site, None, accept_version=each) for each in words]
    with site.raw() as peer:
        host = site.broker.vhost
        login = site.broker.login or "guest"
        peer.send("STOMP", host=host, login=login, passcode=site.broker.passcode or "guest")
        frame = peer.frame()
        assert frame is not None
        return [*outcome, shown(frame, "version")]


@script("second-connect-answered", "second-connect-closes", "error-stays-open")
def second_connect(site: Site) -> object:
    with site.peer() as peer:
        peer.connect("1.1")
        return told(peer, "version")


def heard(peer: Peer, patience_s: float = DEAF_S) -> str:
    """Return the command of the next frame, or a word for the end or for silence."""
    try:
        frame = peer.frame(patience_s)
    except TimeoutError:
        return "silence"
    return "closed" if frame is None else frame.command


@script("error-stays-open", "early-frame-closes", "early-frame-wedges")
def first_frame(site: Site) -> object:
    patience_s = DEAF_S if site.name == "artemis" else PATIENCE_S
    with site.raw() as peer:
        peer.send("SUBSCRIBE", destination=site.queue(), id="s")
        first = heard(peer, patience_s)
        peer.connect("1.1")
        return first, heard(peer, patience_s)


@script("unescapes-connect", "malformed-closes-silently", "undefined-escape-kept", "no-escapes")
def undefined_escape_in_connect(site: Site) -> object:
    with site.raw() as peer:
        peer.connect("1.1", client_note="a\\tb")
        frame = peer.frame()
        return frame and frame.command


@script("timeouts-close-silently", "silent-client-two-checks", brokers="activemq artemis rabbitmq")
def silent_client(site: Site) -> object:
    with site.peer("1.1", heart_beat="1000,0") as peer:
        return end(peer)


@script("silence-of-60s", brokers="artemis")
def silent_for_a_minute(site: Site) -> object:
    with site.peer("1.0") as peer, site.peer("1.1") as other:
        return [heard(each, MINUTE_S) for each in (peer, peer, other, other)]


# DISCONNECT.


@script("disconnect-stays-open")
def disconnect(site: Site) -> object:
    with site.peer() as peer:
        answers = [shown(frame) for frame in peer.call("DISCONNECT")]
        peer.send("SEND", b"late", destination=site.queue(), receipt="late")
        # ActiveMQ may close so late that it sends an ERROR for later frames.
        late = [frame for frame in end(peer) if frame[0] == "RECEIPT" or site.name != "activemq"]
        return answers, late


@script("disconnect-stays-open", brokers="coilmq")
def disconnect_without_receipt(site: Site) -> object:
    with site.peer() as peer:
        peer.send("DISCONNECT")
        peer.send("SEND", b"late", destination=site.queue(), receipt="late")
        return end(peer)


# Errors.


@script(
    "error-stays-open",
    "error-without-receipt-id",
    "error-stack-trace",
    "unknown-transaction-begins",
)
def errors(site: Site) -> object:
    outcome: list[object] = []
    with site.peer() as peer:
        for command, headers in (
            ("SEND", {}),
            ("COMMIT", {"transaction": "unknown"}),
            ("ABORT", {"transaction": "unknown"}),
            ("BEGIN", {}),
            ("SEND", {"destination": site.queue(), "transaction": "unknown"}),
            ("MESSAGE", {"destination": site.queue()}),
        ):
            if command == "MESSAGE" and site.name == "activemq":
                continue
            frames = peer.call(command, **headers)
            outcome += [(frame.command, "receipt-id" in frame.headers) for frame in frames]
            outcome.append(frames[-1].body.startswith(b"org.apache.activemq"))
        return outcome, told(peer)


@script("error-stays-open", "error-stays-open-before-1.2", brokers="activemq artemis rabbitmq")
def errors_by_version(site: Site) -> object:
    """Errors of the newer versions, which other scripts do not use."""
    outcome: list[object] = []
    for version in VERSIONS:
        for command, headers in (("SEND", {}), ("UNSUBSCRIBE", {"id": "nothing"})):
            with site.peer(version) as peer:
                answers = [frame.command for frame in peer.call(command, **headers)]
                outcome.append((answers, peer.fate()[1]))
    return outcome


@script("malformed-closes-silently", "bad-content-length-wedges")
def bad_content_length(site: Site) -> object:
    with site.peer() as peer:
        peer.write(b"SEND\ndestination:/topic/x\ncontent-length:x\n\n\0")
        frames, fate = peer.fate(DEAF_S if site.name == "artemis" else PATIENCE_S)
        return [shown(frame) for frame in frames], fate


# Subscriptions.


def both(site: Site, first: str, second: str) -> object:
    """Return the deliveries of two subscriptions with one id, before and after UNSUBSCRIBE."""
    with site.peer() as peer:
        frames = peer.call("SUBSCRIBE", destination=first, id="s")
        frames += peer.call("SUBSCRIBE", destination=second, id="s")
        outcome = [(shown(frame), "receipt-id" in frame.headers) for frame in frames]
        frames, fate = peer.fate()
        if fate != "open":
            return outcome, [shown(frame) for frame in frames], fate
        for destination in (first, second):
            frames += peer.call("SEND", b"1", destination=destination)
        before = sum(frame.body == b"1" for frame in [*frames, *peer.rest()])
        peer.call("UNSUBSCRIBE", id="s", destination=second)
        after = []
        for destination in (first, second):
            answers = peer.call("SEND", b"2", destination=destination)
            after.append(sum(frame.body == b"2" for frame in [*answers, *peer.rest()]))
        again = peer.call("UNSUBSCRIBE", id="s", destination=second)
        return outcome, before, after, [frame.command for frame in again]


@script(
    "duplicate-id-closes",
    "duplicate-id-accepted",
    "subscriptions-by-id-and-destination",
    "subscribe-error-without-receipt-id",
)
def one_id_for_two(site: Site) -> object:
    return both(site, site.topic(), site.topic())


@script(
    "duplicate-id-closes",
    "duplicate-id-accepted",
    "subscriptions-by-id-and-destination",
    "subscribe-error-without-receipt-id",
)
def one_id_twice_for_one(site: Site) -> object:
    topic = site.topic()
    return both(site, topic, topic)


@script(
    "id-not-needed", "subscriptions-by-id-and-destination", "subscription-named-after-destination"
)
def no_id(site: Site) -> object:
    outcome: list[object] = []
    for version in ("1.0", "1.1"):
        topic = site.topic()
        name = topic.rpartition("/")[2]
        with site.peer("1.1" if version == "1.1" else "1.0") as peer:
            frames = peer.call("SUBSCRIBE", destination=topic)
            frames += peer.call("SEND", b"x", destination=topic) + peer.rest()
            frames += peer.call("UNSUBSCRIBE", destination=topic)
            outcome += [
                (frame.command, frame.headers.get("subscription", "none").replace(name, "NAME"))
                for frame in frames
                if frame.command != "RECEIPT"
            ]
    return outcome


@script("subscriptions-by-id-and-destination", "error-stays-open")
def unsubscribe_of_nothing(site: Site) -> object:
    with site.peer() as peer:
        frames = peer.call("UNSUBSCRIBE", id="nothing")
        frames += peer.call("UNSUBSCRIBE", id="nothing", destination="/topic/nothing")
        return [frame.command for frame in frames]


@script("unknown-ack-mode-is-auto", "unknown-ack-mode-is-client", "client-individual-is-auto")
def ack_modes(site: Site) -> object:
    outcome = []
    for mode in ("client", "client-individual", "sometimes"):
        queue = site.queue()
        with site.peer() as peer:
            frames = peer.call("SUBSCRIBE", destination=queue, id="s", ack=mode)
            for body in (b"1", b"2"):
                frames += peer.call("SEND", body, destination=queue)
            frames += peer.rest()
        outcome.append([(each.command, each.body) for each in frames if each.command == "MESSAGE"])
        with site.peer() as peer:
            again = peer.call("SUBSCRIBE", destination=queue, id="s") + peer.rest()
            outcome.append([("again", frame.body) for frame in again if frame.body])
    return outcome


@script("ack-mode-of-connection")
def ack_mode_of_another_subscription(site: Site) -> object:
    outcome = []
    for first, second in (("client", "auto"), ("auto", "client")):
        queue, topic = site.queue(), site.topic()
        with site.peer() as peer:
            peer.call("SUBSCRIBE", destination=queue, id="1", ack=first)
            peer.call("SUBSCRIBE", destination=topic, id="2", ack=second)
            for body in (b"1", b"2"):
                peer.send("SEND", body, destination=queue)
                peer.send("SEND", body, destination=topic)
                outcome += sorted(frame.body for frame in peer.rest())
        with site.peer() as peer:
            again = peer.call("SUBSCRIBE", destination=queue, id="s") + peer.rest()
            outcome += [b"again " + frame.body for frame in again if frame.body]
    return outcome


# Receipts and transactions.


def receipts(frames: list[Frame]) -> list[str]:
    """Return the receipt ids of the frames."""
    return [frame.headers["receipt-id"] for frame in frames if frame.command == "RECEIPT"]


@script("receipt-order")
def order_of_receipts(site: Site) -> object:
    frames = [
        f"{command}\nreceipt:{command}-{number}\n{header}\n\n\0"
        for number in range(3)
        for command, header in (
            ("SEND", "destination:/topic/x"),
            ("BEGIN", f"transaction:{number}"),
        )
    ]
    with site.peer() as peer:
        peer.write("".join(frames).encode())
        return receipts(peer.rest())


@script("transaction-receipts-late", "receipt-twice")
def receipts_of_a_transaction(site: Site) -> object:
    outcome: list[object] = []
    for end in ("COMMIT", "ABORT"):
        with site.peer() as peer:
            peer.call("BEGIN", transaction="t")
            peer.send("SEND", b"x", destination="/topic/x", transaction="t", receipt="send")
            outcome.append(receipts(peer.rest()))
            peer.send(end, transaction="t", receipt="end")
            outcome.append(receipts(peer.rest()))
    return outcome


@script("begin-restarts", "error-stays-open")
def begin_twice(site: Site) -> object:
    queue = site.queue()
    with site.peer() as peer:
        peer.call("BEGIN", transaction="t")
        peer.send("SEND", b"1", destination=queue, transaction="t")
        second = peer.call("BEGIN", transaction="t")
        peer.send("SEND", b"2", destination=queue, transaction="t")
        peer.call("COMMIT", transaction="t")
        frames = peer.call("SUBSCRIBE", destination=queue, id="s") + peer.rest()
        return [frame.command for frame in second], [each.body for each in frames if each.body]


@script("unknown-transaction-begins", brokers="artemis")
def transaction_that_nobody_began(site: Site) -> object:
    queue = site.queue()
    with site.peer() as peer, site.peer() as other:
        other.call("SUBSCRIBE", destination=queue, id="s")
        answers = peer.call("SEND", b"1", destination=queue, transaction="t")
        before = [frame.body for frame in other.rest()]
        answers += peer.call("BEGIN", transaction="t")
        answers += peer.call("SEND", b"2", destination=queue, transaction="t")
        answers += peer.call("COMMIT", transaction="t")
        return [frame.command for frame in answers], before, [each.body for each in other.rest()]


# Bytes.


@script("frames-end-with-nul")
def octets_between_frames(site: Site) -> object:
    with site.peer() as peer:
        peer.call("BEGIN", transaction="1")
        peer.call("BEGIN", transaction="2")
        return peer.octets.count(b"\0\n"), peer.octets.count(b"\0R"), peer.octets.count(b"\0\nR")


@script("unescapes-1.0", "escapes-1.0", "no-escapes", "undefined-escape-kept")
def escapes(site: Site) -> object:
    outcome = []
    for version, value in (("1.0", r"C:\cnew \\x"), ("1.1", r"a\cb \\"), ("1.1", r"a\tb")):
        topic = site.topic()
        with site.peer("1.1" if version == "1.1" else "1.0") as peer:
            peer.call("SUBSCRIBE", destination=topic, id="s")
            value = value.replace("C:", "C") if site.name == "coilmq" else value
            peer.send("SEND", b"x", destination=topic, note=value)
            peer.rest()
            lines = [line for line in peer.octets.split(b"\n") if line.startswith(b"note:")]
            outcome.append((lines, peer.fate()[1]))
    return outcome


@script("crlf-anywhere", "lines-trimmed", brokers="rabbitmq coilmq")
def line_ends(site: Site) -> object:
    with site.peer() as peer:
        peer.write(b"SEND\r\ndestination:/topic/x\r\nreceipt:r\r\n\r\nx\0")
        return told(peer, "receipt-id")


@script("header-last-wins", "header-last-wins-before-1.2", "lines-trimmed")
def repeated_and_padded_headers(site: Site) -> object:
    topic = site.topic()
    with site.peer() as peer:
        peer.call("SUBSCRIBE", destination=topic, id="s")
        peer.write(f"SEND\ndestination:{topic}\na:first\na:second\nb:  x  \n\nx\0".encode())
        return shown(peer.message(), "a", "b")


@script("eol-wedges")
def end_of_line_between_frames(site: Site) -> object:
    outcome = []
    for octets in (b"\n", b"\r\n"):
        with site.peer("1.2" if site.name != "coilmq" else "1.1") as peer:
            peer.write(octets)
            outcome.append(peer.fate(DEAF_S)[1] if site.name == "coilmq" else peer.fate()[1])
    return outcome


@script("second-colon-closes", "malformed-closes-silently", brokers="rabbitmq coilmq")
def colons(site: Site) -> object:
    outcome = []
    for line in (b"a:b:c", b"nothing"):
        with site.peer() as peer:
            peer.write(b"SEND\ndestination:/topic/x\nreceipt:r\n" + line + b"\n\nx\0")
            outcome.append(told(peer, "receipt-id"))
    return outcome


@script(
    "content-length-not-checked", "malformed-closes-silently", brokers="activemq rabbitmq coilmq"
)
def octet_behind_the_body(site: Site) -> object:
    with site.peer() as peer:
        peer.write(b"SEND\ndestination:/topic/x\nreceipt:r\ncontent-length:2\n\nxyz\0")
        return told(peer)


@script("split-frame-closes", brokers="coilmq")
def split_frames(site: Site) -> object:
    """One write that is more than one read of CoilMQ."""
    head = b"SEND\ndestination:/topic/x\nreceipt:r\n"
    outcome = []
    for octets in (
        head + b"pad:" + b"x" * 5000 + b"\n\n\0",
        head + b"\n" + b"x" * 5000 + b"\0",
        head + b"content-length:5000\n\n" + b"x" * 5000 + b"\0",
    ):
        with site.peer() as peer:
            peer.write(octets)
            outcome.append(told(peer, "receipt-id"))
    return outcome
