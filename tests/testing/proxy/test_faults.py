"""Every fault, observed on the wire: raw sockets on both sides of the proxy."""

from __future__ import annotations

import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import permutations
from typing import Any

import pytest

from stompkit.frames import Frame, FrameDecoder, LocalProtocolError, encode
from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.proxy import Fault, FaultNotSeenError, FrameLog, Proxy
from tests.testing.proxy.test_proxy import (
    CONNECT,
    CONNECTED,
    LONG_S,
    MANY_BYTES,
    Bench,
    Wire,
    cut_off,
    rest,
    sent_in_thread,
    take,
    turned_away,
)

END = b"RECEIPT\nreceipt-id:end\n\n\0"


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Servers, proxies and connections for both sides of a proxy."""
    with ExitStack() as stack:
        yield Bench(stack)


@pytest.fixture
def proxy(bench: Bench) -> Proxy:
    """A proxy in front of the server."""
    return bench.proxy()


@pytest.fixture
def wire(bench: Bench, proxy: Proxy) -> Wire:
    """Both ends of a connection through it."""
    return bench.wire(proxy)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A stompkit broker."""
    with launch(LaunchConfig()) as broker:
        yield broker


def message(number: int, destination: str = "/queue/x") -> bytes:
    headers = {"destination": destination, "message-id": str(number), "subscription": "1"}
    return encode(Frame("MESSAGE", headers, b"body %d" % number), "1.2")


def messages(*numbers: int) -> bytes:
    return b"".join(map(message, numbers))


def send(number: int, destination: str = "/queue/x") -> bytes:
    return encode(Frame("SEND", {"destination": destination}, b"body %d" % number), "1.2")


def passed(wire: Wire, octets: bytes) -> bytes:
    """Return the bytes that the client receives when the broker sends these and closes."""
    wire.broker.sendall(octets)
    wire.broker.shutdown(socket.SHUT_WR)
    return rest(wire.client)


def numbers(octets: bytes) -> list[int]:
    """Return the numbers of messages."""
    return [int(number) for number in re.findall(rb"body (\d+)\0", octets)]


# Frames that are dropped, duplicated, reordered, corrupted.


def test_a_frame_that_is_dropped_does_not_arrive(proxy: Proxy, wire: Wire) -> None:
    fault = proxy.drop("MESSAGE", message_id="2")
    assert passed(wire, messages(1, 2, 3)) == messages(1, 3)
    assert fault.count == 1


def test_a_dropped_frame_leaves_the_heart_beats_around_it(proxy: Proxy, wire: Wire) -> None:
    proxy.drop()
    assert passed(wire, b"\n" + message(1) + b"\r\n" + message(2)) == b"\n\r\n"


def test_a_duplicate_comes_right_after_its_frame(proxy: Proxy, wire: Wire) -> None:
    proxy.duplicate("MESSAGE", nth=2)
    assert passed(wire, messages(1, 2, 3)) == messages(1, 2, 2, 3)


def test_there_can_be_more_than_one_duplicate(proxy: Proxy, wire: Wire) -> None:
    proxy.duplicate("MESSAGE", copies=3)
    assert passed(wire, messages(1, 2)) == messages(1, 1, 1, 1, 2, 2, 2, 2)


@pytest.mark.parametrize(("by", "order"), [(1, [2, 1, 4, 3, 6, 5, 7]), (2, [2, 3, 1, 5, 6, 4, 7])])
def test_frames_are_overtaken(proxy: Proxy, wire: Wire, by: int, order: list[int]) -> None:
    proxy.reorder("MESSAGE", by=by)
    assert passed(wire, messages(*range(1, 8))) == messages(*order)


def test_a_frame_that_nothing_overtakes_goes_when_the_fault_is_removed(
    proxy: Proxy, wire: Wire
) -> None:
    with proxy.reorder("MESSAGE", nth=2) as fault:
        wire.broker.sendall(messages(1, 2))
        assert take(wire.client, len(message(1))) == message(1)
        fault.wait(timeout_s=LONG_S)
    assert take(wire.client, len(message(2))) == message(2)


def test_octets_of_a_frame_are_changed(proxy: Proxy, wire: Wire) -> None:
    proxy.corrupt("MESSAGE", nth=2, octets=3)
    octets = passed(wire, messages(1, 2, 3))
    changed = [
        at for at, (a, b) in enumerate(zip(octets, messages(1, 2, 3), strict=True)) if a != b
    ]
    assert len(changed) == 3
    assert all(len(message(1)) <= at < len(messages(1, 2)) for at in changed)


@pytest.mark.parametrize("octets", [None, 0, 7])
def test_a_truncated_frame_is_the_last_thing_on_the_connection(
    proxy: Proxy, wire: Wire, octets: int | None
) -> None:
    proxy.truncate("MESSAGE", message_id="2", octets=octets)
    wire.broker.sendall(messages(1, 2, 3))
    kept = len(message(2)) // 2 if octets is None else octets
    assert rest(wire.client) == message(1) + message(2)[:kept]
    assert rest(wire.broker) == b""


# Frames that are delayed, slow, or split.


def test_a_delayed_frame_takes_its_time_and_later_ones_wait_for_it(
    proxy: Proxy, wire: Wire
) -> None:
    proxy.delay(0.2, "MESSAGE", nth=2)
    began = time.monotonic()
    wire.broker.sendall(messages(1, 2, 3))
    assert take(wire.client, len(message(1))) == message(1)
    assert take(wire.client, len(messages(2, 3))) == messages(2, 3)
    assert time.monotonic() - began >= 0.2


def test_a_delay_of_everything_is_one_of_any_octets_and_of_the_end(
    proxy: Proxy, wire: Wire
) -> None:
    proxy.delay(0.1)
    began = time.monotonic()
    wire.client.sendall(b"\x16\x03 garbage")
    assert take(wire.broker, 10) == b"\x16\x03 garbage"
    assert time.monotonic() - began >= 0.1
    began = time.monotonic()
    wire.client.shutdown(socket.SHUT_WR)
    assert rest(wire.broker) == b""
    assert time.monotonic() - began >= 0.1


def test_a_frame_and_the_line_feed_after_it_are_delayed_as_one(proxy: Proxy, wire: Wire) -> None:
    delayed = proxy.delay(0.01, direction="sent")
    proxy.drop("ERROR")  # now frames are told apart
    octets = encode(Frame("RECEIPT", {"receipt-id": "1"})) + b"\n"
    wire.broker.sendall(octets)
    assert take(wire.client, len(octets)) == octets
    assert delayed.count == 1


def test_a_delay_can_vary(bench: Bench) -> None:
    def delays(seed: int) -> list[float]:
        client, broker = bench.wire(proxy := bench.proxy(seed=seed))
        proxy.delay(0.0, "SEND", jitter_s=0.2)
        taken = []
        for number in range(4):
            began = time.monotonic()
            client.sendall(send(number))
            take(broker, len(send(number)))
            taken.append(time.monotonic() - began)
        return taken

    # The delays depend on the seed and on the speed of the machine.
    assert max(delays(seed=1)) >= 0.1


def test_what_is_delayed_goes_when_the_fault_is_removed(proxy: Proxy, wire: Wire) -> None:
    short, long = proxy.delay(0.1), proxy.delay(10 * LONG_S, "SEND")
    began = time.monotonic()
    wire.client.sendall(send(1))
    long.wait()
    long.remove()
    assert take(wire.broker, len(send(1))) == send(1)
    assert time.monotonic() - began >= 0.1
    assert short.count == 1


def test_bandwidth_bounds_how_fast_octets_pass(proxy: Proxy, wire: Wire) -> None:
    fault = proxy.bandwidth(10_000, direction="sent")
    wire.client.sendall(bytes(100_000))  # takes ten seconds in the other direction
    assert take(wire.broker, 100_000) == bytes(100_000)
    began = time.monotonic()
    assert passed(wire, messages(*range(40))) == messages(*range(40))
    allowed = len(messages(*range(40))) - 500  # the part that is sent at once
    assert time.monotonic() - began >= allowed / 10_000
    assert fault.count > 0


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel for numbers of segments")
@pytest.mark.parametrize("octets", [1, 5])
def test_a_split_frame_comes_in_segments_of_its_own(proxy: Proxy, wire: Wire, octets: int) -> None:
    def segments() -> int:
        """Return the number of received segments with data (Linux: tcpi_data_segs_in)."""
        info = wire.client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
        number: int = struct.unpack_from("I", info, 152)[0]
        return number

    wire.broker.sendall(message(1))
    take(wire.client, len(message(1)))
    whole = segments()
    proxy.split("MESSAGE", octets=octets)
    wire.broker.sendall(message(2))
    assert take(wire.client, len(message(2))) == message(2)
    assert whole == 1
    # As many as there are parts. On a busy machine some are sent together, but the first ten are
    # always sent at once.
    assert 10 <= segments() - whole <= -(-len(message(2)) // octets)


def test_everything_can_be_split(proxy: Proxy, wire: Wire) -> None:
    fault = proxy.split(octets=2, pause_s=0.0)
    wire.client.sendall(b"no STOMP at all")
    assert take(wire.broker, 15) == b"no STOMP at all"
    assert fault.count == 1


def test_held_frames_go_in_their_order_when_the_fault_is_removed(proxy: Proxy, wire: Wire) -> None:
    fault = proxy.hold("MESSAGE", destination="/queue/held")
    held = message(1, "/queue/held") + message(2, "/queue/held")
    wire.broker.sendall(held + message(3))
    assert take(wire.client, len(message(3))) == message(3)
    assert fault.count == 2
    fault.remove()
    assert take(wire.client, len(held)) == held


def test_the_end_of_a_connection_waits_for_held_frames(proxy: Proxy, wire: Wire) -> None:
    fault = proxy.hold("MESSAGE", nth=1)
    wire.broker.sendall(messages(1, 2))
    wire.broker.shutdown(socket.SHUT_WR)
    assert take(wire.client, len(message(2))) == message(2)
    wire.client.sendall(b"x")
    assert take(wire.broker, 1) == b"x"  # so the proxy has received the end
    fault.remove()
    assert rest(wire.client) == message(1)


def test_when_everything_is_held_nothing_passes_not_even_the_end(
    bench: Bench, proxy: Proxy, wire: Wire
) -> None:
    fault = proxy.hold(connection=1)
    wire.client.sendall(CONNECT[:10])
    wire.client.sendall(b"\n" + CONNECT)
    wire.client.shutdown(socket.SHUT_WR)
    fault.wait(timeout_s=LONG_S)
    other = bench.wire(proxy)
    other.client.sendall(b"x")
    assert take(other.broker, 1) == b"x"
    wire.broker.setblocking(False)
    with pytest.raises(BlockingIOError):
        wire.broker.recv(1)
    wire.broker.settimeout(LONG_S)
    fault.remove()
    assert rest(wire.broker) == CONNECT[:10] + b"\n" + CONNECT


#: Faults that make data wait, much longer than a test.
WAITING: dict[str, Callable[[Proxy], Fault]] = {
    "hold": lambda proxy: proxy.hold("MESSAGE"),
    "reorder": lambda proxy: proxy.reorder("MESSAGE", by=9, nth=2),
    "delay": lambda proxy: proxy.delay(10 * LONG_S, "MESSAGE"),
    "split": lambda proxy: proxy.split("MESSAGE", pause_s=10 * LONG_S),
}


@pytest.mark.parametrize("names", [*permutations(WAITING, 1), *permutations(WAITING, 2)], ids=str)
@pytest.mark.parametrize("heals", [True, False], ids=["heal", "one by one"])
def test_no_fault_that_is_gone_keeps_data_or_loses_it(
    proxy: Proxy, wire: Wire, names: tuple[str, ...], *, heals: bool
) -> None:
    faults = [WAITING[name](proxy) for name in names]
    wire.broker.sendall(messages(1, 2, 3))
    for fault in faults:
        fault.wait(timeout_s=LONG_S)
    wire.broker.shutdown(socket.SHUT_WR)
    wire.client.sendall(b"x")
    assert take(wire.broker, 1) == b"x"  # so the proxy has received the end
    if heals:
        proxy.heal()
    else:
        for fault in faults:
            fault.remove()
    assert sorted(numbers(rest(wire.client))) == [1, 2, 3]


def test_a_sender_waits_when_very_much_is_held(proxy: Proxy, wire: Wire) -> None:
    fault = proxy.hold()
    chunk = bytes(1024 * 1024)
    sent = 0
    wire.broker.settimeout(1.0)
    with pytest.raises(TimeoutError):
        while sent < MANY_BYTES:
            sent += wire.broker.send(chunk)
    wire.broker.settimeout(LONG_S)
    fault.remove()
    thread = sent_in_thread(wire.broker, [b"end"])
    assert len(rest(wire.client)) == sent + 3
    thread.join(LONG_S)


def test_receipts_are_withheld(proxy: Proxy, wire: Wire) -> None:
    fault = proxy.withhold_receipts(receipt_id="end")
    other = END.replace(b"end", b"x")
    wire.broker.sendall(END + message(1) + other)
    assert take(wire.client, len(message(1) + other)) == message(1) + other
    fault.remove()
    assert take(wire.client, len(END)) == END


def test_two_faults_that_hold_a_frame_both_have_to_let_it_go(proxy: Proxy, wire: Wire) -> None:
    first, second = proxy.hold("MESSAGE"), proxy.hold("MESSAGE")
    wire.broker.sendall(message(1))
    second.wait(timeout_s=LONG_S)
    first.remove()
    wire.broker.sendall(END)
    assert take(wire.client, len(END)) == END
    second.remove()
    assert take(wire.client, len(message(1))) == message(1)


@pytest.mark.parametrize("direction", ["received", "sent"])
def test_heart_beats_are_swallowed_and_frames_are_not(
    proxy: Proxy, wire: Wire, direction: Any
) -> None:
    fault = proxy.swallow_heart_beats(direction)
    octets = b"\n" + message(1) + b"\n\r\n\n" + message(2) + b"\n"
    sender, other = wire if direction == "received" else reversed(wire)
    sender.sendall(octets)
    # The line feed after a frame is a part of it.
    rest = message(1) + b"\n" + message(2) + b"\n"
    assert take(other, len(rest)) == rest
    assert wait_until(lambda: fault.count == 3, LONG_S)
    other.sendall(octets)
    assert take(sender, len(octets)) == octets


# Injected frames.


def test_octets_are_injected_at_once(proxy: Proxy, wire: Wire) -> None:
    proxy.inject(b"ERROR\n\n\0")
    assert take(wire.client, 8) == b"ERROR\n\n\0"
    proxy.inject(b"\n", direction="received", connection=1)
    assert take(wire.broker, 1) == b"\n"


def test_a_frame_is_injected_after_another_that_goes_the_same_way(proxy: Proxy, wire: Wire) -> None:
    proxy.inject(Frame("MESSAGE", {"x": "y"}), "MESSAGE", message_id="2")
    injected = b"MESSAGE\nx:y\n\n\0"
    assert passed(wire, messages(1, 2, 3)) == messages(1, 2) + injected + message(3)


def test_a_frame_is_injected_in_answer_to_another(proxy: Proxy, wire: Wire) -> None:
    fault = proxy.inject(Frame("RECEIPT", {"receipt-id": "end"}), "SEND", nth=2)
    wire.client.sendall(send(1) + send(2) + send(3))
    assert take(wire.client, len(END)) == END
    assert take(wire.broker, len(send(1)) * 3) == send(1) + send(2) + send(3)
    assert fault.count == 1


def test_what_is_injected_waits_for_the_frame_that_is_under_way(proxy: Proxy, wire: Wire) -> None:
    octets = message(1)
    wire.broker.sendall(octets[:20])
    assert take(wire.client, 20) == octets[:20]
    proxy.inject(END)
    wire.broker.sendall(octets[20:] + messages(2, 3)[:-5])
    expected = octets[20:] + END + messages(2, 3)[:-5]
    assert take(wire.client, len(expected)) == expected


def test_a_frame_is_injected_as_the_version_has_it(proxy: Proxy, wire: Wire) -> None:
    for version, value in ((b"1.0", b"a:b"), (b"1.1", b"a\\cb")):
        wire.broker.sendall(connected := CONNECTED.replace(b"1.2", version))
        take(wire.client, len(connected))
        proxy.inject(Frame("MESSAGE", {"x": "a:b"}))
        expected = b"MESSAGE\nx:" + value + b"\n\n\0"
        assert take(wire.client, len(expected)) == expected


def test_a_frame_that_not_every_version_has_is_not_injected(proxy: Proxy) -> None:
    with pytest.raises(LocalProtocolError):
        proxy.inject(Frame("MESSAGE", {"x": "two\nlines"}))


# Connections that end.

ENDINGS: list[tuple[str, Callable[[socket.socket], bytes]]] = [("close", rest), ("reset", cut_off)]


@pytest.mark.parametrize(("name", "read_to_the_end"), ENDINGS)
@pytest.mark.parametrize("when", ["instead", "after"])
def test_a_connection_ends_at_a_frame(
    proxy: Proxy,
    wire: Wire,
    name: str,
    read_to_the_end: Callable[[socket.socket], bytes],
    when: str,
) -> None:
    getattr(proxy, name)("SEND", destination="/queue/y", after=when == "after")
    wire.client.sendall(send(1) + send(2, "/queue/y") + send(3))
    expected = send(1) + (send(2, "/queue/y") if when == "after" else b"")
    assert read_to_the_end(wire.broker) == expected
    assert read_to_the_end(wire.client) == b""


@pytest.mark.parametrize(("name", "read_to_the_end"), ENDINGS)
def test_open_connections_end_at_once_and_later_ones_do_not(
    bench: Bench, name: str, read_to_the_end: Callable[[socket.socket], bytes]
) -> None:
    log = FrameLog()
    proxy = bench.proxy(frames=log)
    wires = [bench.wire(proxy) for _ in range(3)]
    assert getattr(proxy, name)(connection=2).count == 1
    assert read_to_the_end(wires[1].client) == read_to_the_end(wires[1].broker) == b""
    assert getattr(proxy, name)().count == 2
    for wire in (wires[0], wires[2]):
        assert read_to_the_end(wire.client) == read_to_the_end(wire.broker) == b""
    assert log.connections == 0
    assert f"closed: fault: {name}" in log.text()
    later = bench.wire(proxy)
    later.client.sendall(b"x")
    assert take(later.broker, 1) == b"x"


@pytest.mark.parametrize(("name", "read_to_the_end"), ENDINGS)
def test_later_connections_end_if_they_are_to(
    bench: Bench, proxy: Proxy, name: str, read_to_the_end: Callable[[socket.socket], bytes]
) -> None:
    fault = getattr(proxy, name)(later=True, nth=2)
    first = bench.wire(proxy)
    turned_away(bench, proxy, read_to_the_end)
    with bench.upstream.accept() as broker:
        assert read_to_the_end(broker) == b""
    for wire in (first, bench.wire(proxy)):
        wire.client.sendall(b"x")
        assert take(wire.broker, 1) == b"x"
    assert fault.count == 1


def test_a_connection_that_the_broker_has_not_accepted_yet_can_be_reset(
    bench: Bench, proxy: Proxy
) -> None:
    clients = [bench.client(proxy) for _ in range(10)]
    assert proxy.reset().count == 10
    for client in clients:
        assert cut_off(client) == b""


def test_disconnect_closes_all_connections(bench: Bench, proxy: Proxy) -> None:
    wires = [bench.wire(proxy) for _ in range(2)]
    proxy.disconnect()
    for wire in wires:
        assert rest(wire.client) == rest(wire.broker) == b""


def test_what_nobody_has_read_does_not_make_a_close_a_reset(proxy: Proxy, wire: Wire) -> None:
    proxy.stop_reading("broker")
    proxy.stop_reading("client")
    wire.client.sendall(send(1))
    wire.broker.sendall(message(1))
    proxy.close()
    assert rest(wire.client) == rest(wire.broker) == b""


@pytest.mark.parametrize("gone", ["broker", "client"])
def test_a_half_open_connection_is_cut_off_on_one_side_only(
    proxy: Proxy, wire: Wire, gone: Any
) -> None:
    kept, lost = wire if gone == "broker" else reversed(wire)
    fault = proxy.half_open(gone=gone)
    assert cut_off(lost) == b""
    kept.sendall(bytes(MANY_BYTES // 16))  # cannot arrive, but is accepted
    kept.setblocking(False)
    with pytest.raises(BlockingIOError):
        kept.recv(1)
    kept.settimeout(LONG_S)
    assert fault.count == 1
    fault.remove()
    assert cut_off(kept) == b""


def test_a_connection_is_half_open_from_a_frame_on(bench: Bench) -> None:
    log = FrameLog()
    proxy = bench.proxy(frames=log)
    wire = bench.wire(proxy)
    proxy.half_open("SEND", nth=2)
    wire.client.sendall(send(1) + send(2) + send(3))
    assert cut_off(wire.broker) == send(1)
    assert log.connections == 1
    wire.client.close()
    log.wait_for_connections(0)


def test_a_connection_can_be_half_open_before_the_broker_has_accepted_it(
    bench: Bench, proxy: Proxy
) -> None:
    clients = [bench.client(proxy) for _ in range(10)]
    fault = proxy.half_open()
    fault.wait(10)
    for client in clients:
        client.sendall(bytes(1_000_000))
        with bench.upstream.accept() as broker:
            assert cut_off(broker) == b""
    fault.remove()
    for client in clients:
        assert cut_off(client) == b""


@pytest.mark.parametrize("side", ["client", "broker"])
def test_a_side_that_does_not_read_makes_the_other_one_wait(
    bench: Bench, proxy: Proxy, wire: Wire, side: Any
) -> None:
    receiver, sender = wire if side == "client" else reversed(wire)
    fault = proxy.stop_reading(side, connection=1)
    sender.settimeout(1.0)
    sent = 0
    with pytest.raises(TimeoutError):
        while sent < MANY_BYTES:
            sent += sender.send(bytes(1024 * 1024))
    sender.settimeout(LONG_S)
    receiver.setblocking(False)
    with pytest.raises(BlockingIOError):
        receiver.recv(1)
    receiver.settimeout(LONG_S)
    receiver.sendall(b"the other direction")
    assert take(sender, 19) == b"the other direction"
    assert fault.count == 1
    fault.remove()
    thread = sent_in_thread(sender, [b"end"])
    assert len(rest(receiver)) == sent + 3
    thread.join(LONG_S)


def test_later_connections_do_not_read_if_they_are_not_to(bench: Bench, proxy: Proxy) -> None:
    fault = proxy.stop_reading("broker", later=True)
    wire = bench.wire(proxy)
    fault.wait(timeout_s=LONG_S)
    wire.client.sendall(b"x")
    wire.broker.sendall(b"y")
    assert take(wire.client, 1) == b"y"
    wire.broker.setblocking(False)
    with pytest.raises(BlockingIOError):
        wire.broker.recv(1)
    wire.broker.settimeout(LONG_S)
    proxy.heal()
    assert take(wire.broker, 1) == b"x"


# Connections that are refused.


def test_nobody_listens_while_connections_are_refused(
    bench: Bench, proxy: Proxy, wire: Wire
) -> None:
    fault = proxy.refuse()
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            bench.client(proxy)
    wire.client.sendall(b"still here")
    assert take(wire.broker, 10) == b"still here"
    assert fault.count == 1
    fault.remove()
    later = bench.wire(proxy)
    later.client.sendall(b"x")
    assert take(later.broker, 1) == b"x"


def test_some_connections_are_accepted_and_reset(bench: Bench, proxy: Proxy) -> None:
    fault = proxy.refuse(times=2)
    for _ in range(2):
        turned_away(bench, proxy, cut_off)
    assert fault.count == 2
    wire = bench.wire(proxy)
    wire.client.sendall(b"x")
    assert take(wire.broker, 1) == b"x"


def test_a_proxy_can_refuse_from_its_start(bench: Bench) -> None:
    proxy = Proxy("127.0.0.1", bench.upstream.port)
    fault = proxy.refuse()
    with proxy:
        with pytest.raises(ConnectionRefusedError):
            bench.client(proxy)
        fault.remove()
        bench.wire(proxy)


# Which frames, and how often.


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ({}, []),
        ({"nth": 3}, [1, 2, 4, 5, 6, 7, 8]),
        ({"every": 3}, [1, 2, 4, 5, 7, 8]),
        ({"times": 2}, [3, 4, 5, 6, 7, 8]),
        ({"every": 2, "times": 2}, [1, 3, 5, 6, 7, 8]),
        ({"probability": 0}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"probability": 1.0}, []),
        ({"headers": {"message-id": "4"}}, [1, 2, 3, 5, 6, 7, 8]),
        ({"message_id": re.compile("[2-6]"), "nth": 2}, [1, 2, 4, 5, 6, 7, 8]),
        ({"body": "body 5"}, [1, 2, 3, 4, 6, 7, 8]),
        ({"body": re.compile(b"[78]$")}, [1, 2, 3, 4, 5, 6]),
        ({"receipt": None}, []),
        ({"direction": "sent"}, []),
        ({"connection": 2}, [1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_a_fault_is_about_the_frames_that_are_meant(
    proxy: Proxy, wire: Wire, where: dict[str, Any], kept: list[int]
) -> None:
    fault = proxy.drop("MESSAGE", **where)
    assert numbers(passed(wire, messages(*range(1, 9)))) == kept
    assert fault.count == 8 - len(kept)


def test_frames_are_counted_over_all_connections(bench: Bench, proxy: Proxy) -> None:
    first, second = bench.wire(proxy), bench.wire(proxy)
    proxy.drop("MESSAGE", nth=3)
    first.broker.sendall(messages(1, 2))
    assert take(first.client, len(messages(1, 2))) == messages(1, 2)
    assert passed(second, messages(3, 4)) == message(4)


def test_a_fault_in_one_direction_leaves_the_other_untouched(proxy: Proxy, wire: Wire) -> None:
    proxy.drop("MESSAGE")
    wire.client.sendall(b"SEND\nhalf a fra")
    assert take(wire.broker, 15) == b"SEND\nhalf a fra"


def test_later_faults_act_on_what_earlier_ones_have_left(proxy: Proxy, wire: Wire) -> None:
    double = proxy.duplicate("MESSAGE")
    drop = proxy.drop("MESSAGE", nth=2)
    late = proxy.duplicate("MESSAGE")
    assert numbers(passed(wire, messages(1, 2))) == [1, 1, 1, 1]
    assert (double.count, drop.count, late.count) == (2, 1, 1)


def test_a_frame_that_is_under_way_when_a_fault_is_made_passes_whole(
    proxy: Proxy, wire: Wire
) -> None:
    octets = send(1)
    wire.client.sendall(octets[:20])
    assert take(wire.broker, 20) == octets[:20]
    fault = proxy.drop("SEND")
    wire.client.sendall(octets[20:] + send(2) + b"\n")
    assert take(wire.broker, len(octets) - 20 + 1) == octets[20:] + b"\n"
    assert fault.count == 1


def test_a_frame_that_is_under_way_when_a_fault_is_removed_passes_as_it_comes(
    bench: Bench,
) -> None:
    lines: list[str] = []
    proxy = bench.proxy(told=lines.append)
    wire = bench.wire(proxy)
    fault = proxy.drop("SEND")
    wire.client.sendall(send(1) + send(2)[:20])
    fault.wait(timeout_s=LONG_S)
    fault.remove()
    assert take(wire.broker, 20) == send(2)[:20]
    wire.client.sendall(send(2)[20:] + send(3))
    assert take(wire.broker, len(send(2)) - 20) == send(2)[20:]
    assert take(wire.broker, len(send(3))) == send(3)


def test_what_is_no_frame_passes_from_there_on(proxy: Proxy, wire: Wire) -> None:
    fault = proxy.drop("SEND")
    octets = b"SEND\na header without a colon\n\n\0" + send(2)[:-5]
    wire.client.sendall(send(1) + octets)
    assert take(wire.broker, len(octets)) == octets
    wire.client.sendall(send(2)[-5:] + send(3))
    assert take(wire.broker, 5 + len(send(3))) == send(2)[-5:] + send(3)
    assert fault.count == 1


def test_what_comes_after_the_end_by_a_fault_is_not_counted(proxy: Proxy, wire: Wire) -> None:
    proxy.close("SEND", nth=2)
    others = proxy.duplicate("SEND")
    wire.client.sendall(send(1) + send(2) + send(3) + send(4))
    assert rest(wire.broker) == send(1) * 2
    assert others.count == 1


def test_heal_removes_all_faults(proxy: Proxy, wire: Wire) -> None:
    hold = proxy.hold("MESSAGE")
    proxy.drop("SEND")
    wire.broker.sendall(message(1))
    hold.wait()
    proxy.heal()
    assert take(wire.client, len(message(1))) == message(1)
    wire.client.sendall(send(1))
    assert take(wire.broker, len(send(1))) == send(1)


# Random faults.


def broken(bench: Bench, seed: int, *, chunk_bytes: int, others: int = 0) -> tuple[bytes, bytes]:
    """Return the bytes that pass a proxy with random faults, in both directions."""
    proxy = bench.proxy(seed=seed)
    proxy.drop("MESSAGE", probability=0.3)
    proxy.duplicate("MESSAGE", probability=0.3)
    proxy.corrupt("SEND", probability=0.5, octets=2)
    client, broker = bench.wire(proxy)
    other = bench.wire(proxy)
    said, answered = b"".join(map(send, range(30))), messages(*range(30))
    came = []
    for sender, receiver, octets in ((client, broker, said), (broker, client, answered)):
        thread = sent_in_thread(
            sender, [octets[at : at + chunk_bytes] for at in range(0, len(octets), chunk_bytes)]
        )
        for _ in range(others):
            other.broker.sendall(message(1))
            other.client.sendall(send(1))
        came.append(rest(receiver))
        thread.join(LONG_S)
    return came[0], came[1]


def test_the_same_seed_and_traffic_have_the_same_faults(bench: Bench) -> None:
    first = broken(bench, 7, chunk_bytes=10_000)
    assert first == broken(bench, 7, chunk_bytes=10_000)
    assert first == broken(bench, 7, chunk_bytes=11), "faults depend on how octets come"
    assert first == broken(bench, 7, chunk_bytes=500, others=20), "faults depend on others"
    assert first != broken(bench, 8, chunk_bytes=10_000)


def test_two_faults_of_a_proxy_do_not_share_their_luck(proxy: Proxy, wire: Wire) -> None:
    faults = [proxy.duplicate("MESSAGE", probability=0.5) for _ in range(2)]
    octets = numbers(passed(wire, messages(*range(64))))
    copies = {octets.count(number) for number in range(64)}
    assert copies == {1, 2, 4}
    assert all(0 < fault.count < 64 for fault in faults)


# The value that the methods return.


def test_a_fault_says_what_it_is(proxy: Proxy) -> None:
    fault = proxy.drop("MESSAGE", destination="/queue/x", nth=3)
    assert fault.kind == "drop"
    assert fault.match.command == "MESSAGE"
    assert str(fault) == "drop: MESSAGE with destination '/queue/x', only the 3rd"
    assert repr(fault) == f"<Fault {fault}: happened 0 times>"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda proxy: proxy.delay(0.5), "delay: all bytes, 0.5 s"),
        (lambda proxy: proxy.delay(1, "SEND", jitter_s=0.5), "delay: SEND, 1 s to 1.5 s"),
        (lambda proxy: proxy.hold(direction="sent"), "hold: all bytes sent"),
        (lambda proxy: proxy.split(octets=1), "split: all bytes, 1 byte at a time"),
        (lambda proxy: proxy.bandwidth(1e3), "bandwidth: all bytes, 1000 bytes per second"),
        (lambda proxy: proxy.swallow_heart_beats("sent"), "swallow_heart_beats: sent"),
        (lambda proxy: proxy.swallow_heart_beats(), "swallow_heart_beats"),
        (lambda proxy: proxy.reset(connection=2), "reset: connection 2"),
        (lambda proxy: proxy.close(later=True, every=11), "close: connections, every 11th"),
        (lambda proxy: proxy.half_open("ACK", times=1), "half_open: ACK, broker gone, once"),
        (lambda proxy: proxy.stop_reading(), "stop_reading: connections, at the client"),
        (lambda proxy: proxy.refuse(2), "refuse: connections, at most 2 times"),
        (lambda proxy: proxy.truncate("SEND"), "truncate: SEND, after half of it"),
        (lambda proxy: proxy.corrupt(octets=2), "corrupt: any frame, 2 bytes"),
        (
            lambda proxy: proxy.drop("SEND", probability=0.25, every=2, connection=1),
            "drop: SEND on connection 1, every 2nd, with probability 0.25",
        ),
        (
            lambda proxy: proxy.inject(Frame("ERROR"), "SEND", every=22),
            "inject: SEND, ERROR to the client, every 22nd",
        ),
    ],
)
def test_a_fault_is_told_in_words(proxy: Proxy, make: Callable[[Proxy], Fault], words: str) -> None:
    assert str(make(proxy)) == words


def test_a_fault_that_does_not_happen_is_told(proxy: Proxy, wire: Wire) -> None:
    fault = proxy.drop("MESSAGE", nth=3)
    wire.broker.sendall(messages(1, 2))
    take(wire.client, len(messages(1, 2)))
    with pytest.raises(FaultNotSeenError) as told:
        fault.wait(timeout_s=0.01)
    assert str(told.value) == (
        "drop: MESSAGE, only the 3rd: happened 0 times within 0.01 s, wanted 1;"
        " 2 could have been it"
    )


def test_a_fault_that_does_not_happen_is_told_with_what_came_instead(bench: Bench) -> None:
    proxy = bench.proxy(frames=FrameLog())
    client, broker = bench.wire(proxy)
    fault = proxy.drop("MESSAGE")
    octets = send(1)
    client.sendall(octets)
    take(broker, len(octets))
    with pytest.raises(FaultNotSeenError, match=r"came to the proxy:\n(.|\n)* SEND  destination:"):
        fault.wait(timeout_s=0.01)


def test_a_fault_can_be_waited_for(proxy: Proxy, wire: Wire) -> None:
    fault = proxy.drop("MESSAGE")
    thread = threading.Thread(target=fault.wait, args=(3, LONG_S))
    thread.start()
    wire.broker.sendall(messages(1, 2, 3))
    thread.join(LONG_S)
    assert not thread.is_alive()
    assert fault.count == 3


def test_a_fault_goes_with_its_block_and_can_be_removed_twice(proxy: Proxy, wire: Wire) -> None:
    with proxy.drop("MESSAGE") as fault:
        wire.broker.sendall(message(1))
        fault.wait(timeout_s=LONG_S)
    wire.broker.sendall(message(2))
    assert take(wire.client, len(message(2))) == message(2)
    fault.remove()
    proxy.stop()
    fault.remove()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda proxy: proxy.drop("MESAGE"), "'MESAGE' is not a command"),
        (lambda proxy: proxy.drop("SEND", tims=1), "nor None; did you mean times?"),
        (lambda proxy: proxy.drop("SEND", conection=1), "nor None; did you mean connection?"),
        (lambda proxy: proxy.drop(nth=0), "nth is 0, not 1 or more"),
        (lambda proxy: proxy.drop(every=1.5), "every is 1.5, not a whole number"),
        (lambda proxy: proxy.drop(times=True), "times is True, not a whole number"),
        (lambda proxy: proxy.drop(probability=1.5), "probability is 1.5, not 0 to 1"),
        (lambda proxy: proxy.drop(direction="up"), "direction is 'up'"),
        (lambda proxy: proxy.duplicate(copies=0), "copies is 0"),
        (lambda proxy: proxy.delay(-1), "seconds is -1, not 0 or more"),
        (lambda proxy: proxy.delay(float("nan")), "seconds is nan"),
        (lambda proxy: proxy.delay("1"), "seconds is '1', not a number"),
        (lambda proxy: proxy.bandwidth(0), "bytes_per_s is 0, not 1 or more"),
        (lambda proxy: proxy.half_open(gone="both"), "gone is 'both', not client or broker"),
        (lambda proxy: proxy.stop_reading("both"), "side is 'both'"),
        (lambda proxy: proxy.inject("text"), "what is 'text', neither a frame nor bytes"),
        (lambda proxy: proxy.reset("SEND", later=True), "not both"),
        (lambda proxy: proxy.reset(later=True, destination="/queue/x"), "not both"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(
    proxy: Proxy, make: Callable[[Proxy], Fault], told: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(told)):
        make(proxy)


# A stompkit broker.


class Client:
    """Raw frames to and from a broker, one at a time."""

    def __init__(self, stack: ExitStack, proxy: Proxy, heart_beat: str = "0,0") -> None:
        """Connect and log in."""
        self.socket = stack.enter_context(
            socket.create_connection((proxy.host, proxy.port), LONG_S)
        )
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []
        headers = {"accept-version": "1.2", "host": "x", "heart-beat": heart_beat}
        self.socket.sendall(encode(Frame("CONNECT", headers)))
        assert self.receive().command == "CONNECTED"
        self._decoder.negotiated("1.2")

    def send(self, command: str, body: bytes = b"", **headers: str) -> None:
        """Send a frame; ``_`` in the names of headers stands for ``-``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.socket.sendall(encode(Frame(command, named, body), "1.2"))

    def receive(self) -> Frame:
        """Return the next frame."""
        while not self._frames:
            data = self.socket.recv(65_536)
            assert data, "the broker closed the connection"
            self._frames = self._decoder.feed(data)
        return self._frames.pop(0)


@pytest.fixture
def before(broker: RunningBroker) -> Iterator[Proxy]:
    """A proxy in front of a stompkit broker."""
    with Proxy(broker.host, broker.port, frames=FrameLog()) as proxy:
        yield proxy


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """The resources that are closed at the end of a test."""
    with ExitStack() as stack:
        yield stack


def test_a_message_whose_acknowledgement_got_lost_comes_again(
    before: Proxy, stack: ExitStack
) -> None:
    lost = before.drop("ACK", times=1)
    client = Client(stack, before)
    client.send("SUBSCRIBE", destination="/queue/lost", id="1", ack="client")
    client.send("SEND", b"order", destination="/queue/lost")
    message = client.receive()
    client.send("ACK", id=message.headers["ack"])
    lost.wait()
    before.reset()
    again = Client(stack, before)
    again.send("SUBSCRIBE", destination="/queue/lost", id="1", ack="client")
    assert again.receive().headers["redelivered"] == "true"


def test_a_broker_that_gets_no_heart_beats_gives_up(before: Proxy, stack: ExitStack) -> None:
    before.swallow_heart_beats("received")
    client = Client(stack, before, heart_beat="100,0")
    deadline = time.monotonic() + LONG_S
    client.socket.settimeout(0.05)
    octets = b""
    with suppress(ConnectionError):
        while time.monotonic() < deadline:
            client.socket.sendall(b"\n")
            with suppress(TimeoutError):
                octets = client.socket.recv(1000)
                if not octets or octets.startswith(b"ERROR"):
                    break
    assert time.monotonic() < deadline, "the broker has not given up"


def test_a_receipt_that_is_withheld_is_for_something_that_was_done(
    before: Proxy, stack: ExitStack
) -> None:
    fault = before.withhold_receipts()
    client = Client(stack, before)
    client.send("SEND", b"kept", destination="/queue/done", receipt="1")
    client.send("SUBSCRIBE", destination="/queue/done", id="1")
    assert client.receive().body == b"kept"
    fault.remove()
    assert client.receive().headers == {"receipt-id": "1"}


def test_a_frame_that_comes_in_single_octets_is_understood(before: Proxy, stack: ExitStack) -> None:
    fault = before.split("SEND", pause_s=0.0)
    client = Client(stack, before)
    client.send("SUBSCRIBE", destination="/queue/split", id="1")
    client.send("SEND", b"whole", destination="/queue/split")
    assert client.receive().body == b"whole"
    assert fault.count == 1


def test_a_connection_that_the_client_believes_to_be_open_is_closed_for_the_broker(
    before: Proxy, stack: ExitStack
) -> None:
    first = Client(stack, before)
    first.send("SUBSCRIBE", destination="/queue/open", id="1", ack="client")
    first.send("SEND", b"work", destination="/queue/open")
    assert first.receive().body == b"work"
    before.half_open(connection=1)
    second = Client(stack, before)
    second.send("SUBSCRIBE", destination="/queue/open", id="1", ack="client")
    assert second.receive().body == b"work"
    first.send("SEND", b"into the void", destination="/queue/open")
