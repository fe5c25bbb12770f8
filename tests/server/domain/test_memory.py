"""The in-memory broker: the guarantees of stompkit.testing.memory for tests."""

from __future__ import annotations

import pytest

import stompkit.client
import stompkit.testing.memory
from stompkit.frames import VERSIONS
from stompkit.server import BrokerConfig
from stompkit.testing.memory import MemoryBroker, MemoryNetwork


def test_the_examples_of_the_module_run() -> None:
    text = stompkit.testing.memory.__doc__ or ""
    lines = [line.removeprefix("    ") for line in text.splitlines() if line.startswith("    ")]
    assert len(lines) > 4
    names = {"MemoryBroker": MemoryBroker, "MemoryNetwork": MemoryNetwork, "stompkit": stompkit}
    exec("\n".join(lines), names)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_speaks_the_version_it_asks_for(version: str) -> None:
    client = MemoryBroker().client(version)
    assert client.version == version
    assert client.connected["version"] == version


def test_the_highest_of_several_versions_is_taken() -> None:
    assert MemoryBroker().client("1.0,1.1").version == "1.1"


def test_a_client_is_told_why_it_was_refused() -> None:
    with pytest.raises(ConnectionRefusedError, match="no common protocol version"):
        MemoryBroker().client("2.7")


def test_headers_of_connect_are_given_by_keyword() -> None:
    broker = MemoryBroker()
    client = broker.client(heart_beat="0,1000")
    broker.clock.advance(1.0)
    assert client.beats == 1


def test_take_gives_each_frame_once() -> None:
    client = MemoryBroker().client()
    assert [frame.command for frame in client.take()] == ["CONNECTED"]
    client.send("BEGIN", transaction="t", receipt="r")
    assert [frame.command for frame in client.take()] == ["RECEIPT"]
    assert client.take() == []
    assert [frame.command for frame in client.frames] == ["CONNECTED", "RECEIPT"]


def test_octets_are_those_of_the_frames_and_beats() -> None:
    broker = MemoryBroker()
    client = broker.client(heart_beat="0,1000")
    client.send("BEGIN", transaction="t", receipt="r")
    broker.clock.advance(1.0)
    assert client.octets.startswith(b"CONNECTED\n")
    assert client.octets.endswith(b"\0\nRECEIPT\nreceipt-id:r\n\n\0\n\n")


def test_a_full_transport_holds_what_the_client_does_not_read() -> None:
    client = MemoryBroker().client()
    client.take()
    client.stop_reading()
    client.send("BEGIN", transaction="t", receipt="r")
    assert client.take() == []
    assert client.transport.unread_bytes == len(b"RECEIPT\nreceipt-id:r\n\n\0\n")
    client.read_waiting()
    assert len(client.take("RECEIPT")) == 1
    client.send("COMMIT", transaction="t", receipt="s")
    assert client.take() == []
    client.start_reading()
    assert len(client.take("RECEIPT")) == 1


def test_the_end_of_the_stream_is_read_after_what_was_written() -> None:
    client = MemoryBroker().client()
    client.stop_reading()
    client.send("DISCONNECT", receipt="r")
    assert (client.eof, client.lost) == (False, False)
    client.start_reading()
    assert (client.eof, client.lost) == (True, False)


def test_a_transport_without_half_close_ends_both_ways() -> None:
    broker = MemoryBroker(half_close=False)
    client = broker.client()
    client.send("DISCONNECT", receipt="r")
    assert client.eof
    assert not client.transport.is_read
    broker.clock.advance(0)
    assert client.lost
    assert not client.aborted


def test_a_closed_connection_can_be_closed_again() -> None:
    client = MemoryBroker().client()
    client.close()
    client.drop()
    client.write(b"\n")
    assert client.lost


def test_the_configuration_is_the_brokers() -> None:
    config = BrokerConfig(prefetch=7)
    assert MemoryBroker(config).broker.config is config
