"""Large bodies are not copied for each subscriber of a topic."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from stompkit.frames import Frame, FrameDecoder
from stompkit.server import Broker, BrokerConfig, Connection

CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
SUBSCRIBE = b"SUBSCRIBE\nid:0\ndestination:/topic/a\n\n\0"


class Joined:
    """An outlet that takes bytes."""

    def __init__(self, broker: Broker) -> None:
        """Log in."""
        self.peer = "192.0.2.1"
        self.is_reading = True
        self.written: list[bytes] = []
        self._broker = broker
        self._connection = Connection(broker, self, 0.0)
        self._connection.opened()
        self.receive(CONNECT)

    def receive(self, data: bytes) -> None:
        """Pass bytes to the broker, and end its cycle."""
        self._connection.receive(data, 0.0)
        self._broker.flush()

    def write(self, data: bytes) -> None:
        """Store bytes."""
        self.written.append(data)

    def certificate(self) -> bytes | None:
        """Return None: this is not TLS."""
        return None

    def logged_in(self) -> None:
        """Start no heart-beats."""

    def pause(self) -> None:
        """Fail: there is always room."""
        raise AssertionError("nothing waits")

    def resume(self) -> None:
        """Do nothing: reading was never paused."""

    def close(self) -> None:
        """Fail: no frame is refused."""
        raise AssertionError("nothing is refused")

    def frames(self) -> list[Frame]:
        """Return all frames after CONNECTED."""
        decoder = FrameDecoder()
        [connected] = decoder.feed(b"".join(self.written))
        assert connected.command == "CONNECTED"
        decoder.negotiated("1.2")
        return decoder.feed(b"")


class Pieces(Joined):
    """An outlet that also takes pieces."""

    def __init__(self, broker: Broker) -> None:
        """Log in."""
        self.pieces: list[bytes] = []
        super().__init__(broker)

    def write_pieces(self, pieces: list[bytes]) -> None:
        """Store pieces."""
        self.pieces += pieces
        self.written += pieces


def _send(producer: Joined, body: bytes) -> None:
    head = b"SEND\ndestination:/topic/a\ncontent-length:%d\n\n" % len(body)
    producer.receive(head + body + b"\0")


@pytest.mark.parametrize("batch", [1, 1 << 20])
def test_subscribers_share_the_bytes_of_a_large_body(batch: int) -> None:
    broker = Broker(BrokerConfig(write_batch_bytes=batch), Clock())
    producer, other = Joined(broker), Joined(broker)
    subscribers = [Pieces(broker) for _ in range(3)]
    for each in (other, *subscribers):
        each.receive(SUBSCRIBE)
    bodies = [bytes([number]) * 65_536 for number in (1, 2)]
    for body in bodies:
        _send(producer, body)
    for each in (other, *subscribers):
        assert [frame.body for frame in each.frames()] == bodies
    large = [[piece for piece in each.pieces if len(piece) >= 65_536] for each in subscribers]
    assert [len(each) for each in large] == [2, 2, 2]
    assert len({id(piece) for each in large for piece in each}) == 2


def test_small_messages_are_joined() -> None:
    broker = Broker(BrokerConfig(), Clock())
    producer, subscriber = Joined(broker), Pieces(broker)
    subscriber.receive(SUBSCRIBE)
    del subscriber.written[1:]
    producer.receive(b"SEND\ndestination:/topic/a\n\nhello\0" * 10)
    assert len(subscriber.written) == 2
    assert subscriber.pieces == []
    assert [frame.body for frame in subscriber.frames()] == [b"hello"] * 10
