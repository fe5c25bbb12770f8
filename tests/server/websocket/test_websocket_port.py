"""WebSocket ports of real processes: options, settings, and messages about wrong ones."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from twisted.python.usage import UsageError

from stompkit.server.operations import Settings, SettingsError, parse_settings
from stompkit.server.tap import Options
from stompkit.testing import LaunchConfig, launch
from stompkit.testing.launching.errors import BrokerError
from tests.server.processes import (
    LOOPBACK,
    TWIST,
    TWISTD,
    Client,
    Process,
    Start,
    processes,
    talk,
    tcp,
)

GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts brokers, and ends them."""
    with processes(tmp_path) as start:
        yield start


def websockets(process: Process, path: Path) -> list[dict[str, object]]:
    """Return the WebSocket ports that a process has announced."""
    process.wait_until(path.exists)
    document = json.loads(path.read_text(encoding="utf-8"))
    found: list[dict[str, object]] = document.get("websocket", [])
    return found


@pytest.mark.parametrize("command", [TWIST, TWISTD], ids=["twist", "twistd"])
def test_options_open_ports(start: Start, tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "announce"
    both = ["--websocket", LOOPBACK, "--websocket", f"unix:{tmp_path / 'socket'}"]
    process = start(command, "--endpoint", LOOPBACK, *both, "--announce", str(path))
    first, second = websockets(process, path)
    assert second == {"path": str(tmp_path / "socket")}
    assert talk(tcp(first), GET).startswith(b"HTTP/1.1 426 ")
    unix = socket.socket(socket.AF_UNIX)
    unix.connect(str(tmp_path / "socket"))
    assert talk(unix, GET).startswith(b"HTTP/1.1 426 ")
    assert process.log.count("for WebSocket") == 2
    process.terminate()
    assert "Traceback" not in process.log


def test_settings_open_ports(start: Start, tmp_path: Path) -> None:
    path, config = tmp_path / "announce", tmp_path / "stompkit.toml"
    config.write_text(
        f'[[listen]]\nendpoint = "{LOOPBACK}"\n[[websocket]]\nendpoint = "{LOOPBACK}"\n'
        'path = "/stomp"\nallow_origins = ["https://shop.example"]\n'
    )
    process = start(TWIST, "--config", str(config), "--announce", str(path))
    [where] = websockets(process, path)
    assert b"the path /stomp" in talk(tcp(where), GET)
    config.write_text(config.read_text().replace("/stomp", "/other"))
    process.popen.send_signal(1)
    process.wait_for("[[websocket]] has changed")


def test_stomp_on_the_wrong_port_is_told_so_both_ways(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "announce"
    arguments = ["--endpoint", LOOPBACK, "--websocket", LOOPBACK, "--announce", str(path)]
    process = start(TWIST, *arguments)
    [where] = websockets(process, path)
    [plain] = json.loads(path.read_text(encoding="utf-8"))["endpoints"]
    assert b"this is an HTTP request" in talk(tcp(plain), GET)
    with Client(where) as client:
        assert client.first.startswith(b"ERROR\n")
        assert b"speaks STOMP over WebSocket" in client.first


def test_without_wsproto_it_is_said_how_to_get_it(start: Start, tmp_path: Path) -> None:
    (tmp_path / "without" / "wsproto").mkdir(parents=True)
    (tmp_path / "without" / "wsproto" / "__init__.py").write_text("raise ImportError('no')\n")
    process = start(TWIST, "--websocket", LOOPBACK, path=str(tmp_path / "without"))
    assert process.ended() != 0
    assert "pip install 'stompkit[websocket]'" in process.log
    assert "Traceback" not in process.log


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--websocket", "nonsense:1"], "--websocket: cannot listen on nonsense:1"),
        (["--allow-origin", "https://a.example"], "goes with --websocket"),
        (["--websocket", LOOPBACK, "--allow-origin", "a.example"], "is not an origin"),
    ],
)
def test_options_that_are_wrong(arguments: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Options().parseOptions(arguments)  # type: ignore[no-untyped-call]  # Twisted's


def test_options_say_what_settings_say() -> None:
    options = Options()
    arguments = ["--websocket", LOOPBACK, "--allow-origin", "*"]
    options.parseOptions(arguments)  # type: ignore[no-untyped-call]  # Twisted's
    settings: Settings = options["settings"]
    [each] = settings.websockets
    assert (each.endpoint, each.path, each.allow_origins) == (LOOPBACK, "/", ("*",))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('endpoint = "nonsense:1"', "cannot listen on nonsense:1"),
        ('endpoint = "tcp:1"\npath = "stomp"', "begin it with /"),
        ('endpoint = "tcp:1"\npath = "/a?b"', "is not a path"),
        ('endpoint = "tcp:1"\npath = "/\u00e4"', "as %XX"),
        ('endpoint = "tcp:1"\nallow_origins = ["a.example"]', "is not an origin"),
        ('endpoint = "tcp:1"\nmessages = "both"', "messages"),
        ('endpoint = "tcp:1"\nmax_handshake_bytes = 10', "max_handshake_bytes"),
        ('path = "/"', "endpoint"),
    ],
)
def test_settings_that_are_wrong(lines: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings(f"[[websocket]]\n{lines}\n", "x.toml")
    assert words in str(caught.value)
    assert "x.toml, line" in str(caught.value)


# Brokers launched by tests.


def test_a_broker_has_the_port_that_was_asked_for() -> None:
    with launch(LaunchConfig(websocket=True)) as broker:
        first = broker.ws_url
        broker.stop()
    port = int(first.rpartition(":")[2].rstrip("/"))
    with launch(LaunchConfig(websocket=True, websocket_port=port)) as broker:
        assert broker.ws_url == f"ws://127.0.0.1:{port}/"


def test_a_broker_without_the_port_has_no_url() -> None:
    with launch(LaunchConfig()) as broker, pytest.raises(BrokerError, match="websocket=True"):
        _ = broker.ws_url


def test_other_brokers_have_none() -> None:
    with pytest.raises(
        BrokerError, match=r"coilmq cannot .*websocket=...\), which is for stompkit"
    ):
        launch(LaunchConfig(name="coilmq", websocket=True))


def test_it_goes_with_the_quirks_of_brokers_that_have_it() -> None:
    with launch(LaunchConfig(websocket=True, quirks="rabbitmq")) as broker:
        assert broker.ws_url.startswith("ws://127.0.0.1:")
    with pytest.raises(BrokerError, match="MorbidQ has no WebSocket"):
        launch(LaunchConfig(websocket=True, quirks="morbidq"))
