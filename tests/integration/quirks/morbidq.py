"""Scripts for MorbidQ, which sends no receipts: its actions show in the delivered messages."""

from __future__ import annotations

from stompkit.frames import Frame
from tests.integration.quirks.peer import Fate, Peer, Site
from tests.integration.quirks.scripts import script

MORBIDQ = "morbidq"
#: Time in seconds without output after which a broker counts as silent.
DEAF_S = 1.0


def seen(frame: Frame, *names: str) -> object:
    """Return a frame without the names of this run in its headers."""
    headers = {key: value for key, value in frame.headers.items() if key != "session"}
    for number, name in enumerate(names):
        headers = {key: value.replace(name, f"NAME{number}") for key, value in headers.items()}
    return frame.command, headers, frame.body


def told(peer: Peer, *names: str) -> tuple[list[object], Fate]:
    """Return the frames that a peer has received, and the state of the connection."""
    frames, fate = peer.fate()
    return [seen(frame, *names) for frame in frames], fate


@script("Q1", brokers=MORBIDQ)
def connected(site: Site) -> object:
    outcome: list[object] = []
    sessions = []
    for version in ("1.0", "1.2"):
        with site.raw() as peer:
            peer.connect("1.2" if version == "1.2" else "1.0", heart_beat="10,10", receipt="r")
            frame = peer.frame()
            assert frame is not None
            sessions.append(int(frame.headers["session"]))
            outcome += [seen(frame), told(peer)]
    return outcome, sessions[1] - sessions[0]


@script("Q2", "Q3", brokers=MORBIDQ)
def commands(site: Site) -> object:
    outcome = {}
    for command in (
        *("ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "MESSAGE", "CONNECTED", "RECEIPT", "ERROR"),
        *("CONNECT", "STOMP", "send", "FOO", "", "SEND ", "DISCONNECT"),
    ):
        with site.peer("1.0") as peer:
            peer.send(command, b"x", destination="/queue/x", receipt="r", transaction="t")
            outcome[command] = told(peer)
    return outcome


@script("Q2", "Q3", brokers=MORBIDQ)
def first_frames(site: Site) -> object:
    outcome = {}
    for command in ("SEND", "SUBSCRIBE", "DISCONNECT", "ACK", "STOMP", "connect", "GET / HTTP/1.1"):
        with site.raw() as peer:
            peer.send(command, destination="/queue/x")
            outcome[command] = peer.fate(DEAF_S)[1]
    return outcome


@script("Q4", "Q5", "Q6", brokers=MORBIDQ)
def headers_of_messages(site: Site) -> object:
    queue = site.queue()
    with site.peer("1.0") as peer:
        peer.send("SUBSCRIBE", destination=queue, id="1", ack="client", selector="a = 'b'")
        for extra in ({"transaction": "t"}, {"message_id": "mine"}, {"a": "c", "receipt": "r"}):
            peer.write(
                f"SEND\ndestination:{queue}\n".encode()
                + "".join(
                    f"{key.replace('_', '-')}:{value}\n" for key, value in extra.items()
                ).encode()
                + b"\nbody\0"
            )
        peer.send("SEND", b"counted", destination=queue)
        return told(peer, queue)


@script("Q5", "Q7", brokers=MORBIDQ)
def nothing_is_given_back(site: Site) -> object:
    queue = site.queue()
    with site.peer("1.0") as peer:
        peer.send("SUBSCRIBE", destination=queue, ack="client")
        peer.send("SEND", b"1", destination=queue)
        first = told(peer, queue)
    with site.peer("1.0") as peer:
        peer.send("SUBSCRIBE", destination=queue)
        return first, told(peer, queue)


@script("Q7", brokers=MORBIDQ)
def queues_and_topics(site: Site) -> object:
    outcome = []
    for name in (site.queue(), site.topic(), site.queue().rpartition("/")[2]):
        with site.peer("1.0") as sender, site.peer("1.0") as first, site.peer("1.0") as second:
            for number in range(2):
                sender.send("SEND", b"early %d" % number, destination=name)
            sender.fate()
            for peer in (first, second, first):
                peer.send("SUBSCRIBE", destination=name)
                outcome.append(told(peer, name))
            for number in range(5):
                sender.send("SEND", b"%d" % number, destination=name)
            sender.fate()
            outcome += [told(peer, name) for peer in (first, second)]
            first.send("UNSUBSCRIBE", destination=name)
            first.fate()
            sender.send("SEND", b"last", destination=name)
            sender.fate()
            outcome += [told(peer, name) for peer in (first, second)]
    return outcome


@script("Q8", brokers=MORBIDQ)
def octets(site: Site) -> object:
    with site.raw() as peer:
        peer.connect("1.0")
        peer.frame()
        before = peer.octets
        peer.fate()
        return before.startswith(b"CONNECTED\nsession:"), before[-4:], peer.octets[-2:]


def bodies(site: Site, *writes: bytes) -> object:
    """Return the results of bytes in which QUEUE stands for a queue."""
    queue = site.queue()
    with site.peer("1.0") as peer:
        peer.send("SUBSCRIBE", destination=queue)
        peer.fate()
        for octets in writes:
            peer.write(octets.replace(b"QUEUE", queue.encode()))
        frames, fate = told(peer, queue)
        return frames, fate


@script("Q9", brokers=MORBIDQ)
def binary_bodies(site: Site) -> object:
    return [
        bodies(site, each)
        for each in (
            b"SEND\ndestination:QUEUE\ncontent-length:5\n\na\0b\0c\0",
            b"SEND\ncontent-length:5\ndestination:QUEUE\n\na\0b\0c\0",
            b"SEND\ncontent-length:5\ndestination:QUEUE\n\na\0b\0c\0\n",
            b"SEND\ndestination:QUEUE\n\na\0b\0",
            b"SEND\ncontent-length:2\ndestination:QUEUE\n\nhello\0",
            b"SEND\ncontent-length:0\ndestination:QUEUE\n\nhello\0",
            b"SEND\ncontent-length:5\ndestination:QUEUE\n\nh\xc3\xa9llo\0",
            b"SEND\ncontent-length: 5 \ndestination:QUEUE\n\nhello\0",
            b"SEND\ndestination:QUEUE\ncontent-length:x\nfoo:bar\n\nhello\0",
            b"SEND\ncontent-length:9\ndestination:QUEUE\n\nhello\0SEND\ndestination:QUEUE\n\nx\0",
        )
    ]


@script("Q10", brokers=MORBIDQ)
def header_lines(site: Site) -> object:
    return [
        bodies(site, each)
        for each in (
            b"SEND\ndestination:  QUEUE \nname :  a  \nempty:\n\nx\0",
            b"SEND\ndestination:QUEUE\na:first\na:second\n\nx\0",
            b"SEND\ndestination:QUEUE\nbadhdr\n\nx\0",
            b"SEND\ndestination:QUEUE\na:b:c\\n\\c\\\\\n\nx\0",
            b"SEND\r\ndestination:QUEUE\r\n\r\nx\0",
            b"SEND\ndestination:QUEUE\r\n\r\nx\0",
            b"SEND\ndestination:QUEUE\n\xff:\xfe\n\nx\0",
            b"SEND\ndestination:QUEUE\0",
            b"SEND\n\n\0",
            b"\n\nSEND\ndestination:QUEUE\n\nx\0\n\n\nSEND\ndestination:QUEUE\n\ny\0",
            b"garbage SEND\ndestination:QUEUE\n\nx\0SEND\ndestination:QUEUE\n\ny\0",
        )
    ]


@script("Q10", brokers=MORBIDQ)
def octet_by_octet(site: Site) -> object:
    frames = b"SEND\ncontent-length:3\ndestination:QUEUE\n\na\nb\0\nSEND\ndestination:QUEUE\n\nx\0"
    queue = site.queue().encode()
    with site.peer("1.0") as peer:
        peer.send("SUBSCRIBE", destination=queue.decode())
        peer.fate()
        for octet in frames.replace(b"QUEUE", queue):
            peer.write(bytes([octet]))
        return told(peer, queue.decode())


@script("Q11", brokers=MORBIDQ)
def missing_destinations(site: Site) -> object:
    outcome = {}
    for command in ("SEND", "SUBSCRIBE", "UNSUBSCRIBE"):
        with site.peer("1.0") as peer:
            peer.send(command)
            outcome[command] = told(peer)
    return outcome
