"""The proxy without faults: forwarding, the start and end of connections, the log."""

from __future__ import annotations

import errno
import gc
import select
import socket
import ssl
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stompkit.frames import VERSIONS, Frame, encode
from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.proxy import FrameLog, Proxy
from stompkit.testing.proxy.pieces import Piece, Splitter
from stompkit.testing.strategies import chunkings, client_frames, frames, mutations, wire_garbage
from tests.effort import drawn
from tests.server.certificates import Authority

LONG_S = 60.0
NO_LINGER = struct.pack("ii", 1, 0)
#: More than all buffers between two sockets.
MANY_BYTES = 256 * 1024 * 1024

CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
CONNECTED = b"CONNECTED\nversion:1.2\n\n\0"


class Upstream:
    """A server that the test controls."""

    def __init__(self) -> None:
        """Listen on a free port."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(LONG_S)
        self.port: int = self._listener.getsockname()[1]

    def accept(self) -> socket.socket:
        """Return the next connection."""
        connection, _ = self._listener.accept()
        connection.settimeout(LONG_S)
        return connection

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()


class Wire(NamedTuple):
    """Both ends of a connection through a proxy."""

    client: socket.socket
    broker: socket.socket


class Bench:
    """Servers, proxies and connections, which are closed with the test."""

    def __init__(self, stack: ExitStack) -> None:
        """Start a server, and register the clean-up with the stack."""
        self._stack = stack
        self.upstream = Upstream()
        stack.callback(self.upstream.close)

    def proxy(
        self,
        *,
        seed: int = 0,
        frames: FrameLog | None = None,
        told: Callable[[str], None] | None = None,
    ) -> Proxy:
        """Return a proxy in front of the server."""
        proxy = Proxy("127.0.0.1", self.upstream.port, seed=seed, frames=frames, told=told)
        return self._stack.enter_context(proxy)

    def client(self, proxy: Proxy) -> socket.socket:
        """Return a client that has connected to a proxy."""
        client = socket.create_connection((proxy.host, proxy.port), LONG_S)
        return self._stack.enter_context(client)

    def wire(self, proxy: Proxy) -> Wire:
        """Return a client that has connected, and the server's end of its connection."""
        client = self.client(proxy)
        return Wire(client, self._stack.enter_context(self.upstream.accept()))


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Servers, proxies and connections for both sides of a proxy."""
    with ExitStack() as stack:
        yield Bench(stack)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A stompkit broker."""
    with launch(LaunchConfig()) as broker:
        yield broker


def take(connection: socket.socket, number: int) -> bytes:
    """Read exactly this many bytes."""
    octets = b""
    while len(octets) < number:
        more = connection.recv(number - len(octets))
        assert more, f"the connection ended after {octets!r}"
        octets += more
    return octets


def rest(connection: socket.socket) -> bytes:
    """Read until the end, which has to be a clean one."""
    octets = b""
    while more := connection.recv(65_536):
        octets += more
    return octets


def cut_off(connection: socket.socket) -> bytes:
    """Read until the connection is reset, and return the earlier bytes."""
    octets = b""
    with suppress(ConnectionResetError):
        while more := connection.recv(65_536):
            octets += more
        pytest.fail(f"the connection was closed in order after {octets!r}")
    return octets


def turned_away(
    bench: Bench, proxy: Proxy, read_to_the_end: Callable[[socket.socket], bytes]
) -> None:
    """Connect, and check that the connection ends before any data."""
    try:
        client = bench.client(proxy)
    except ConnectionResetError:  # during the connection attempt
        assert read_to_the_end is cut_off
    else:
        assert read_to_the_end(client) == b""


def wait_until_readable(connection: socket.socket) -> None:
    assert select.select([connection], [], [], LONG_S)[0]


def reset(connection: socket.socket) -> None:
    """Reset a connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    connection.close()


def sent_in_thread(connection: socket.socket, chunks: list[bytes]) -> threading.Thread:
    """Send bytes and close that direction, while the test reads."""

    def send() -> None:
        for chunk in chunks:
            connection.sendall(chunk)
        connection.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def has_thread(proxy: Proxy) -> bool:
    """Return True if its own thread runs; earlier tests may have left other proxies."""
    return repr(proxy) in {thread.name for thread in threading.enumerate()}


# Pieces.


def pieces_of(chunks: list[bytes]) -> list[Piece]:
    splitter = Splitter()
    pieces = [piece for chunk in chunks for piece in splitter.feed(chunk)]
    return pieces + ([Piece(splitter.pending)] if splitter.pending else [])


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Draw the output of a peer: frames with line ends between them, some of them damaged."""
    parts = draw(
        st.lists(
            st.one_of(
                frames("1.2").map(lambda frame: encode(frame, "1.2")),
                frames("1.0").map(lambda frame: encode(frame, "1.0")),
                st.sampled_from([b"\n", b"\r\n", b"\0", b"\r"]),
                st.binary(max_size=20),
                wire_garbage(),
            ),
            max_size=6,
        )
    )
    octets = b"".join(parts)
    if octets and draw(st.booleans()):
        octets = draw(mutations(octets))
    return draw(chunkings(octets))


@settings(deadline=None)
@given(st.one_of(streams(), st.lists(st.binary(max_size=50))))
def test_pieces_are_the_octets_that_came_however_they_came(chunks: list[bytes]) -> None:
    pieces = pieces_of(chunks)
    assert b"".join(piece.octets for piece in pieces) == b"".join(chunks)
    assert all(piece.octets for piece in pieces)


@settings(deadline=None)
@given(streams())
def test_frames_do_not_depend_on_how_they_came(chunks: list[bytes]) -> None:
    def complete(pieces: list[Piece]) -> list[Piece]:
        return [piece for piece in pieces if piece.is_frame]

    assert complete(pieces_of(chunks)) == complete(pieces_of([b"".join(chunks)]))


@st.composite
def valid_streams(draw: st.DrawFn) -> tuple[list[bytes], list[bytes]]:
    """Draw frames, and the chunks in which they arrive, with line ends between them."""
    version = draw(st.sampled_from(VERSIONS))
    with_body = client_frames(version, commands=["SEND"])
    drawn = draw(st.lists(st.one_of(frames(version), with_body), max_size=5))
    octets = [encode(frame, version) for frame in drawn]
    stream = b"".join(draw(st.sampled_from([b"", b"\n", b"\r\n"])) + each for each in octets)
    return octets, draw(chunkings(stream))


_WITH_NUL = b"SEND\r\ncontent-length:3\r\n\r\na\0b\0"


@settings(deadline=None)
@given(valid_streams())
@example(([_WITH_NUL], [_WITH_NUL[at : at + 1] for at in range(len(_WITH_NUL))]))
def test_every_valid_frame_is_a_piece(stream: tuple[list[bytes], list[bytes]]) -> None:
    octets, chunks = stream
    assert [piece.octets for piece in pieces_of(chunks) if piece.is_frame] == octets


def test_the_line_feed_that_comes_with_a_frame_is_no_heart_beat() -> None:
    frame = Piece(b"RECEIPT\nreceipt-id:1\n\n\0", is_frame=True)
    beat = Piece(b"\n", is_beat=True)
    assert pieces_of([frame.octets + b"\n\n", b"\n"]) == [frame, Piece(b"\n"), beat, beat]
    assert pieces_of([frame.octets, b"\n"]) == [frame, beat]
    assert pieces_of([b"\r\n" + frame.octets]) == [Piece(b"\r\n", is_beat=True), frame]


def test_what_is_no_stomp_is_told_from_its_first_octets() -> None:
    splitter = Splitter()
    assert splitter.feed(b"GET") == [Piece(b"GET")]
    assert splitter.feed(b"CONNECT\n\n\0") == [Piece(b"CONNECT\n\n\0")]


def test_a_frame_that_is_too_long_is_not_kept() -> None:
    splitter = Splitter()
    head = b"SEND\ncontent-length:100000000000\n\n"
    assert splitter.feed(head) == [Piece(head)]
    assert splitter.pending_bytes == 0


def test_a_head_that_does_not_end_is_not_kept() -> None:
    splitter = Splitter()
    kept = 0
    for _ in range(64):
        splitter.feed(b"SEND\n" + b"x" * 65_536)
        kept = max(kept, splitter.pending_bytes)
    assert splitter.is_lost
    assert 0 < kept < 2 * 1024 * 1024


# Forwarding.


def test_octets_pass_unchanged_in_both_directions(bench: Bench) -> None:
    client, broker = bench.wire(bench.proxy())
    client.sendall(b"not even STOMP\0\xff")
    assert take(broker, 16) == b"not even STOMP\0\xff"
    broker.sendall(b"\n\n\r")
    assert take(client, 3) == b"\n\n\r"


@pytest.mark.parametrize("how", ["alone", "logged", "with a fault about something else"])
def test_any_octets_pass_unchanged(how: str) -> None:
    with ExitStack() as stack:
        bench = Bench(stack)
        proxy = bench.proxy(frames=FrameLog() if how == "logged" else None)
        if how == "with a fault about something else":
            proxy.drop(destination="/queue/that/nobody/has", seed="nowhere")

        @settings(max_examples=drawn(30), deadline=None)
        @given(streams(), streams())
        def check(said: list[bytes], answered: list[bytes]) -> None:
            client, broker = bench.wire(proxy)
            with client, broker:
                threads = [sent_in_thread(client, said), sent_in_thread(broker, answered)]
                assert rest(broker) == b"".join(said)
                assert rest(client) == b"".join(answered)
                for thread in threads:
                    thread.join(LONG_S)

        check()


def test_large_transfers_pass_unchanged_in_both_directions(bench: Bench) -> None:
    client, broker = bench.wire(bench.proxy(frames=FrameLog()))
    said = encode(Frame("SEND", {"destination": "/queue/x"}, bytes(range(256)) * 40_000), "1.2")
    answered = b"MESSAGE\n\n" + b"x" * 10_000_000 + b"\0"
    threads = [sent_in_thread(client, [said]), sent_in_thread(broker, [answered])]
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(rest(client)))
    reader.start()
    assert rest(broker) == said
    for thread in (*threads, reader):
        thread.join(LONG_S)
    assert got == [answered]


def test_a_chunk_is_passed_on_before_its_frame_is_complete(bench: Bench) -> None:
    client, broker = bench.wire(bench.proxy(frames=FrameLog()))
    for part in (b"SE", b"ND\ndesti", b"nation:/queue/x\n\nbo"):
        client.sendall(part)
        assert take(broker, len(part)) == part


def test_tls_passes_and_is_logged_as_no_frames(bench: Bench, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server())
    log = FrameLog()
    proxy = bench.proxy(frames=log)
    proxy.drop("SEND")  # has no visible effect
    client, broker = bench.wire(proxy)

    def echo() -> None:
        with context.wrap_socket(broker, server_side=True) as secure:
            secure.sendall(secure.recv(100))

    thread = threading.Thread(target=echo)
    thread.start()
    trusting = ssl.create_default_context(cafile=str(authority.file))
    with trusting.wrap_socket(client, server_hostname="127.0.0.1") as secure:
        secure.sendall(b"SEND\n\n\0")
        assert secure.recv(100) == b"SEND\n\n\0"
    thread.join(LONG_S)
    assert log.all == []
    assert "no frame but" in log.text()


def test_a_sender_waits_when_the_other_end_does_not_read(bench: Bench) -> None:
    client, broker = bench.wire(bench.proxy())
    chunk = bytes(1024 * 1024)
    sent = 0
    broker.settimeout(1.0)
    with pytest.raises(TimeoutError):
        while sent < MANY_BYTES:
            sent += broker.send(chunk)
    broker.settimeout(LONG_S)
    thread = sent_in_thread(broker, [b"end"])
    octets = rest(client)
    thread.join(LONG_S)
    assert len(octets) == sent + 3
    assert octets.endswith(b"end")


# Start and end of connections.


def test_the_end_of_one_direction_is_passed_on_and_the_other_goes_on(bench: Bench) -> None:
    client, broker = bench.wire(bench.proxy())
    client.sendall(b"last words")
    client.shutdown(socket.SHUT_WR)
    assert rest(broker) == b"last words"
    broker.sendall(b"answer")
    assert take(client, 6) == b"answer"
    broker.shutdown(socket.SHUT_WR)
    assert rest(client) == b""


@pytest.mark.parametrize("end", ["client", "broker"])
def test_a_reset_is_passed_on(bench: Bench, end: str) -> None:
    log = FrameLog()
    wire = bench.wire(bench.proxy(frames=log))
    gone, other = wire if end == "client" else reversed(wire)
    gone.sendall(b"last words")
    assert take(other, 10) == b"last words"
    reset(gone)
    assert cut_off(other) == b""
    log.wait_for_connections(0)
    assert f"closed by the {end}: reset" in log.text()


def test_a_reset_of_who_did_not_read_is_passed_on(bench: Bench) -> None:
    proxy = bench.proxy()
    client, broker = bench.wire(proxy)
    broker.settimeout(1.0)
    with suppress(TimeoutError):
        for _ in range(MANY_BYTES // 65_536):
            broker.send(bytes(65_536))
    reset(client)
    broker.settimeout(LONG_S)
    assert cut_off(broker) == b""
    proxy.stop()  # would report errors


def test_what_the_broker_said_before_it_reset_the_connection_arrives(bench: Bench) -> None:
    client, broker = bench.wire(bench.proxy())
    client.sendall(b"SEND\n\n\0")
    wait_until_readable(broker)
    broker.sendall(b"ERROR\nmessage:no\n\n\0")
    broker.close()  # with unread data, which makes it a reset
    with suppress(OSError):
        for _ in range(100):
            client.sendall(bytes(1000))
    octets = b""
    with suppress(ConnectionResetError):
        while more := client.recv(1000):
            octets += more
    assert octets == b"ERROR\nmessage:no\n\n\0"


def test_what_the_broker_said_is_read_even_if_it_takes_nothing_any_more(bench: Bench) -> None:
    proxy = bench.proxy()
    client, broker = bench.wire(proxy)
    fault = proxy.stop_reading("client")
    client.sendall(b"SEND\n\n\0")
    wait_until_readable(broker)
    broker.sendall(b"ERROR\nmessage:no\n\n\0")
    broker.close()  # with unread data, which makes it a reset
    client.sendall(b"x")  # the proxy cannot forward this
    other = bench.wire(proxy)
    other.client.sendall(b"later")
    take(other.broker, 5)
    fault.remove()
    assert cut_off(client) == b"ERROR\nmessage:no\n\n\0"


def test_a_broker_that_refuses_is_a_reset_for_the_client(bench: Bench) -> None:
    log = FrameLog()
    proxy = bench.proxy(frames=log)
    bench.upstream.close()
    turned_away(bench, proxy, cut_off)
    assert wait_until(lambda: "closed" in log.text(), LONG_S)
    assert "closed by the broker: the broker refused the connection" in log.text()


def test_the_next_connection_goes_to_another_upstream(bench: Bench) -> None:
    proxy = bench.proxy()
    old = bench.wire(proxy)
    other = Upstream()
    try:
        proxy.upstream = "localhost", other.port
        assert proxy.upstream == ("localhost", other.port)
        client = bench.client(proxy)
        with other.accept() as broker:
            client.sendall(b"to the other one")
            assert take(broker, 16) == b"to the other one"
    finally:
        other.close()
    old.client.sendall(b"still here")
    assert take(old.broker, 10) == b"still here"


def test_who_connected_before_the_change_goes_to_the_old_upstream(bench: Bench) -> None:
    proxy = bench.proxy()
    clients = [bench.client(proxy) for _ in range(20)]
    proxy.upstream = "127.0.0.1", 1
    for client in clients:
        client.sendall(b"hello")
        client.shutdown(socket.SHUT_WR)
        with bench.upstream.accept() as broker:
            assert rest(broker) == b"hello"


def test_a_name_that_nobody_has_is_told_at_once(bench: Bench) -> None:
    with pytest.raises(OSError):
        Proxy("no-such-host.invalid", 61613)
    proxy = bench.proxy()
    with pytest.raises(OSError):
        proxy.upstream = "no-such-host.invalid", 61613
    assert proxy.upstream == ("127.0.0.1", bench.upstream.port)


# Starting and stopping.


def test_a_proxy_says_where_it_is(bench: Bench) -> None:
    proxy = bench.proxy()
    assert proxy.url == f"stomp://127.0.0.1:{proxy.port}"
    assert repr(proxy) == f"<Proxy {proxy.url} to 127.0.0.1:{bench.upstream.port}>"


def test_a_proxy_listens_on_ipv6(bench: Bench) -> None:
    with Proxy("127.0.0.1", bench.upstream.port, host="::1") as proxy:
        assert proxy.url == f"stomp://[::1]:{proxy.port}"
        client, broker = bench.wire(proxy)
        client.sendall(b"x")
        assert take(broker, 1) == b"x"


def test_a_port_that_is_taken_is_told(bench: Bench) -> None:
    proxy = Proxy("127.0.0.1", bench.upstream.port, port=bench.upstream.port)
    with pytest.raises(OSError) as told:
        proxy.start()
    assert told.value.errno == errno.EADDRINUSE
    proxy.stop()


def test_stopping_closes_everything_and_is_harmless_the_second_time(bench: Bench) -> None:
    log = FrameLog()
    proxy = bench.proxy(frames=log)
    client, broker = bench.wire(proxy)
    client.sendall(b"x")
    assert take(broker, 1) == b"x"
    assert has_thread(proxy)
    proxy.stop()
    assert log.connections == 0
    assert rest(client) == rest(broker) == b""
    with pytest.raises(ConnectionRefusedError):
        bench.client(proxy)
    assert not has_thread(proxy)
    proxy.stop()
    proxy.heal()
    with pytest.raises(RuntimeError, match="stopped"):
        proxy.drop()
    with pytest.raises(RuntimeError, match="once"):
        proxy.start()


def test_a_proxy_that_was_never_started_can_be_stopped(bench: Bench) -> None:
    proxy = Proxy("127.0.0.1", bench.upstream.port)
    proxy.stop()
    assert not has_thread(proxy)


def test_nothing_is_left_for_the_garbage_collector(bench: Bench) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            proxy = bench.proxy(frames=FrameLog())
            proxy.delay(60.0, "SEND")
            proxy.hold("MESSAGE")
            wires = [bench.wire(proxy) for _ in range(3)]
            wires[0].client.sendall(b"SEND\n\n\0" * 10)
            wires[1].broker.sendall(b"MESSAGE\n\n\0" * 10)
            proxy.close(connection=3)
            proxy.stop()
            del proxy
        gc.collect()


def test_a_failure_of_what_is_called_is_told_in_the_end(bench: Bench) -> None:
    def fail(line: str) -> None:
        raise ValueError("not now")

    proxy = Proxy("127.0.0.1", bench.upstream.port, told=fail)
    proxy.start()
    socket.create_connection((proxy.host, proxy.port), LONG_S).close()
    proxy.disconnect()
    with pytest.raises(RuntimeError, match="the proxy has failed") as told:
        proxy.stop()
    assert isinstance(told.value.__cause__, ValueError)


def test_a_failure_of_the_proxy_ends_one_connection_and_no_later_test(bench: Bench) -> None:
    def fail(event: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    log = FrameLog(max_events=2)
    proxy = Proxy("127.0.0.1", bench.upstream.port, frames=log).start()
    first = bench.wire(proxy)
    log.wait_for_connections(1)
    log.hand_on(fail)
    first.client.sendall(b"SEND\ndestination:/a\n\n\0" * 3)
    # Neither end waits for data that the proxy has read but not passed on.
    assert ended(first.client)
    assert ended(first.broker)
    for call in (log.settle, log.clear, lambda: log.expect_none("ACK")):
        call()
    log.hand_on(None)
    second = bench.wire(proxy)
    second.client.sendall(b"ACK\nid:1\n\n\0")
    assert second.broker.recv(99) == b"ACK\nid:1\n\n\0"
    assert log.find("ACK")
    with pytest.raises(RuntimeError, match="the proxy has failed") as told:
        proxy.stop()
    assert isinstance(told.value.__cause__, OSError)


def ended(end: socket.socket) -> bool:
    """Return True if the connection ends within the timeout."""
    end.settimeout(LONG_S)
    try:
        while end.recv(99):
            pass
    except ConnectionError:
        pass
    return True


def test_a_proxy_imports_neither_twisted_nor_asyncio_before_it_runs() -> None:
    code = "import sys, stompkit.testing.proxy; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LONG_S, check=True
    )
    assert {"twisted", "asyncio", "stompkit.server"}.isdisjoint(done.stdout.split())


# The log.


def test_frames_are_in_the_log_before_they_arrive(bench: Bench) -> None:
    log = FrameLog()
    client, broker = bench.wire(bench.proxy(frames=log))
    for number in range(100):
        frame = encode(Frame("SEND", {"destination": f"/queue/{number}"}, b"x"), "1.2")
        client.sendall(frame)
        assert take(broker, len(frame)) == frame
        assert log.received[-1].headers["destination"] == f"/queue/{number}"


def test_the_log_reads_headers_by_the_version_that_was_agreed_on(bench: Bench) -> None:
    log = FrameLog()
    proxy = bench.proxy(frames=log)
    for version, value in ((b"1.0", "a\\cb"), (b"1.1", "a:b")):
        client, broker = bench.wire(proxy)
        client.sendall(CONNECT)
        take(broker, len(CONNECT))
        connected = CONNECTED.replace(b"1.2", version)
        broker.sendall(connected)
        take(client, len(connected))
        broker.sendall(b"MESSAGE\nx:a\\cb\n\n\0")
        take(client, 17)
        assert log.sent[-1].headers == {"x": value}


def test_the_log_knows_heart_beats_connections_and_directions(bench: Bench) -> None:
    log = FrameLog()
    proxy = bench.proxy(frames=log)
    first, second = bench.wire(proxy), bench.wire(proxy)
    first.client.sendall(b"\n\r\n\n")
    take(first.broker, 4)
    second.broker.sendall(b"\nRECEIPT\nreceipt-id:1\n\n\0")
    take(second.client, 24)
    assert (log.beats("received"), log.beats("sent")) == (3, 1)
    assert [(seen.direction, seen.connection) for seen in log.all] == [("sent", 2)]
    assert log.connections == 2
    first.client.close()
    first.broker.close()
    log.wait_for_connections(1)


def test_lines_are_told_for_what_happens(bench: Bench) -> None:
    lines: list[str] = []
    proxy = bench.proxy(told=lines.append)
    client, broker = bench.wire(proxy)
    fault = proxy.drop("SEND")
    client.sendall(b"SEND\n\n\0")
    fault.wait()
    client.close()
    assert rest(broker) == b""
    broker.close()
    assert wait_until(lambda: len(lines) == 3, LONG_S), lines
    assert lines == ["#1 opened", "#1 drop: SEND", "#1 closed by the client"]


# A stompkit broker.


def test_a_broker_can_be_used_behind_it(broker: RunningBroker) -> None:
    log = FrameLog()
    with Proxy(broker.host, broker.port, frames=log) as proxy:
        with socket.create_connection((proxy.host, proxy.port), LONG_S) as client:
            subscribe = Frame("SUBSCRIBE", {"id": "1", "destination": "/queue/x"})
            send = Frame("SEND", {"destination": "/queue/x", "passcode": "secret"}, b"body")
            client.sendall(CONNECT + encode(subscribe, "1.2") + encode(send, "1.2"))
            seen = log.wait_for("MESSAGE", destination="/queue/x")
            assert seen.body == b"body"
        log.wait_for_connections(0)
    assert [frame.command for frame in log.received] == ["CONNECT", "SUBSCRIBE", "SEND"]
    assert "secret" not in log.text()


# What the log has in time.


def recorded(bench: Bench) -> tuple[FrameLog, Wire]:
    """Return a log, and a connection whose frames it has."""
    log = FrameLog()
    return log, bench.wire(bench.proxy(frames=log))


def test_a_log_is_settled_when_closed_connections_have_ended(bench: Bench) -> None:
    log, wire = recorded(bench)

    def close_after_client() -> None:
        assert rest(wire.broker) == b""
        wire.broker.close()

    closing = threading.Thread(target=close_after_client)
    closing.start()
    wire.client.close()
    log.settle(LONG_S)
    assert "#1 closed by the client" in log.text()
    closing.join()


@pytest.mark.parametrize("sender", ["client", "broker"])
def test_a_log_judges_and_forgets_all_that_was_sent_before(bench: Bench, sender: str) -> None:
    log, wire = recorded(bench)
    source = getattr(wire, sender)
    command = "SEND" if sender == "client" else "MESSAGE"
    for number in range(20):
        source.sendall(f"{command}\nn:{number}\n\n\0".encode())
        if number % 2:
            log.clear()
        else:
            with pytest.raises(AssertionError, match=f"n:{number}"):
                log.expect_none(command)
    assert log.all == []


def test_a_log_does_not_wait_for_a_stopped_proxy(bench: Bench) -> None:
    log = FrameLog()
    proxy = bench.proxy(frames=log)
    bench.wire(proxy)
    proxy.stop()
    log.settle(LONG_S)
    log.expect_none("SEND")
    log.clear()
