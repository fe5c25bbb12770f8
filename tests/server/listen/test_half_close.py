"""A client that closes only its sending side still gets all replies."""

from __future__ import annotations

import pytest

from stompkit.frames import VERSIONS
from stompkit.testing.memory import MemoryBroker, MemoryClient
from tests.server.brokers import MakeBroker, publish_all, refusal, stored
from tests.server.many_queues import numbered

QUEUE = "/queue/a"
SEND = b"SEND\ndestination:/queue/a\nreceipt:%d\n\n%d\0"


def receipts(client: MemoryClient) -> list[str]:
    """Return the receipts received."""
    return [each.headers["receipt-id"] for each in client.take("RECEIPT")]


def gone(broker: MemoryBroker, client: MemoryClient) -> bool:
    """Return True if the connection ended without a timeout."""
    broker.clock.advance(0.0)
    return client.lost and not client.aborted


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("separately", [False, True])
def test_what_it_has_sent_is_done_and_answered(
    broker_with: MakeBroker, version: str, *, separately: bool
) -> None:
    broker = broker_with()
    client = broker.client(version)
    frames = [SEND % (number, number) for number in range(1, 4)]
    for data in frames if separately else [b"".join(frames)]:
        client.write(data)
    client.end()
    assert receipts(client) == ["1", "2", "3"]
    assert client.error is None
    assert client.eof
    assert gone(broker, client)
    assert stored(broker, QUEUE) == numbered(1, 3)


def test_a_whole_session_in_one_chunk(broker_with: MakeBroker) -> None:
    broker = broker_with()
    publish_all(broker.client(), QUEUE, numbered(1, 2))
    client = broker.connect()
    client.write(
        b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
        b"SUBSCRIBE\nid:0\ndestination:/queue/a\n\n\0"
        b"SEND\ndestination:/queue/b\nreceipt:r\n\nx\0"
    )
    client.end()
    commands = [each.command for each in client.take()]
    assert sorted(commands) == ["CONNECTED", "MESSAGE", "MESSAGE", "RECEIPT"]
    assert gone(broker, client)


def test_it_ends_as_if_it_had_said_disconnect(broker_with: MakeBroker) -> None:
    broker = broker_with()
    producer, client = broker.client(), broker.client()
    publish_all(producer, QUEUE, numbered(1, 3))
    producer.close()
    client.subscribe(QUEUE, id="1", ack="client-individual")
    client.subscribe("/temp-queue/own", id="2")
    first, *_ = client.take("MESSAGE")
    client.ack(first)
    client.send("BEGIN", transaction="t")
    client.publish("/queue/b", b"x", transaction="t")
    client.end()
    assert gone(broker, client)
    assert stored(broker, QUEUE) == numbered(2, 3)
    assert list(broker.destinations) == [QUEUE]
    assert broker.broker.connections == set()
    assert client.take("RECEIPT") == []


@pytest.mark.parametrize("octets", [b"SEND\ndestination:/queue/a\n\nhalf", b"SE"])
def test_half_a_frame_at_the_end_is_an_error(broker_with: MakeBroker, octets: bytes) -> None:
    broker = broker_with()
    client = broker.client()
    client.write(SEND % (1, 1) + octets)
    client.end()
    assert receipts(client) == ["1"]
    assert refusal(client) == "truncated"
    assert client.eof
    assert gone(broker, client)


def test_line_ends_at_the_end_are_not(broker_with: MakeBroker) -> None:
    client = broker_with().client()
    client.write(SEND % (1, 1) + b"\n\n\r\n")
    client.end()
    assert client.error is None


@pytest.mark.parametrize("octets", [b"", b"\n", b"CONNECT\n"])
def test_a_stranger_that_ends_leaves_nothing(octets: bytes) -> None:
    broker = MemoryBroker()
    client = broker.connect()
    client.write(octets)
    client.end()
    broker.clock.advance(0.0)
    assert client.lost
    assert broker.broker.connections == set()
    assert broker.clock.getDelayedCalls() == []


def test_what_waits_for_its_transport_comes_before_the_end(broker_with: MakeBroker) -> None:
    broker = broker_with(write_batch_bytes=1)
    client = broker.client()
    client.stop_reading(room_bytes=1)
    client.write(b"".join(SEND % (number, number) for number in range(1, 10)))
    client.end()
    assert not gone(broker, client)
    client.start_reading()
    assert receipts(client) == [str(number) for number in range(1, 10)]
    assert client.eof
    assert gone(broker, client)


def test_a_client_that_reads_nothing_to_the_end_is_cut(broker_with: MakeBroker) -> None:
    broker = broker_with(drain_timeout_s=5.0)
    client = broker.client()
    client.stop_reading()
    client.write(SEND % (1, 1))
    client.end()
    broker.clock.advance(5.0)
    broker.clock.advance(0.0)
    assert client.aborted
    assert broker.broker.connections == set()


def test_a_sender_that_waits_for_room_is_answered_when_there_is_some(
    broker_with: MakeBroker,
) -> None:
    broker = broker_with(when_full="block", max_queue_messages=1)
    client, consumer = broker.client(), broker.client()
    client.write(b"".join(SEND % (number, number) for number in range(1, 4)))
    client.end()
    assert receipts(client) == ["1"]
    assert not gone(broker, client)
    consumer.subscribe(QUEUE)
    client.read_waiting()
    assert receipts(client) == ["2", "3"]
    assert consumer.bodies() == numbered(1, 3)
    assert gone(broker, client)


def test_after_disconnect_the_end_is_no_news(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client = broker.client()
    client.send("DISCONNECT", receipt="bye")
    assert receipts(client) == ["bye"]
    assert client.eof
    client.end()
    assert gone(broker, client)
    assert client.error is None


def test_after_an_error_the_end_is_no_news(broker_with: MakeBroker) -> None:
    broker = broker_with()
    client = broker.client()
    client.write(b"nonsense\n\n\0")
    client.end()
    assert [each.command for each in client.take()] == ["CONNECTED", "ERROR"]
    assert gone(broker, client)


def test_where_only_both_ends_can_be_closed_nothing_is_lost_but_the_answers() -> None:
    broker = MemoryBroker(half_close=False)
    client = broker.client()
    client.write(SEND % (1, 1))
    client.end()
    assert client.lost
    assert stored(broker, QUEUE) == [b"1"]
