"""Heart-beats: the negotiation, the intervals, and the end of silent clients."""

from __future__ import annotations

import pytest

from stompkit.frames import VERSIONS
from stompkit.server import BrokerConfig
from stompkit.testing.memory import MemoryBroker, MemoryClient

STEP_S = 0.125  # a binary fraction, so that sums are exact


def advance(broker: MemoryBroker, seconds: float) -> None:
    """Advance the clock in small steps, as on a reactor."""
    for _ in range(round(seconds / STEP_S)):
        broker.clock.advance(STEP_S)


def refusal(client: MemoryClient) -> str | None:
    return None if client.error is None else client.error.headers["stompkit-code"]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_connected_tells_what_the_broker_offers(version: str) -> None:
    broker = MemoryBroker(BrokerConfig(heart_beat_ms=(2_000, 3_000)))
    assert broker.client(version).connected["heart-beat"] == "2000,3000"
    assert broker.client(version, heart_beat="5,7").connected["heart-beat"] == "2000,3000"


def test_1_0_has_no_heart_beats() -> None:
    broker = MemoryBroker()
    client = broker.client("1.0", heart_beat="1000,1000")
    assert "heart-beat" not in client.connected
    advance(broker, 60)
    assert client.beats == 0
    assert (client.error, client.eof) == (None, False)


@pytest.mark.parametrize(
    ("offer", "header", "interval_s"),
    [
        ((1_000, 0), "0,1000", 1.0),
        ((1_000, 0), "0,1", 1.0),
        ((1_000, 0), "0,4000", 4.0),
        ((8_000, 0), "0,1000", 8.0),
        ((1_000, 1_000), "1000,1000", 1.0),
    ],
)
def test_beats_come_at_least_every_interval(
    offer: tuple[int, int], header: str, interval_s: float
) -> None:
    broker = MemoryBroker(BrokerConfig(heart_beat_ms=offer))
    client = broker.client(heart_beat=header)
    for number in range(1, 6):
        advance(broker, interval_s)
        client.write(b"\n")
        assert number <= client.beats <= 2 * number


@pytest.mark.parametrize(
    ("offer", "header"),
    [((1_000, 0), "0,0"), ((1_000, 0), "1000,0"), ((0, 0), "0,1000"), ((1_000, 0), None)],
)
def test_no_beats_come_where_one_side_does_not_want_them(
    offer: tuple[int, int], header: str | None
) -> None:
    broker = MemoryBroker(BrokerConfig(heart_beat_ms=offer))
    client = broker.client(**({} if header is None else {"heart_beat": header}))
    advance(broker, 20)
    assert client.beats == 0
    assert (client.error, client.eof) == (None, False)


def test_a_beat_is_a_single_line_end() -> None:
    broker = MemoryBroker()
    client = broker.client(heart_beat="0,1000")
    client.transport.take()
    broker.clock.advance(1.0)
    assert client.transport.take() == b"\n"


def test_frames_take_the_place_of_beats() -> None:
    broker = MemoryBroker()
    client, producer = broker.client(heart_beat="0,1000"), broker.client()
    client.subscribe("/topic/t")
    for _ in range(20):
        advance(broker, 0.5)
        producer.publish("/topic/t")
    assert client.beats == 0
    advance(broker, 1.0)
    assert client.beats >= 1


def test_receipts_take_the_place_of_beats() -> None:
    broker = MemoryBroker()
    client = broker.client(heart_beat="0,1000")
    for number in range(10):
        advance(broker, 0.5)
        client.send("BEGIN", transaction=str(number), receipt=str(number))
    assert client.beats == 0


@pytest.mark.parametrize(
    ("offer", "header", "interval_s"),
    [
        ((0, 1_000), "1000,0", 1.0),
        ((0, 1_000), "1,0", 1.0),
        ((0, 1_000), "4000,0", 4.0),
        ((0, 8_000), "1000,0", 8.0),
    ],
)
def test_a_silent_client_is_given_up_with_a_margin(
    offer: tuple[int, int], header: str, interval_s: float
) -> None:
    broker = MemoryBroker(BrokerConfig(heart_beat_ms=offer))
    client = broker.client(heart_beat=header)
    client.subscribe("/queue/a")
    advance(broker, 1.25 * interval_s)
    assert (client.error, client.eof) == (None, False)
    advance(broker, 1.75 * interval_s)
    assert refusal(client) == "heart-beat-timeout"
    assert client.eof
    assert broker.destinations == {}


@pytest.mark.parametrize("octets", [b"\n", b"\r\n", b"SEND\ndestination:/topic/t\n\n\0", b"S"])
def test_any_octets_are_a_sign_of_life(octets: bytes) -> None:
    broker = MemoryBroker()
    client = broker.client(heart_beat="1000,0")
    for _ in range(10):
        advance(broker, 1.25)
        client.write(octets)
    advance(broker, 1.25)
    assert (client.error, client.eof) == (None, False)


@pytest.mark.parametrize(
    ("offer", "header"),
    [((0, 1_000), "0,0"), ((0, 1_000), "0,1000"), ((0, 0), "1000,0"), ((0, 1_000), None)],
)
def test_silence_is_allowed_where_nobody_wants_beats(
    offer: tuple[int, int], header: str | None
) -> None:
    broker = MemoryBroker(BrokerConfig(heart_beat_ms=offer))
    client = broker.client(**({} if header is None else {"heart_beat": header}))
    advance(broker, 100)
    assert (client.error, client.eof) == (None, False)


def test_the_messages_of_a_client_given_up_go_to_others() -> None:
    broker = MemoryBroker()
    dead, other = broker.client(heart_beat="1000,0"), broker.client()
    dead.subscribe("/queue/a", ack="client")
    other.publish("/queue/a", b"x")
    other.subscribe("/queue/a")
    assert other.bodies() == []
    dead.stop_reading()  # it has failed, so it does not read ERROR either
    for _ in range(100):
        advance(broker, STEP_S)
        if dead.transport.unread_bytes:
            break
    assert other.bodies() == [b"x"]  # at once, not only when the connection is closed
    assert not dead.lost
    advance(broker, broker.broker.config.drain_timeout_s)
    assert dead.aborted


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_left_to_do_for_a_client_that_has_gone(version: str) -> None:
    broker = MemoryBroker()
    client = broker.client(version, heart_beat="1000,1000")
    client.close()
    assert broker.clock.getDelayedCalls() == []


def test_no_beats_follow_an_error() -> None:
    broker = MemoryBroker()
    client = broker.client(heart_beat="0,1000")
    client.write(b"nonsense\n\n\0")
    before = client.octets
    advance(broker, 10.0)
    assert client.octets == before
    assert broker.clock.getDelayedCalls() == []


def test_no_beats_follow_disconnect() -> None:
    broker = MemoryBroker()
    client = broker.client(heart_beat="0,1000")
    client.send("DISCONNECT", receipt="r")
    before = client.octets
    advance(broker, 10.0)
    assert client.octets == before


def test_a_login_that_ends_at_once_leaves_no_heart_beats() -> None:
    broker = MemoryBroker()
    client = broker.connect()
    client.write(b"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:1000,1000\n\n\0DISCONNECT\n\n\0")
    client.close()
    assert broker.clock.getDelayedCalls() == []
