"""Notifications to systemd, and its socket activation: real processes, and the units."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from stompkit.server.operations import parse_settings
from stompkit.server.process.notify import Notifier
from tests.server.processes import (
    CONNECT,
    DEADLINE_S,
    LOOPBACK,
    TWIST,
    TWISTD,
    Client,
    Process,
    Start,
    announced,
    processes,
)

UNITS = Path(__file__).parents[3] / "packaging" / "systemd"

both = pytest.mark.parametrize("command", [TWIST, TWISTD], ids=["twist", "twistd"])


class Manager:
    """The notification socket of systemd."""

    def __init__(self, address: str) -> None:
        """Bind the socket; an ``address`` that begins with ``@`` is abstract."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0", 1))
        self._socket.settimeout(DEADLINE_S)

    def receive(self) -> dict[str, str]:
        """Return the next message, as a dictionary."""
        lines = self._socket.recv(65_536).decode().split("\n")
        return dict(line.split("=", 1) for line in lines)

    def until(self, name: str) -> dict[str, str]:
        """Return the next message that contains a name."""
        while name not in (message := self.receive()):
            pass
        return message

    def is_silent(self) -> bool:
        """Return True if no further message has arrived."""
        self._socket.setblocking(False)
        try:
            self._socket.recv(65_536)
        except BlockingIOError:
            return True
        finally:
            self._socket.settimeout(DEADLINE_S)
        return False

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


@pytest.fixture(params=["a path", "an abstract name"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of the notification socket."""
    if request.param == "a path":
        return str(tmp_path / "notify")
    return f"@stompkit-test-{os.getpid()}-{tmp_path.name}"


@pytest.fixture
def manager(address: str) -> Iterator[Manager]:
    """The notification socket for started processes."""
    manager = Manager(address)
    yield manager
    manager.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts commands, and ends all that still run."""
    (tmp_path / "run").mkdir()
    with processes(tmp_path / "run") as start:
        yield start


# The process.


@both
def test_it_is_ready_when_it_listens_and_says_that_it_ends(
    start: Start,
    manager: Manager,
    address: str,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    process = start(command, "--endpoint", LOOPBACK)
    told = manager.receive()
    assert told["READY"] == "1"
    listening = re.fullmatch(r"listening on (127\.0\.0\.1):(\d+)", told["STATUS"])
    assert listening is not None
    with Client({"host": listening[1], "port": int(listening[2])}) as client:
        assert client.first.startswith(b"CONNECTED\n")
    process.terminate()
    assert manager.receive()["STOPPING"] == "1"
    assert manager.is_silent()
    assert "Traceback" not in process.log


def test_a_standby_is_ready_when_it_has_taken_over(
    start: Start, manager: Manager, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, announce = str(tmp_path / "data"), tmp_path / "announce"
    arguments = ["--endpoint", LOOPBACK, "--data", data]
    first = start(TWIST, *arguments, "--announce", str(announce))
    announced(first, announce)
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    start(TWIST, *arguments)
    assert manager.receive() == {
        "STATUS": f"standing by: {data}/lock is held by process {first.popen.pid} on"
        f" {socket.gethostname()}"
    }
    first.kill()
    assert manager.receive()["READY"] == "1"


def test_a_standby_feeds_the_watchdog(
    start: Start, manager: Manager, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, announce = ["--endpoint", LOOPBACK, "--data", str(tmp_path)], tmp_path / "announce"
    first = start(TWIST, *arguments, "--announce", str(announce))
    announced(first, announce)
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    start(TWIST, *arguments)
    assert "standing by" in manager.receive()["STATUS"]
    assert [manager.receive() for _ in range(3)] == [{"WATCHDOG": "1"}] * 3


@both
def test_it_says_when_it_reads_its_settings_again_and_what_came_of_it(
    start: Start,
    manager: Manager,
    address: str,
    tmp_path: Path,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    file = tmp_path / "stompkit.toml"
    file.write_text("")
    process = start(command, "--endpoint", LOOPBACK, "--config", str(file))
    state = manager.receive()["STATUS"]
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000
    for text, mistakes in (("", ""), ("[brokr]", f"; {file} is invalid: see the log")):
        file.write_text(text)
        process.popen.send_signal(signal.SIGHUP)
        reloading = manager.receive()
        assert reloading["RELOADING"] == "1"
        assert int(reloading["MONOTONIC_USEC"]) >= before
        assert manager.receive() == {"READY": "1", "STATUS": state + mistakes}


def test_what_keeps_it_from_its_work_is_its_status(
    start: Start, manager: Manager, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"tcp:{other.getsockname()[1]}:interface=127.0.0.1"
        process = start(TWIST, "--endpoint", taken)
        assert process.ended() == 1
    told = manager.receive()
    assert "READY" not in told
    assert told["STATUS"].startswith(f"cannot listen on {taken}")


def test_the_watchdog_is_fed_as_long_as_the_reactor_turns(
    start: Start, manager: Manager, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    process = start(TWIST, "--endpoint", LOOPBACK)
    assert "READY" in manager.receive()
    for _ in range(3):
        assert manager.receive() == {"WATCHDOG": "1"}
    process.terminate()
    manager.until("STOPPING")


def test_a_broker_does_its_work_where_nobody_listens(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "missing"))
    announce = tmp_path / "announce"
    process = start(TWIST, "--endpoint", LOOPBACK, "--announce", str(announce))
    [where] = announced(process, announce)
    with Client(where) as client:
        assert client.first.startswith(b"CONNECTED\n")
    process.wait_for("from NOTIFY_SOCKET, of READY=1: No such file or directory")
    assert process.terminate() in (0, -signal.SIGTERM)


# Messages.


def told(manager: Manager, address: str, **environment: str) -> tuple[Notifier, Clock]:
    clock = Clock()
    return Notifier(clock, {"NOTIFY_SOCKET": address, **environment}), clock


def test_the_watchdog_is_fed_twice_in_its_time_until_the_end(
    manager: Manager, address: str
) -> None:
    environment = {"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}
    notifier, clock = told(manager, address, **environment)
    clock.advance(10)
    assert manager.is_silent()
    notifier.ready("here")
    assert [manager.receive(), manager.receive()] == [
        {"READY": "1", "STATUS": "here"},
        {"WATCHDOG": "1"},
    ]
    notifier.ready("again")
    manager.receive()
    clock.advance(1.4)
    assert manager.is_silent()
    clock.advance(0.1)
    assert manager.receive() == {"WATCHDOG": "1"}
    notifier.close()
    clock.advance(10)
    assert manager.is_silent()
    assert clock.getDelayedCalls() == []


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "-1"},
        {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"},
    ],
)
def test_a_watchdog_that_is_not_for_this_process_is_not_fed(
    manager: Manager, address: str, environment: dict[str, str]
) -> None:
    notifier, clock = told(manager, address, **environment)
    notifier.ready("here")
    manager.receive()
    assert manager.is_silent()
    assert clock.getDelayedCalls() == []


def test_a_status_is_one_line_of_bounded_length(manager: Manager, address: str) -> None:
    notifier, _ = told(manager, address)
    notifier.status("a\nREADY=1 " + "é" * 1_000)
    [(name, text)] = manager.receive().items()
    assert name == "STATUS"
    assert text.startswith("a READY=1 é")
    assert 990 < len(text.encode()) <= 1_000


@pytest.mark.parametrize("name", ["", "relative", "vsock:2:1"])
def test_nobody_is_told_at_an_address_of_another_kind(name: str) -> None:
    notifier = Notifier(Clock(), {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1000000"})
    notifier.ready("here")
    notifier.reloading()
    notifier.stopping()
    notifier.close()


# Socket activation.

#: Prepares a service like systemd; its first argument is a listening socket.
LAUNCHER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_FDNAMES="stomp", LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"""


class Activated:
    """A listening socket, and brokers that inherit it."""

    def __init__(self, listener: socket.socket, directory: Path) -> None:
        """Start without a broker."""
        self._listener = listener
        self._directory = directory
        self.started: list[Process] = []
        host, port = listener.getsockname()[:2]
        self.where = {"host": host, "port": port}

    def start(self, command: list[str], endpoint: str) -> tuple[Process, Path]:
        """Start a broker with the socket; return it, and its announce file."""
        announce = self._directory / f"announce.{len(self.started)}"
        descriptor = self._listener.fileno()
        launched = [sys.executable, "-c", LAUNCHER, str(descriptor), *command, "stompkit"]
        process = Process(
            [*launched, "--endpoint", endpoint, "--announce", str(announce)],
            self._directory,
            descriptors=[descriptor],
        )
        self.started.append(process)
        return process, announce

    def running(self, command: list[str], endpoint: str) -> Process:
        """Start a broker, and wait until it listens."""
        process, announce = self.start(command, endpoint)
        assert announced(process, announce) == [self.where]
        return process


@pytest.fixture
def activated(tmp_path: Path) -> Iterator[Activated]:
    """A listening socket without a broker."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        activated = Activated(listener, tmp_path)
        yield activated
        for process in activated.started:
            if process.popen.poll() is None:
                process.kill()


@both
@pytest.mark.parametrize("which", ["index=0", "name=stomp"])
def test_who_connects_before_the_start_is_served_after_it(
    activated: Activated, command: list[str], which: str
) -> None:
    address = (activated.where["host"], activated.where["port"])
    with socket.create_connection(address, DEADLINE_S) as early:
        early.sendall(CONNECT)
        activated.running(command, f"systemd:domain=INET:{which}")
        assert early.recv(65_536).startswith(b"CONNECTED\n")


def test_who_connects_while_the_broker_is_started_again_waits(activated: Activated) -> None:
    address = (activated.where["host"], activated.where["port"])
    first = activated.running(TWISTD, "systemd:domain=INET:name=stomp")
    with Client(activated.where) as client:
        first.terminate()
        assert b"stompkit-code:shutting-down" in client.receive()
    assert "Traceback" not in first.log
    with socket.create_connection(address, DEADLINE_S) as between:
        between.sendall(CONNECT)
        activated.running(TWISTD, "systemd:domain=INET:name=stomp")
        assert between.recv(65_536).startswith(b"CONNECTED\n")


@pytest.mark.parametrize("which", ["index=1", "name=web"])
def test_a_socket_that_systemd_has_not_handed_over_is_told(
    activated: Activated, which: str
) -> None:
    process, _ = activated.start(TWISTD, f"systemd:domain=INET:{which}")
    assert process.ended() == 1
    assert f"systemd:domain=INET:{which}: systemd has not handed over this socket" in process.log
    assert "Traceback" not in process.log


# The units.


class Unit(configparser.RawConfigParser):
    """A parser for units: names can be repeated, and their case matters."""

    def __init__(self, path: Path) -> None:
        """Read the unit."""
        super().__init__(strict=False, delimiters=("=",), comment_prefixes=("#",))
        self.read_string(path.read_text(encoding="utf-8"))

    def optionxform(self, optionstr: str) -> str:
        """Return a name unchanged."""
        return optionstr


@pytest.mark.parametrize("name", ["stompkit.service", "stompkit@a.service", "stompkit.socket"])
def test_systemd_has_nothing_against_a_unit(name: str, tmp_path: Path) -> None:
    """Placeholders replace the programs that a user installs later."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for program in ("twistd", "stompkit"):
        (programs / program).symlink_to("/bin/true")
    for each in UNITS.iterdir():
        text = each.read_text(encoding="utf-8").replace("/opt/stompkit/bin", str(programs))
        (tmp_path / each.name.replace("@.", "@a.")).write_text(text, encoding="utf-8")
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        assert Unit(UNITS / name.replace("@a.", "@.")).sections()[-1] == "Install"
        return
    done = subprocess.run(
        [analyze, "verify", "--man=no", "--recursive-errors=no", str(tmp_path / name)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    about = [line for line in done.stderr.splitlines() if str(tmp_path) in line or name in line]
    assert about == []


def test_the_unit_names_what_the_broker_does() -> None:
    service = Unit(UNITS / "stompkit.service")["Service"]
    assert service["Type"] == "notify"
    words = service["ExecStart"].split()
    assert words[:4] == ["/opt/stompkit/bin/twistd", "--nodaemon", "--pidfile=", "stompkit"]
    assert service["ExecReload"] == "/bin/sh -c 'kill -HUP $MAINPID'"
    assert int(service["LimitNOFILE"]) > 2 * 10_000


def test_the_unit_for_several_brokers_is_the_same_as_the_other_one_else() -> None:
    one, several = (Unit(UNITS / f"stompkit{each}.service") for each in ("", "@"))
    for section in one.sections():
        differing = {
            name
            for name in {*one[section], *several[section]}
            if one[section].get(name) != several[section].get(name)
        }
        expected = {
            "Unit": {"Description"},
            # systemd does not wait until a standby is ready, which may take years.
            "Service": {
                *("Type", "TimeoutStartSec", "ExecStart", "EnvironmentFile"),
                *("RuntimeDirectory",),
            },
        }
        assert differing == expected.get(section, set())
    assert several["Service"]["Type"] == "exec"
    assert several["Service"]["ExecStart"] == f"{one['Service']['ExecStart']} $OPTIONS"


def test_the_socket_unit_says_how_the_settings_have_to_be() -> None:
    path = UNITS / "stompkit.socket"
    socket_unit = Unit(path)["Socket"]
    comment = "\n".join(re.findall(r"^#   (.*)$", path.read_text(), re.MULTILINE))
    [endpoint] = parse_settings(comment, "the comment").descriptions
    assert endpoint.endswith(f":name={socket_unit['FileDescriptorName']}")
    assert int(socket_unit["Backlog"]) == 4096
