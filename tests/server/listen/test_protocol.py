"""The life of a connection: login, pipelining, receipts, DISCONNECT, and every way to end."""

from __future__ import annotations

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import ISSLTransport, ITCPTransport
from zope.interface import alsoProvides, implementer

from stompkit.frames import VERSIONS
from stompkit.server import BrokerConfig, BrokerFactory
from stompkit.testing.memory import MemoryBroker, MemoryClient, MemoryTransport

QUEUE = "/queue/a"
CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
#: A frame with a reply, and the length of the reply.
ASKING = b"SEND\ndestination:/topic/t\nreceipt:r\n\n\0"
RECEIPT_BYTES = len(b"RECEIPT\nreceipt-id:r\n\n\0\n")


def refusal(client: MemoryClient) -> str | None:
    return None if client.error is None else client.error.headers["stompkit-code"]


def is_read(client: MemoryClient) -> bool:
    """Return True if the broker reads from the client."""
    return client.transport.is_read


def commands(client: MemoryClient) -> list[str]:
    return [frame.command for frame in client.take()]


# Login.


@pytest.mark.parametrize("command", [b"CONNECT", b"STOMP"])
@pytest.mark.parametrize("version", VERSIONS)
def test_both_spellings_of_connect_log_in(version: str, command: bytes) -> None:
    client = MemoryBroker().connect()
    client.write(command + b"\naccept-version:%b\nhost:x\n\n\0" % version.encode())
    assert client.version == version


@pytest.mark.parametrize("eols", [b"\n", b"\r\n", b"\n\n\r\n"])
def test_line_ends_before_connect_do_not_matter(eols: bytes) -> None:
    client = MemoryBroker().connect()
    client.write(eols)
    client.write(CONNECT)
    assert client.version == "1.2"


@pytest.mark.parametrize("size", [1, 2, 7, 1_000])
def test_frames_pipelined_behind_connect_are_served(size: int) -> None:
    client = MemoryBroker().connect()
    data = CONNECT + (
        b"SUBSCRIBE\nid:a\\cb\ndestination:/queue/a\nreceipt:1\n\n\0"
        b"SEND\ndestination:/queue/a\nreceipt:2\n\nbody\0"
    )
    for start in range(0, len(data), size):
        client.write(data[start : start + size])
    frames = client.take()
    assert sorted(frame.command for frame in frames) == [
        "CONNECTED",
        "MESSAGE",
        "RECEIPT",
        "RECEIPT",
    ]
    assert frames[0].command == "CONNECTED"
    [message] = [frame for frame in frames if frame.command == "MESSAGE"]
    assert message.headers["subscription"] == "a:b"


def test_frames_pipelined_behind_connect_are_read_by_its_version() -> None:
    client = MemoryBroker().connect()
    client.write(
        b"CONNECT\naccept-version:1.0\n\n\0BEGIN\ntransaction:t\nreceipt:a\\b:c\n\n\0"
        b"BEGIN\ntransaction:u\nreceipt:\\n\n\n\0"
    )
    assert [f.headers["receipt-id"] for f in client.take("RECEIPT")] == ["a\\b:c", "\\n"]


@pytest.mark.parametrize(
    "sent",
    [b"", b"\n", CONNECT[:-1], b"CONNECT\n"],
    ids=["nothing", "line-end", "half", "command"],
)
def test_a_client_that_does_not_log_in_is_closed_at_the_deadline(sent: bytes) -> None:
    broker = MemoryBroker(BrokerConfig(login_timeout_s=5.0))
    client = broker.connect()
    client.write(sent)
    broker.clock.advance(4.5)
    assert (client.error, client.eof) == (None, False)
    broker.clock.advance(0.5)
    assert refusal(client) == "login-timeout"
    assert client.eof


def test_octets_do_not_put_off_the_login_deadline() -> None:
    broker = MemoryBroker(BrokerConfig(login_timeout_s=5.0))
    client = broker.connect()
    for _ in range(10):
        client.write(b"\n")
        broker.clock.advance(0.5)
    assert refusal(client) == "login-timeout"


def test_the_login_deadline_ends_with_login() -> None:
    broker = MemoryBroker(BrokerConfig(login_timeout_s=5.0))
    client = broker.client()
    broker.clock.advance(100.0)
    assert (client.error, client.eof) == (None, False)
    assert broker.clock.getDelayedCalls() == []


def test_a_stranger_that_leaves_takes_its_deadline_along() -> None:
    broker = MemoryBroker()
    broker.connect().drop()
    assert broker.clock.getDelayedCalls() == []
    assert broker.broker.connections == set()


def test_a_client_too_many_gets_an_error_and_the_end() -> None:
    broker = MemoryBroker(BrokerConfig(max_connections=1))
    first = broker.client()
    second = broker.connect()
    assert commands(second) == ["ERROR"]
    assert second.eof
    broker.clock.advance(1.0)
    assert second.aborted
    assert (first.error, first.eof) == (None, False)
    broker.connect().close()
    assert broker.clock.getDelayedCalls() == []


# The end, by ERROR.


def test_after_an_error_the_broker_half_closes_and_cuts_after_the_linger() -> None:
    broker = MemoryBroker(BrokerConfig(linger_s=2.0))
    client = broker.client()
    client.write(b"nonsense\n\n\0")
    assert commands(client)[-1] == "ERROR"
    assert (client.eof, client.lost) == (True, False)
    assert client.transport.is_read  # otherwise unread bytes would reset the connection
    broker.clock.advance(1.5)
    client.write(b"SEND\ndestination:/queue/a\n\n\0" * 10)
    assert (client.take(), client.lost) == ([], False)
    broker.clock.advance(0.5)
    assert (client.lost, client.aborted) == (True, True)
    assert broker.destinations == {}
    assert broker.broker.connections == set()


def test_a_client_that_closes_in_time_is_not_cut() -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.write(b"nonsense\n\n\0")
    client.close()
    broker.clock.advance(10.0)
    assert (client.lost, client.aborted) == (True, False)
    assert broker.clock.getDelayedCalls() == []


def test_an_error_is_the_last_frame() -> None:
    broker = MemoryBroker()
    client, producer = broker.client(), broker.client()
    client.subscribe("/topic/t", id="1")
    client.subscribe(QUEUE, id="2")
    client.write(b"nonsense\n\n\0")
    producer.publish("/topic/t")
    producer.publish(QUEUE)
    broker.clock.advance(0.5)
    assert commands(client)[-1] == "ERROR"


LAST = {"ERROR": b"nonsense\n\n\0", "RECEIPT": b"DISCONNECT\nreceipt:r\n\n\0"}


@pytest.mark.parametrize(("last", "octets"), LAST.items(), ids=LAST)
def test_a_client_whose_transport_is_full_has_time_to_read_its_last_frame(
    last: str, octets: bytes
) -> None:
    broker = MemoryBroker(BrokerConfig(drain_timeout_s=5.0, linger_s=1.0))
    client = broker.client()
    client.subscribe(QUEUE)
    client.stop_reading(room_bytes=1)
    client.publish(QUEUE, b"x" * 100_000)
    client.write(octets)
    broker.clock.advance(4.5)
    assert (client.eof, client.lost) == (False, False)
    client.start_reading()
    assert commands(client) == ["CONNECTED", "MESSAGE", last]
    assert (client.eof, client.lost) == (True, False)
    broker.clock.advance(0.5)
    assert not client.lost
    broker.clock.advance(0.5)
    assert client.aborted


@pytest.mark.parametrize("octets", LAST.values(), ids=LAST)
def test_a_client_that_does_not_read_its_last_frame_is_cut(octets: bytes) -> None:
    broker = MemoryBroker(BrokerConfig(drain_timeout_s=5.0, linger_s=1.0))
    client = broker.client()
    client.stop_reading()
    client.write(octets)
    assert client.transport.unread_bytes > 0
    broker.clock.advance(4.5)
    assert (client.eof, client.lost) == (False, False)
    broker.clock.advance(0.5)
    assert client.aborted
    assert broker.clock.getDelayedCalls() == []
    assert broker.broker.connections == set()


def test_a_client_that_leaves_before_it_has_read_its_last_frame_leaves_nothing_behind() -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.stop_reading()
    client.send("DISCONNECT", receipt="r")
    client.drop()
    assert broker.clock.getDelayedCalls() == []
    assert broker.broker.connections == set()


def test_a_client_whose_reading_was_stopped_is_read_again_when_it_lingers() -> None:
    broker = MemoryBroker(BrokerConfig(max_reply_backlog_bytes=1))
    client = broker.client()
    client.stop_reading()
    client.write(ASKING + b"nonsense\n\n\0")
    assert not is_read(client)
    client.start_reading()
    assert commands(client) == ["CONNECTED", "RECEIPT", "ERROR"]
    assert client.eof
    assert is_read(client)


def test_a_transport_that_is_empty_again_after_an_error_gets_nothing_more() -> None:
    broker = MemoryBroker()
    client, producer = broker.client(), broker.client()
    client.subscribe("/topic/t")
    client.stop_reading()
    producer.publish("/topic/t", b"kept back")
    client.write(b"nonsense\n\n\0")
    producer.publish("/topic/t", b"too late")
    client.start_reading()
    assert commands(client) == ["CONNECTED", "ERROR"]
    assert client.eof


@pytest.mark.parametrize("octets", [b"nonsense\n\n\0", b"DISCONNECT\nreceipt:r\n\n\0"])
def test_a_transport_that_cannot_half_close_is_closed_after_what_was_written(
    octets: bytes,
) -> None:
    broker = MemoryBroker(half_close=False)
    client = broker.client()
    client.stop_reading()
    client.write(octets)
    assert (client.eof, client.lost) == (False, False)
    client.start_reading()
    assert commands(client)[-1] in ("ERROR", "RECEIPT")
    broker.clock.advance(0)
    assert (client.lost, client.aborted) == (True, False)
    assert broker.clock.getDelayedCalls() == []


def test_tls_is_closed_as_tls_though_the_tcp_beneath_could_be_half_closed() -> None:
    broker = MemoryBroker()
    client = broker.client()
    alsoProvides(client.transport, ISSLTransport)
    client.write(b"nonsense\n\n\0")
    assert client.transport.disconnecting
    broker.clock.advance(0)
    assert (client.lost, client.aborted) == (True, False)


# The end, by DISCONNECT.


@pytest.mark.parametrize("version", VERSIONS)
def test_the_receipt_of_disconnect_is_the_last_frame(version: str) -> None:
    broker = MemoryBroker()
    client, producer = broker.client(version), broker.client()
    client.subscribe("/topic/t", id="1")
    client.subscribe(QUEUE, id="2", ack="client")
    producer.publish(QUEUE, b"1")
    client.send("DISCONNECT", receipt="bye")
    producer.publish("/topic/t", b"2")
    frames = client.take()
    assert [frame.command for frame in frames] == ["CONNECTED", "MESSAGE", "RECEIPT"]
    assert frames[-1].headers == {"receipt-id": "bye"}
    assert client.eof
    broker.clock.advance(1.0)
    assert client.lost


def test_the_receipt_of_disconnect_is_the_last_frame_of_its_chunk_too() -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.subscribe("/topic/t", id="1")
    client.subscribe(QUEUE, id="2")
    client.take()
    client.write(
        b"SEND\ndestination:/topic/t\n\n1\0"
        b"SEND\ndestination:/queue/a\nreceipt:2\n\n2\0"
        b"DISCONNECT\nreceipt:3\n\n\0"
        b"SEND\ndestination:/queue/a\nreceipt:4\n\n4\0"
    )
    assert commands(client) == ["MESSAGE", "RECEIPT", "RECEIPT"]
    other = broker.client()
    other.subscribe(QUEUE)
    assert other.bodies() == [b"2"]


@pytest.mark.parametrize("pipelined", [False, True])
def test_frames_after_disconnect_are_ignored(*, pipelined: bool) -> None:
    broker = MemoryBroker()
    client = broker.client()
    later = b"SEND\ndestination:/queue/a\nreceipt:s\n\n\0CONNECT\n\n\0nonsense\0\xff"
    chunks = [b"DISCONNECT\nreceipt:r\n\n\0", later]
    for chunk in [b"".join(chunks)] if pipelined else chunks:
        client.write(chunk)
    assert commands(client) == ["CONNECTED", "RECEIPT"]
    assert broker.destinations == {}


def test_disconnect_without_a_receipt_just_ends() -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.send("DISCONNECT")
    assert commands(client) == ["CONNECTED"]
    assert client.eof


def test_disconnect_gives_back_what_was_not_acknowledged() -> None:
    broker = MemoryBroker()
    client, other = broker.client(), broker.client()
    client.subscribe(QUEUE, ack="client")
    other.publish(QUEUE, b"x")
    client.send("DISCONNECT", receipt="r")
    other.subscribe(QUEUE)
    assert other.bodies() == [b"x"]
    client.close()
    assert other.bodies() == []


def test_frames_sent_before_a_close_without_disconnect_count() -> None:
    broker = MemoryBroker()
    client, consumer = broker.client(), broker.client()
    consumer.subscribe(QUEUE)
    client.write(b"SEND\ndestination:/queue/a\n\n\0" * 200)
    client.drop()
    assert len(consumer.take("MESSAGE")) == 200


def test_half_a_frame_at_the_end_is_nothing() -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.write(b"SEND\ndestination:/queue/a\n\nhalf")
    client.drop()
    assert broker.destinations == {}


# Receipts.


def test_receipts_come_in_the_order_of_their_frames() -> None:
    client = MemoryBroker().client()
    client.take()
    client.write(
        b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client\nreceipt:subscribe\n\n\0"
        b"SEND\ndestination:/topic/t\nreceipt:send\n\n\0"
        b"BEGIN\ntransaction:t\nreceipt:begin\n\n\0"
        b"SEND\ntransaction:t\ndestination:/queue/a\nreceipt:send2\n\n\0"
        b"COMMIT\ntransaction:t\nreceipt:commit\n\n\0"
        b"BEGIN\ntransaction:t\nreceipt:begin2\n\n\0"
        b"ABORT\ntransaction:t\nreceipt:abort\n\n\0"
        b"UNSUBSCRIBE\nid:1\nreceipt:unsubscribe\n\n\0"
        b"DISCONNECT\nreceipt:disconnect\n\n\0"
    )
    assert [frame.headers["receipt-id"] for frame in client.take("RECEIPT")] == [
        "subscribe",
        "send",
        "begin",
        "send2",
        "commit",
        "begin2",
        "abort",
        "unsubscribe",
        "disconnect",
    ]


def test_acknowledgements_get_receipts() -> None:
    client = MemoryBroker().client()
    client.subscribe(QUEUE, ack="client-individual")
    client.publish(QUEUE)
    client.publish(QUEUE)
    first, second = client.take("MESSAGE")
    client.ack(first, receipt="ack")
    client.nack(second, receipt="nack", requeue="false")
    assert [frame.headers["receipt-id"] for frame in client.take()] == ["ack", "nack"]


def test_an_empty_receipt_is_answered() -> None:
    client = MemoryBroker().client()
    client.send("BEGIN", transaction="t", receipt="")
    assert client.take("RECEIPT")[0].headers == {"receipt-id": ""}


def test_receipts_that_pile_up_stop_the_reading_until_they_are_gone() -> None:
    config = BrokerConfig(max_reply_backlog_bytes=10 * RECEIPT_BYTES)
    client = MemoryBroker(config).client()
    client.take()
    client.stop_reading()
    for _ in range(10):
        client.write(ASKING)
    assert is_read(client)
    for _ in range(5):  # the first of them exceeds the limit
        client.write(ASKING)
    assert not is_read(client)
    assert client.transport.unread_bytes == 11 * RECEIPT_BYTES
    client.start_reading()
    assert is_read(client)
    assert len(client.take("RECEIPT")) == 15
    client.write(ASKING)
    assert len(client.take("RECEIPT")) == 1
    client.stop_reading()  # once more from the start
    for _ in range(10):
        client.write(ASKING)
    assert is_read(client)
    client.write(ASKING)
    assert not is_read(client)
    client.start_reading()
    assert len(client.take("RECEIPT")) == 11


def test_a_client_that_reads_in_gulps_gets_all_its_receipts() -> None:
    config = BrokerConfig(max_reply_backlog_bytes=10 * RECEIPT_BYTES, write_batch_bytes=1)
    broker = MemoryBroker(config)
    client, other = broker.client(), broker.client()
    client.stop_reading(room_bytes=2 * RECEIPT_BYTES)
    for _ in range(200):
        client.write(ASKING)
    assert client.transport.unread_bytes <= 14 * RECEIPT_BYTES
    for _ in range(100):
        client.read_waiting()
    assert len(client.take("RECEIPT")) == 200
    assert (other.error, other.eof) == (None, False)


def test_a_client_whose_reading_is_stopped_can_be_lost() -> None:
    broker = MemoryBroker(BrokerConfig(max_reply_backlog_bytes=1))
    client = broker.client()
    client.stop_reading()
    client.write(ASKING)
    client.write(ASKING)
    assert not is_read(client)
    client.drop()
    assert broker.broker.connections == set()
    assert broker.clock.getDelayedCalls() == []


# Transports.


@implementer(ITCPTransport)
class TCPTransport(MemoryTransport):
    """A transport with the setters of a TCP socket."""

    no_delay = False

    def setTcpNoDelay(self, enabled: bool) -> None:  # noqa: FBT001 (Twisted's)
        """Store the setting."""
        self.no_delay = enabled

    def getTcpNoDelay(self) -> bool:
        """Return the setting."""
        return self.no_delay

    def loseWriteConnection(self) -> None:
        """Do nothing: the transport does not declare this interface."""

    def getTcpKeepAlive(self) -> bool:
        """Return False; not used."""
        return False

    def setTcpKeepAlive(self, enabled: bool) -> None:  # noqa: FBT001 (Twisted's)
        """Do nothing; not used."""


def test_small_writes_over_tcp_are_not_delayed() -> None:
    broker = MemoryBroker()
    address = IPv4Address("TCP", "127.0.0.1", 1)
    transport = TCPTransport(broker.clock, address)
    MemoryClient(BrokerFactory(clock=broker.clock).buildProtocol(address), transport)
    assert transport.no_delay


def test_a_factory_goes_by_the_reactors_clock_where_it_is_given_none() -> None:
    factory = BrokerFactory()
    protocol = factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 1))
    assert protocol.factory is factory
    assert factory.broker.config == BrokerConfig()
