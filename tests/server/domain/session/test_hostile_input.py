"""Malicious input: it must not harm the log, the metrics, the store, or other clients."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stompkit.testing.memory import MemoryBroker
from tests.server.admin.asking import Asker
from tests.server.certificates import Authority
from tests.server.processes import (
    CONNECT,
    DEADLINE_S,
    LOOPBACK,
    TWIST,
    Client,
    Process,
    announced,
    processes,
    talk,
    tcp,
)
from tests.server.websockets import WebSocketBroker

#: A text that begins a line, moves the cursor, sets a title, and rings a bell.
EVIL = "x\x1b[31m\x1b]0;owned\x07\r2026-01-01T00:00:00 forged\x85\u2028\u202e\x9b2J"
PATHS = (
    "/queue/../../../../tmp/owned",
    "/queue//etc/passwd",
    "/queue/a\\..\\b",
    "/queue/%2e%2e%2fowned",
    "/queue/CON",
    "/queue/.",
    "/queue/a b",
    "/queue/\u202egnp.exe",
    "/queue/" + "a" * 1_000,
)


class Served:
    """A broker with every kind of port."""

    def __init__(self, process: Process, announcement: dict[str, Any]) -> None:
        """Store the addresses that the broker has announced."""
        self.process = process
        self._said = announcement
        self.stomp = announcement["endpoints"][0]
        self.proxied = announcement["endpoints"][1]
        self.websocket = announcement["websocket"][0]
        self.beanstalk = announcement["beanstalk"][0]
        [admin] = announcement["admin"]
        self.ask = Asker(f"http://{admin['host']}:{admin['port']}")
        self.admin = admin

    def is_well(self) -> bool:
        """Return True if the broker accepts a client and its message."""
        with Client(self.stomp) as client:
            return client.send("/queue/well").startswith(b"RECEIPT")


@pytest.fixture(params=["text", "json"])
def served(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    """A broker that logs all frames, once as text and once as JSON."""
    announce = tmp_path / "announce.json"
    (tmp_path / "run").mkdir()
    arguments = ["--endpoint", LOOPBACK, "--endpoint", f"haproxy:{LOOPBACK}"]
    arguments += ["--websocket", LOOPBACK, "--beanstalk", LOOPBACK, "--admin", LOOPBACK]
    arguments += ["--data", str(tmp_path / "data"), "--log-frames"]
    arguments += ["--log-format", request.param, "--announce", str(announce)]
    with processes(tmp_path / "run") as start:
        process = start(TWIST, *arguments)
        announced(process, announce)
        yield Served(process, json.loads(announce.read_text()))


def send(endpoint: dict[str, Any], data: bytes) -> None:
    """Send bytes and read to the end, which may be a reset."""
    stream = tcp(endpoint)
    with contextlib.suppress(ConnectionError):
        stream.sendall(data)
        stream.shutdown(socket.SHUT_WR)
        talk(stream, b"")


def escaped(text: str) -> str:
    """Return a text as encoded in the header of a frame."""
    table = {"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"}
    return "".join(table.get(each, each) for each in text)


def test_nothing_that_a_client_sends_is_more_than_text_in_the_log(served: Served) -> None:
    evil, wire = EVIL.encode(), escaped(f"{EVIL}\nforged").encode()
    for data in (
        evil + b"\n\n\0",
        b"CONNECT\n" + evil + b"\n\n\0",
        b"CONNECT\naccept-version:" + wire + b"\nhost:x\n\n\0",
        b"CONNECT\naccept-version:1.2\nhost:" + evil.replace(b"\r", b"") + b"\n\n\0",
        b"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:" + evil + b"\n\n\0",
        CONNECT + evil + b"\n\n\0",
        CONNECT + b"SEND\ndestination:" + wire + b"\nreceipt:" + wire + b"\n\n\0",
        CONNECT + b"SEND\ndestination:/queue/a\n" + wire + b":" + wire + b"\n\n\0",
        CONNECT + b"SUBSCRIBE\nid:" + wire + b"\ndestination:/topic/" + wire + b"\n\n\0",
        CONNECT + b"SUBSCRIBE\nid:1\ndestination:/queue/a\nselector:" + wire + b"\n\n\0",
        CONNECT + b"BEGIN\ntransaction:" + wire + b"\n\nBEGIN\ntransaction:" + wire + b"\n\n\0",
        CONNECT + b"ACK\nid:" + wire + b"\n\n\0",
        CONNECT + b"SEND\ndestination:/queue/a\ncontent-length:" + wire + b"\n\n\0",
    ):
        send(served.stomp, data)
        send(served.proxied, b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" + data)
    send(served.proxied, b"PROXY TCP4 " + evil + b"\r\n")
    for head in (
        b"GET /" + evil + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        b"sec-websocket-version: 13\r\norigin: http://" + evil + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n" + evil + b": y\r\n\r\n",
    ):
        send(served.websocket, head)
        send(served.admin, head)
    send(served.beanstalk, b"use " + evil + b"\r\nput 0 0 0 1\r\nx\r\nquit\r\n")
    assert served.is_well()
    lines = served.process.log.split("\n")
    assert any("forged" in line for line in lines), "it was not tried"
    for line in lines:
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]", line), ascii(
            line
        )
        assert not line.lstrip().startswith(("forged", "2026-01-01T00:00:00 forged"))
        if line and line.startswith("{"):
            json.loads(line)
        assert len(line) < 20_000


def test_a_client_can_not_fill_the_log(served: Served) -> None:
    for _ in range(3):
        with Client(served.stomp) as client:
            big = "y" * 8_000
            head = f"SEND\ndestination:/queue/a\nreceipt:r\n{'x'}:{big}\nz:{big}\n\n\0"
            assert client.ask(head.encode()).startswith(b"RECEIPT")
    assert served.is_well()
    assert max(map(len, served.process.log.split("\n"))) < 20_000


def test_names_are_names_and_no_paths(served: Served, tmp_path: Path) -> None:
    before = {path.name for path in tmp_path.iterdir()}
    for number, name in enumerate(PATHS):
        with Client(served.stomp) as client:
            said = client.ask(
                f"SEND\ndestination:{escaped(name)}\npersistent:true\nreceipt:r\n\nx\0".encode()
            )
            assert said.startswith((b"RECEIPT", b"ERROR")), (number, said)
    assert {path.name for path in tmp_path.iterdir()} == before
    assert not Path("/tmp/owned").exists()
    kept = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert all(re.fullmatch(r"[a-z]+\.(mdb|lock)|lock|[a-z.]+", path.name) for path in kept), kept
    for name in PATHS[:2]:
        found = served.ask.destination(name)
        assert found is not None and found["ready"] == 1


def test_no_name_is_a_line_or_label_of_its_own_in_the_metrics(served: Served) -> None:
    names = [
        '/queue/a",evil="1',
        "/queue/a\\",
        "/queue/a} 1",
        "/queue/a\\n# HELP stompkit_forged x\\nstompkit_forged 1",
        "/queue/" + EVIL.replace("\r", ""),
    ]
    with Client(served.stomp) as client:
        for name in names:
            wire = name if "\\n#" in name else escaped(name)
            said = client.ask(f"SEND\ndestination:{wire}\nreceipt:r\n\nx\0".encode())
            assert said.startswith(b"RECEIPT"), said
    page = served.ask.request("GET", "/metrics")
    families = {each.name: each for each in text_string_to_metric_families(page.body.decode())}
    assert not any("forged" in name for name in families)
    for family in families.values():
        for sample in family.samples:
            assert "evil" not in sample.labels
    found = {sample.labels["destination"] for sample in families["stompkit_messages_ready"].samples}
    assert names[0] in found


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_no_header_becomes_a_frame_or_a_header_of_its_own(version: str) -> None:
    broker = MemoryBroker()
    sender, reader = broker.client("1.2"), broker.client(version)
    reader.subscribe("/queue/a", id="1")
    reader.take()
    value = "a\\n\\nbody\\nevil\\cyes\\r\\nmore\\c1"
    sender.write(f"SEND\ndestination:/queue/a\nx:{value}\n{value}:y\n\nbody\0".encode())
    [message] = reader.take()
    assert message.command == "MESSAGE" and message.body == b"body"
    assert "evil" not in message.headers and "more" not in message.headers


def test_an_error_repeats_nothing_as_a_header_or_frame_of_its_own() -> None:
    broker = MemoryBroker()
    for data in (
        b"SEND\ndestination:/nowhere\\n\\nevil\\cyes\nreceipt:r\\nevil\\cyes\n\n\0",
        b"BEGIN\ntransaction:a\\nevil\\cyes\n\n\0ABORT\ntransaction:b\\nevil\\cyes\n\n\0",
        b"SUBSCRIBE\nid:1\ndestination:/queue/a\nselector:a\\nevil\\cyes\n\n\0",
        b"EVIL\\nevil:yes\n\n\0",
    ):
        client = broker.client()
        client.write(data)
        assert client.error is not None
        assert "evil" not in client.error.headers


# Before login.


def test_tls_that_is_never_finished_has_no_more_time_than_a_login(tmp_path: Path) -> None:
    keys, run = tmp_path / "keys", tmp_path / "run"
    keys.mkdir()
    run.mkdir()
    endpoint = f"stomps:0:interface=127.0.0.1:certificate={Authority(keys, 'ca').server()}"
    config = tmp_path / "stompkit.toml"
    config.write_text("[broker]\nlogin_timeout_s = 0.5\nlinger_s = 0.2\ndrain_timeout_s = 0.5\n")
    announce = tmp_path / "announce.json"
    with processes(run) as start:
        process = start(
            TWIST, "--endpoint", endpoint, "--config", str(config), "--announce", str(announce)
        )
        [where] = announced(process, announce)
        for begin in (b"", b"\x16\x03\x01\x02\x00\x01", b"\x16\x03\x01\x40\x00" + b"\x01" * 100):
            stream = tcp(where)
            stream.settimeout(DEADLINE_S)
            with stream:
                stream.sendall(begin)
                with contextlib.suppress(ConnectionError):
                    while stream.recv(65_536):
                        pass


def test_compression_is_not_agreed_on_and_what_claims_to_be_compressed_is_refused() -> None:
    broker = WebSocketBroker()
    stream = broker.stream()
    stream.deliver(
        b"GET / HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        b"sec-websocket-extensions: permessage-deflate; client_max_window_bits\r\n\r\n"
    )
    answer = stream.take()
    assert answer.startswith(b"HTTP/1.1 101 ") and b"extensions" not in answer.lower()
    stream.deliver(b"\xc1\x8a\0\0\0\0" + b"x" * 10)
    assert b"stompkit-code:websocket-protocol" in stream.take()


# Secrets.


def test_no_secret_is_among_the_arguments_or_in_the_log(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("alice:open-sesame\n")
    announce = tmp_path / "announce.json"
    (tmp_path / "run").mkdir()
    with processes(tmp_path / "run") as start:
        process = start(
            TWIST,
            *("--endpoint", LOOPBACK, "--announce", str(announce), "--log-frames"),
            *("--auth", f"file:{users}"),
        )
        [where] = announced(process, announce)
        environment = {
            **os.environ,
            "STOMPKIT_PASSCODE": "open-sesame",
            "PYTHONPATH": str(Path(__file__).parents[4]),
        }
        command = [sys.executable, "-m", "stompkit", "ping", "--json"]
        command.append(f"stomp://alice@{where['host']}:{where['port']}")
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        with Client(where, "alice:open-barley") as client:
            assert b"not-authenticated" in client.first
        arguments = Path(f"/proc/{process.popen.pid}/cmdline")
        if arguments.exists():
            assert b"sesame" not in arguments.read_bytes()
        for text in (process.log, done.stdout, done.stderr, client.first.decode()):
            assert "sesame" not in text and "barley" not in text
