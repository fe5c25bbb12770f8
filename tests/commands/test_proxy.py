"""The command ``stompkit proxy``."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

import stompkit
from stompkit._commands import main
from stompkit.testing.launching.polling import wait_until
from tests.testing.proxy.test_proxy import LONG_S, Upstream, rest, take

COMMAND = [sys.executable, "-m", "stompkit", "proxy"]
ROOT = str(Path(stompkit.__file__).parents[1])
SCRIPT = """
seed = 5

[[fault]]
do = "drop"
frame = "SEND"
headers = { destination = "/queue/x" }
nth = 2
"""


def run(*arguments: str | Path, status: int = 0) -> str:
    """Run the command and return its output, on both streams."""
    output = TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True)
    with redirect_stdout(output), redirect_stderr(output):
        try:
            ended: object = main(["proxy", *map(str, arguments)])
        except SystemExit as error:
            ended = error.code
    printed = output.buffer
    assert isinstance(printed, BytesIO)
    text = printed.getvalue().decode()
    assert (ended or 0) == status, text
    return text


class Running:
    """The command in a child process, in front of a server."""

    def __init__(self, directory: Path, stack: ExitStack, *arguments: str) -> None:
        """Start it."""
        self.upstream = Upstream()
        stack.callback(self.upstream.close)
        self._log = directory / "output"
        path = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH", "")]))
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "--to", f"localhost:{self.upstream.port}", *arguments],
                env={**os.environ, "PYTHONPATH": path},
                cwd=directory,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        stack.callback(self.process.wait, LONG_S)
        stack.callback(self.process.kill)
        self._stack = stack

    @property
    def lines(self) -> list[str]:
        """Return its output so far."""
        return self._log.read_text(encoding="utf-8").splitlines()

    def has_printed(self, number: int) -> list[str]:
        """Wait for this many lines, and return them."""
        assert wait_until(lambda: len(self.lines) >= number, LONG_S), self.lines
        return self.lines

    def connect(self) -> tuple[socket.socket, socket.socket]:
        """Return both ends of a connection through it."""
        first = self.has_printed(1)[0]
        found = re.match(r"stomp://(\S+):(\d+) to localhost:", first)
        assert found is not None, first
        client = socket.create_connection((found[1], int(found[2])), LONG_S)
        self._stack.enter_context(client)
        return client, self._stack.enter_context(self.upstream.accept())

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(LONG_S)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """The resources that are closed at the end of the test."""
    with ExitStack() as stack:
        yield stack


def test_connections_faults_and_frames_are_printed(tmp_path: Path, stack: ExitStack) -> None:
    (tmp_path / "faults.toml").write_text(SCRIPT, encoding="utf-8")
    running = Running(tmp_path, stack, "--script", "faults.toml", "--frames")
    client, broker = running.connect()
    frames = b"CONNECT\nlogin:me\npasscode:secret\n\n\0", b"SEND\ndestination:/queue/x\n\n%b\0"
    client.sendall(frames[0] + frames[1] % b"one" + frames[1] % b"two" + frames[1] % b"three")
    expected = frames[0] + frames[1] % b"one" + frames[1] % b"three"
    assert take(broker, len(expected)) == expected
    broker.sendall(b"\x16\x03 no STOMP")
    assert take(client, 11) == b"\x16\x03 no STOMP"
    client.close()
    assert rest(broker) == b""
    broker.close()
    lines = running.has_printed(9)
    assert re.fullmatch(r"stomp://127.0.0.1:\d+ to localhost:\d+, seed 5", lines[0])
    assert lines[1:] == [
        "#1 opened",
        "#1 received CONNECT  login:me  passcode:***",
        "#1 received SEND  destination:/queue/x  'one'",
        "#1 received SEND  destination:/queue/x  'two'",
        "#1 drop: SEND with destination '/queue/x', only the 2nd",
        "#1 received SEND  destination:/queue/x  'three'",
        "#1 sent     no STOMP from here on: it passes unread",
        "#1 closed by the client",
    ]
    assert running.end() == 0


INJECTING = """
[[fault]]
do = "inject"
frame = "SEND"
what = { command = "ERROR", headers = { message = "not today" } }
"""


@pytest.mark.parametrize("is_json", [False, True])
def test_an_injected_frame_is_printed_as_injected(
    tmp_path: Path, stack: ExitStack, *, is_json: bool
) -> None:
    (tmp_path / "faults.toml").write_text(INJECTING, encoding="utf-8")
    options = ["--json"] if is_json else []
    running = Running(tmp_path, stack, "--script", "faults.toml", "--frames", *options)
    if is_json:
        url = json.loads(running.has_printed(1)[0])["listening"]
        client = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), LONG_S)
        stack.enter_context(client)
        broker = stack.enter_context(running.upstream.accept())
    else:
        client, broker = running.connect()
    frame = b"SEND\ndestination:/queue/x\n\none\0"
    client.sendall(frame)
    assert take(broker, len(frame)) == frame
    error = b"ERROR\nmessage:not today\n\n\0"
    assert take(client, len(error)) == error
    [injected] = running.has_printed(5)[4:]
    if is_json:
        document = json.loads(injected)
        assert document["injected"] is True
        assert document["headers"] == [["message", "not today"]]
    else:
        assert running.lines[3].startswith("#1 inject: SEND, ERROR to the client")
        assert injected == "#1 injected ERROR  message:'not today'"
    assert running.end() == 0


def test_lines_are_json_where_that_is_wanted(tmp_path: Path, stack: ExitStack) -> None:
    (tmp_path / "faults.toml").write_text(SCRIPT, encoding="utf-8")
    running = Running(tmp_path, stack, "--script", "faults.toml", "--frames", "--json")
    first = json.loads(running.has_printed(1)[0])
    assert first["seed"] == 5
    found = re.fullmatch(r"stomp://127.0.0.1:(\d+)", first["listening"])
    assert found is not None
    client = socket.create_connection(("127.0.0.1", int(found[1])), LONG_S)
    stack.enter_context(client)
    broker = stack.enter_context(running.upstream.accept())
    frame = b"SEND\ndestination:/queue/x\npasscode:secret\n\n%b\0"
    client.sendall(frame % b"one" + frame % b"two" + frame % b"\xff")
    assert take(broker, len(frame) + 1) == frame % b"one"
    documents = [json.loads(line) for line in running.has_printed(6)[1:]]
    assert documents[0]["note"] == "#1 opened"
    assert documents[1] == {
        "time": documents[1]["time"],
        "direction": "received",
        "peer": "#1",
        "command": "SEND",
        "headers": [["destination", "/queue/x"], ["passcode", "***"]],
        "body_octets": 3,
        "body": "one",
    }
    assert documents[3]["note"].startswith("#1 drop: ")
    assert documents[4]["body_base64"] == "/w=="
    assert running.end() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_closes_connections(
    tmp_path: Path, stack: ExitStack, number: int
) -> None:
    running = Running(tmp_path, stack, "--announce", "proxy.json", "--seed", "9")
    client, broker = running.connect()
    assert running.lines[0].endswith(", seed 9")
    announced = tmp_path / "proxy.json"
    assert wait_until(announced.exists, LONG_S)
    document = json.loads(announced.read_text(encoding="utf-8"))
    port = client.getpeername()[1]
    assert document == {
        "pid": running.process.pid,
        "endpoints": [{"host": "127.0.0.1", "port": port}],
    }
    assert running.end(number) == 0
    assert rest(client) == rest(broker) == b""
    assert not announced.exists()
    assert running.lines[1:] == ["#1 opened", "#1 closed: the proxy was stopped"]


def test_it_listens_where_it_is_told(tmp_path: Path, stack: ExitStack) -> None:
    running = Running(tmp_path, stack, "--listen", "[::1]:0")
    assert running.has_printed(1)[0].startswith("stomp://[::1]:")
    client = socket.create_connection(("::1", int(running.lines[0].split(":")[4].split()[0])))
    stack.enter_context(client)
    running.upstream.accept().close()
    assert rest(client) == b""


def test_it_ends_when_nobody_reads_what_it_prints(stack: ExitStack) -> None:
    upstream = Upstream()
    stack.callback(upstream.close)
    path = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH", "")]))
    with subprocess.Popen(
        [*COMMAND, "--to", f"127.0.0.1:{upstream.port}"],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline().decode()
        process.stdout.close()
        port = int(first.split(":")[2].split()[0])
        with socket.create_connection(("127.0.0.1", port), LONG_S):
            assert process.wait(LONG_S) == 128 + signal.SIGPIPE
        assert process.stderr.read() == b""


def test_check_says_that_a_script_is_right(tmp_path: Path) -> None:
    path = tmp_path / "faults.toml"
    path.write_text(SCRIPT, encoding="utf-8")
    assert run("--check", "--script", path) == f"{path}: OK\n"
    told = json.loads(run("--check", "--script", path, "--json"))
    assert told == {"file": str(path), "is_ok": True, "problems": []}


def test_mistakes_of_a_script_are_told(tmp_path: Path) -> None:
    path = tmp_path / "faults.toml"
    path.write_text(SCRIPT.replace("nth", "nht"), encoding="utf-8")
    told = f"{path}, line 8: [[fault]] #1 nht: drop has no such key; did you mean nth?\n"
    assert run("--check", "--script", path, status=1) == told
    assert run("--to", "localhost:1", "--script", path, status=1) == told
    document = json.loads(run("--check", "--json", "--script", path, status=1))
    assert document == {"file": str(path), "is_ok": False, "problems": [told.strip()]}


def test_a_script_that_is_not_there_is_told(tmp_path: Path) -> None:
    path = tmp_path / "faults.toml"
    told = run("--check", "--script", path, status=1)
    assert told == f"stompkit proxy: {path}: No such file or directory\n"


def test_a_port_that_is_taken_is_told() -> None:
    upstream = Upstream()
    address = f"127.0.0.1:{upstream.port}"
    told = run("--listen", address, "--to", address, status=1)
    upstream.close()
    assert told.startswith("stompkit proxy: ")
    assert "in use" in told


def test_a_broker_that_nobody_knows_is_told() -> None:
    told = run("--to", "no-such-host.invalid:61613", status=1)
    assert told.startswith("stompkit proxy: ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "the address of the broker is missing: give --to HOST:PORT"),
        (["--check"], "--check needs a script: give --script FILE"),
        (["--to", "localhost"], "is not HOST:PORT"),
        (["--to", "localhost:0"], "'0' is not a port"),
        (["--to", "localhost:1", "--listen", ":0"], "is not HOST:PORT"),
        (["--to", "localhost:1", "--seed", "x"], "invalid int value"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_told(arguments: list[str], told: str) -> None:
    assert told in run(*arguments, status=2)
