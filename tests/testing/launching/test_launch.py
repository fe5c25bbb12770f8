"""Launching brokers: real ones, and small ones with deliberate faults."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from stompkit.frames import Frame, FrameDecoder, encode
from stompkit.testing import (
    BrokerError,
    BrokerMissingError,
    BrokerStartError,
    LaunchConfig,
    RunningBroker,
    given,
    launch,
)
from stompkit.testing.launching.brokers import LAUNCHERS
from stompkit.testing.launching.fetched import cache_folder
from stompkit.testing.launching.launch import launch_with
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.launching.ports import Ports, is_listening
from tests.effort import in_matrix
from tests.testing.launched import (
    ANSWERING,
    CONNECTED,
    FETCHED,
    LONG_S,
    ROOT,
    VERSIONS,
    Scripted,
    kill_from_outside,
    needs_proc,
    processes_below,
    require,
)

EVERY_BROKER = [in_matrix(name) if name in FETCHED else name for name in LAUNCHERS] + VERSIONS
#: Behaviour that launchers share is tested with slow brokers in the matrix only.
QUICK_BROKERS = [
    in_matrix(name) if name in (*FETCHED, "activemq", "rabbitmq") else name for name in LAUNCHERS
]
#: MorbidQ sends no receipts and changes bodies: see test_morbidq_launcher.py.
BROKERS = [name for name in EVERY_BROKER if name != "morbidq"]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate directory for all temporary files, those of brokers included."""
    path = tmp_path / "t"
    path.mkdir()
    monkeypatch.setenv("TMPDIR", str(path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    return path


class Client:
    """Raw frames to and from a broker, one at a time."""

    def __init__(self, broker: RunningBroker) -> None:
        """Connect and log in."""
        self._socket = socket.create_connection((broker.host, broker.port), LONG_S)
        self._decoder = FrameDecoder(None)
        self._frames: list[Frame] = []
        headers = {"accept-version": "1.1", "host": broker.vhost}
        if broker.login is not None:
            headers |= {"login": broker.login, "passcode": broker.passcode or ""}
        self._socket.sendall(encode(Frame("CONNECT", headers), None))
        self.connected = self.receive()
        self._decoder.negotiated("1.1")

    def send(self, command: str, body: bytes = b"", **headers: str) -> None:
        """Send one frame; underscores in names of headers stand for dashes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._socket.sendall(encode(Frame(command, named, body), "1.1"))

    def receive(self) -> Frame:
        """Return the next frame."""
        while not self._frames:
            data = self._socket.recv(65_536)
            assert data, "the broker closed the connection"
            self._frames = self._decoder.feed(data)
        return self._frames.pop(0)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def exchange(broker: RunningBroker) -> Frame:
    """Send a message to a queue and return it as it is received."""
    client = Client(broker)
    try:
        assert client.connected.command == "CONNECTED", client.connected
        client.send("SUBSCRIBE", destination="/queue/test", id="1", receipt="r-1")
        assert client.receive().headers["receipt-id"] == "r-1"
        client.send("SEND", b"a\0b", destination="/queue/test", content_length="3")
        return client.receive()
    finally:
        client.close()


def refused(broker: RunningBroker, login: str, passcode: str) -> bool:
    """Return True if the broker answers CONNECT with an ERROR for this user."""
    client = Client(
        given(broker.host, broker.port, login=login, passcode=passcode, vhost=broker.vhost)
    )
    client.close()
    return client.connected.command == "ERROR"


# Real brokers.


def listened_on(broker: RunningBroker) -> set[str]:
    """Return the addresses, without ports, on which the processes of a broker listen."""
    assert broker.directory is not None
    own = {line.partition(":")[0] for line in processes_below(broker.directory.parent)}
    table = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True)
    return {
        line.split()[3].rpartition(":")[0]
        for line in table.stdout.splitlines()
        if any(f"pid={pid}," in line for pid in own)
    }


@needs_proc
@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_from_start_to_stop(name: str, temporary: Path) -> None:
    broker = launch(LaunchConfig(name=require(name)))
    try:
        assert broker.url == f"stomp://127.0.0.1:{broker.port}"
        assert broker.directory is not None
        assert broker.directory.parent == temporary
        assert processes_below(temporary)
        message = exchange(broker)
        assert (message.command, message.body) == ("MESSAGE", b"a\0b")
        log = broker.log
        assert log
        if shutil.which("ss") is not None:
            loopback = {"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"}
            assert set() < listened_on(broker) <= loopback
        # Other processes of this machine see no other /usr.
        assert str(cache_folder()) not in Path("/proc/mounts").read_text()
    finally:
        broker.stop()
    assert not is_listening(broker.host, broker.port)
    assert processes_below(temporary) == []
    assert list(temporary.iterdir()) == []
    assert str(cache_folder()) not in Path("/proc/mounts").read_text()
    assert broker.log.startswith(log)
    broker.stop()


@needs_proc
@pytest.mark.skipif(shutil.which("ss") is None, reason="needs ss: apt-get install iproute2")
def test_morbidq_listens_on_loopback_only(temporary: Path) -> None:
    with launch(LaunchConfig(name="morbidq")) as broker:
        assert listened_on(broker) == {"127.0.0.1"}


@needs_proc
@pytest.mark.parametrize("name", QUICK_BROKERS + VERSIONS)
def test_nothing_is_left_when_the_tests_are_killed(name: str, temporary: Path) -> None:
    program = (
        "import signal, sys\n"
        "from stompkit.testing import LaunchConfig, launch\n"
        f"broker = launch(LaunchConfig(name={require(name)!r}))\n"
        "print(broker.port, flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as tests:
        assert tests.stdout is not None
        port = int(tests.stdout.readline())
        assert processes_below(temporary)
        tests.kill()
    assert wait_until(lambda: not processes_below(temporary), LONG_S), processes_below(temporary)
    assert wait_until(lambda: not any(temporary.iterdir()), LONG_S)
    assert not is_listening("127.0.0.1", port)


@pytest.mark.parametrize("name", ["coilmq", "activemq", in_matrix("artemis"), VERSIONS[0]])
def test_a_broker_with_a_user_refuses_others(name: str) -> None:
    config = LaunchConfig(name=require(name), login="alice", passcode="open & sesame")
    with launch(config) as broker:
        assert (broker.login, broker.passcode) == ("alice", "open & sesame")
        assert exchange(broker).body == b"a\0b"
        assert refused(broker, "alice", "no")


@pytest.mark.parametrize("name", [in_matrix("rabbitmq"), VERSIONS[1]])
def test_rabbitmq_has_the_virtual_host_asked_for_and_its_guest(name: str) -> None:
    config = LaunchConfig(name=require(name), login="alice", passcode="a", vhost="orders")
    with launch(config) as broker:
        users = {"alice": "a", "guest": "guest"}
        for vhost, (login, passcode) in product(("/", "orders"), users.items()):
            broker.client(host=vhost, login=login, passcode=passcode).close()
        assert broker.vhost == "orders"
        assert exchange(broker).body == b"a\0b"
        assert refused(broker, "alice", "no")
        guest = given(broker.host, broker.port, name=name)
        assert (guest.login, guest.vhost) == ("guest", "/")
        assert exchange(guest).body == b"a\0b"


@needs_proc
@pytest.mark.parametrize("name", [name for name in QUICK_BROKERS if name != "morbidq"])
def test_a_broker_can_be_launched_again_where_it_was_killed(name: str, tmp_path: Path) -> None:
    directory = tmp_path / "d"
    with launch(LaunchConfig(name=require(name), directory=directory)) as first:
        first.kill()
        assert processes_below(tmp_path) == []
        assert not is_listening(first.host, first.port)
        first.kill()
    with launch(LaunchConfig(name=name, directory=str(directory), port=first.port)) as second:
        assert second.port == first.port
        assert exchange(second).body == b"a\0b"
    assert (directory / "broker.log").exists()


@needs_proc
@pytest.mark.parametrize("end", ["stop", "kill", "die"])
@pytest.mark.parametrize("name", [name for name in QUICK_BROKERS if name != "morbidq"])
def test_one_broker_runs_in_a_directory_at_a_time(name: str, tmp_path: Path, end: str) -> None:
    config = LaunchConfig(name=require(name), directory=tmp_path)
    with launch(config) as first:
        log = first.log
        with pytest.raises(
            BrokerStartError, match=r"(?s)process \d+ on .* runs a broker in .*stop"
        ):
            launch(config)
        assert exchange(first).body == b"a\0b"
        assert first.log.startswith(log)
        if end == "die":
            kill_from_outside(first)
            assert wait_until(lambda: not first.is_running, LONG_S)
        else:
            getattr(first, end)()
        with launch(config) as second:
            assert exchange(second).body == b"a\0b"
            if end == "kill":
                with pytest.raises(BrokerStartError, match="name another folder"):
                    first.restart()


def test_coilmq_says_what_it_can_not_do() -> None:
    require("coilmq")
    with pytest.raises(BrokerError, match="knows IPv4 only"):
        launch(LaunchConfig(name="coilmq", host="::1"))
    with pytest.raises(BrokerError, match="cannot read a header with a colon"):
        launch(LaunchConfig(name="coilmq", login="me", passcode="a:b"))


@pytest.mark.parametrize(
    "name", ["stompkit", in_matrix("activemq"), in_matrix("artemis"), in_matrix("rabbitmq")]
)
def test_a_broker_on_ipv6(name: str) -> None:
    require(name)
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with launch(LaunchConfig(name=name, host="::1")) as broker:
        assert broker.url == f"stomp://[::1]:{broker.port}"
        assert exchange(broker).body == b"a\0b"


@pytest.mark.parametrize(
    ("name", "version"),
    [
        in_matrix("artemis", ""),
        in_matrix("activemq:5", "5."),
        in_matrix("rabbitmq:3", "3."),
        in_matrix("activemq:6", "6."),
        in_matrix("rabbitmq:4", "4."),
    ],
)
def test_a_broker_of_a_version_tells_its_name_and_version(name: str, version: str) -> None:
    with launch(LaunchConfig(name=require(name))) as broker:
        assert broker.name == name.partition(":")[0]
        assert broker.version.startswith(version)
        with broker.client() as client:
            assert broker.version in client.connected["server"]


# Servers that are not installed.


@pytest.mark.parametrize("name", ["activemq", "rabbitmq"])
def test_a_missing_program_is_named_with_its_package(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("STOMPKIT_SERVERS", str(tmp_path))
    with pytest.raises(BrokerMissingError, match="on PATH") as caught:
        launch(LaunchConfig(name=name))
    assert caught.value.name == name
    assert "apt-get install" in caught.value.reason


@pytest.mark.parametrize(
    ("name", "remedy"), [("coilmq", "pip install 'coilmq"), ("stompkit", "pip install 'Twisted")]
)
def test_a_missing_python_package_is_named(name: str, remedy: str) -> None:
    """The interpreter has no installed packages."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from stompkit.testing import BrokerMissingError, LaunchConfig, launch\n"
        f"try: launch(LaunchConfig(name={name!r}))\n"
        "except BrokerMissingError as error: print(error)\n"
    )
    bare = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        env={"PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert bare.stdout.startswith(f"{name} is not installed: ")
    assert remedy in bare.stdout


def test_an_unknown_broker_is_told_with_the_known_ones() -> None:
    with pytest.raises(BrokerError, match="'hornetq'; known: stompkit, coilmq, activemq, artemis"):
        launch(LaunchConfig(name="hornetq"))


# Brokers given by their command.

#: Listens on the given port, and writes its other arguments and its folder into a file.
TOLD = """
import os, pathlib, sys
pathlib.Path(sys.argv[3], "told").write_text(repr([os.getcwd(), *sys.argv[4:]]))
"""


def test_any_broker_is_launched_by_its_command(tmp_path: Path) -> None:
    script = tmp_path / "its own.py"
    script.write_text(TOLD + ANSWERING)
    command = (
        f"command:{sys.executable} '{script}' {{port}} '{CONNECTED}' {{directory}} "
        "--user={login}@{host} '{passcode} {{}}'"
    )
    config = LaunchConfig(name=command, login="a b", passcode="c'd", arguments=("--last",))
    with launch(config) as broker:
        assert broker.name == Path(sys.executable).name
        assert (broker.login, broker.passcode) == ("a b", "c'd")
        assert broker.directory is not None
        told = (broker.directory / "told").read_text()
        assert told == repr([os.getcwd(), "--user=a b@127.0.0.1", "c'd {}", "--last"])
    assert not broker.directory.exists()


def test_a_real_broker_by_its_command(temporary: Path) -> None:
    require("stompkit")
    endpoint = "tcp:{port}:interface={host}"
    command = f"command:{sys.executable} -m twisted stompkit --endpoint {endpoint}"
    with launch(LaunchConfig(name=command)) as broker:
        assert exchange(broker).body == b"a\0b"
        assert "listening on" in broker.log


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("", "takes a command that tells its broker where to listen, as in command:/opt"),
        ("mq --port 61613", "takes a command that tells its broker where to listen"),
        ("mq '{port}", "No closing quotation"),
        ("mq {port} --x={prot}", "'--x={prot}' has {prot}, which stands for nothing; there are {p"),
        ("mq {port} {", "'{' is no word of a command: "),
        ("/no/such/mq {port}", "there is no program '/no/such/mq' on PATH"),
    ],
)
def test_a_command_that_makes_no_sense_is_told(command: str, problem: str, temporary: Path) -> None:
    with pytest.raises(BrokerError, match=re.escape(problem)):
        launch(LaunchConfig(name=f"command:{command}"))
    assert list(temporary.iterdir()) == []


# Options that not every broker has.


@pytest.mark.parametrize(
    ("name", "config", "problem"),
    [
        (
            "rabbitmq",
            {"control": True},
            r"rabbitmq cannot .*\(control=...\), which is for stompkit: ",
        ),
        ("coilmq", {"quirks": "morbidq"}, r"coilmq cannot .*quirks=...\), which is for stompkit: "),
        (
            "morbidq",
            {"persistent": True},
            r"which is for stompkit, coilmq, activemq, artemis, rabbitmq: ",
        ),
        ("command:sh -c {port}", {"control": True}, r"^sh cannot be launched"),
    ],
)
def test_a_broker_is_not_launched_with_what_it_lacks(
    name: str, config: dict[str, Any], problem: str
) -> None:
    with pytest.raises(BrokerError, match=problem):
        launch(LaunchConfig(name=name, **config))


# Faulty brokers.


def failure(launcher: Scripted, config: LaunchConfig | None = None) -> str:
    """Return the message of a start that fails."""
    with pytest.raises(BrokerStartError) as caught:
        launch_with(launcher, config or LaunchConfig(name="scripted"))
    return str(caught.value)


def test_a_broker_that_ends_at_once_is_reported(temporary: Path) -> None:
    message = failure(Scripted("print('no licence')\nraise SystemExit(4)"))
    assert message.startswith("scripted did not start: it ended after ")
    assert "with exit status 4." in message
    assert "command: " in message
    assert sys.executable in message
    assert "| no licence" in message
    (directory,) = temporary.iterdir()
    assert str(directory / "broker.log") in message
    assert "what to try:" in message


def test_a_broker_that_a_signal_ends_is_reported(temporary: Path) -> None:
    message = failure(Scripted("import os, signal; os.kill(os.getpid(), signal.SIGABRT)"))
    assert "with signal SIGABRT." in message
    assert "the log is empty" in message


@needs_proc
def test_a_broker_that_never_answers_is_reported_and_ended(temporary: Path) -> None:
    silent = "import socket, sys, signal\ns = socket.create_server(('127.0.0.1', int(sys.argv[1])))"
    # Long enough for a starved machine to start Python, which has to listen by then.
    config = LaunchConfig(name="scripted", start_timeout_s=3.0)
    message = failure(Scripted(silent + "\nsignal.pause()"), config)
    assert "it was not ready after 3." in message
    assert "it gave no answer to CONNECT" in message
    assert "start_timeout_s" in message
    assert processes_below(temporary) == []


def test_a_broker_that_never_listens_is_reported(temporary: Path) -> None:
    config = LaunchConfig(name="scripted", start_timeout_s=0.3)
    message = failure(Scripted("import signal; signal.pause()"), config)
    assert "it could not be asked ([Errno" in message


def test_a_broker_that_keeps_refusing_is_not_waited_for(temporary: Path) -> None:
    started = time.monotonic()
    message = failure(Scripted(ANSWERING, "ERROR\nmessage:no such user\n\nask Bob"))
    assert "answered CONNECT with ERROR: no such user" in message
    assert time.monotonic() - started < LONG_S / 2


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"login": "a\nb"}, "this login: header 'login' holds a line feed or NUL"),
        ({"login": "a", "passcode": "s\0"}, "this passcode: header 'passcode' holds"),
        ({"login": "a", "passcode": "s\r"}, "holds a carriage return. .* --mq-passcode"),
        ({"login": "a", "passcode": "\udcff"}, "this passcode: a header holds a lone surrogate"),
        ({"login": "a", "passcode": b"s"}, "this passcode: it is bytes, not str"),
        ({"passcode": "s"}, "has a passcode and no login: give one by --mq-login"),
        ({"vhost": "a\nb"}, r"this vhost: .*LaunchConfig\(vhost=\.\.\.\)"),
        ({"port": 65_536}, "cannot listen on port 65536, which is not from 1 to 65535"),
        ({"port": -1}, "cannot listen on port -1"),
        ({"websocket_port": 65_536}, r"leave LaunchConfig\(websocket_port=\.\.\.\) out"),
    ],
)
def test_a_setting_that_cannot_be_used_is_told_at_once(
    fields: dict[str, Any], problem: str, temporary: Path
) -> None:
    """In an error of the launch that shows no passcode."""
    with pytest.raises(BrokerError, match=problem):
        launch_with(Scripted(ANSWERING, CONNECTED), LaunchConfig(name="scripted", **fields))
    assert list(temporary.iterdir()) == []


def test_another_port_is_taken_when_somebody_was_faster(temporary: Path, tmp_path: Path) -> None:
    program = (
        "import pathlib, sys\n"
        "ports = pathlib.Path(sys.argv[3])\n"
        "with ports.open('a') as file: print(sys.argv[1], file=file)\n"
        "if len(ports.read_text().split()) == 1: sys.exit('Address already in use')\n"
    )
    ports = tmp_path / "ports"
    launcher = Scripted(program + ANSWERING, CONNECTED, str(ports))
    with launch_with(launcher, LaunchConfig(name="scripted")) as broker:
        tried = ports.read_text().split()
        assert len(tried) == 2
        assert tried[1] == str(broker.port)
        assert len(list(temporary.iterdir())) == 1


def test_a_port_that_is_always_taken_is_given_up(temporary: Path) -> None:
    message = failure(Scripted("raise SystemExit('[Errno 98] Address already in use')"))
    assert "leave it out to have a free one chosen" in message
    assert len(list(temporary.iterdir())) == 1


def test_a_port_that_is_in_use_is_told_before_anything_runs(temporary: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        message = failure(Scripted(ANSWERING), LaunchConfig(name="scripted", port=port))
    assert f"it was not run: 127.0.0.1 port {port} is in use" in message
    assert "command" not in message
    assert list(temporary.iterdir()) == []


def test_an_address_of_another_machine_is_told(temporary: Path) -> None:
    config = LaunchConfig(name="scripted", host="192.0.2.1", port=61613)
    assert "192.0.2.1 port 61613 cannot be listened on" in failure(Scripted(ANSWERING), config)


def test_added_arguments_are_suspected(temporary: Path) -> None:
    launcher = LAUNCHERS[require("coilmq")]
    with pytest.raises(BrokerStartError, match="leave out the arguments that were added: --hurry"):
        launch_with(launcher, LaunchConfig(name="coilmq", arguments=("--hurry",)))


def test_a_stubborn_broker_is_killed_after_its_time(temporary: Path) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    launcher = Scripted(stubborn + ANSWERING, CONNECTED)
    broker = launch_with(launcher, LaunchConfig(name="scripted", stop_timeout_s=0.3))
    started = time.monotonic()
    broker.stop()
    assert 0.3 <= time.monotonic() - started < LONG_S
    assert not is_listening(broker.host, broker.port)


# Ports.


def test_ports_that_were_taken_are_not_given_twice() -> None:
    first, second = Ports("127.0.0.1"), Ports("127.0.0.1")
    try:
        taken = [ports.take() for _ in range(200) for ports in (first, second)]
        if sys.platform == "linux":
            assert len(set(taken)) == len(taken)
        server = socket.create_server(("127.0.0.1", taken[0]))
        server.close()
    finally:
        first.close()
        second.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port is not held")
def test_a_port_is_free_at_all_addresses_and_stays_so() -> None:
    """A connection from another address of this machine would prevent RabbitMQ from using it."""
    ports = Ports("127.0.0.1")
    try:
        port = ports.take()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.9", port))
        with socket.create_server(("", port)) as server:
            assert server.getsockname()[1] == port
    finally:
        ports.close()


# The end of brokers.


@pytest.fixture
def running() -> Iterator[RunningBroker]:
    """A broker with a fast start."""
    with launch(LaunchConfig(name=require("stompkit"))) as broker:
        yield broker


def test_a_given_broker_is_described_and_never_stopped(running: RunningBroker) -> None:
    with given(running.host, running.port) as broker:
        assert broker.name == "given"
        assert (broker.login, broker.passcode, broker.directory) == (None, None, None)
        assert broker.log == ""
        broker.stop()
    assert exchange(running).body == b"a\0b"


def test_nobody_need_be_there_to_describe_a_given_broker() -> None:
    broker = given("::1", 1, login="", passcode="x")
    assert broker.url == "stomp://[::1]:1"
    assert broker.login is None


@needs_proc
@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "raise KeyError"])
def test_a_forgotten_broker_stops_with_the_interpreter(end: str, temporary: Path) -> None:
    require("stompkit")
    program = f"from stompkit.testing import *\nbroker = launch(LaunchConfig())\n{end}"
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert processes_below(temporary) == []
    assert list(temporary.iterdir()) == []


def test_a_forked_copy_of_the_tests_does_not_stop_the_broker(temporary: Path) -> None:
    require("stompkit")
    program = (
        "import os, sys\n"
        "from stompkit.testing import *\n"
        "from stompkit.testing.launching.ports import is_listening\n"
        "broker = launch(LaunchConfig())\n"
        "if os.fork() == 0: sys.exit()\n"
        "os.wait()\n"
        "print(is_listening(broker.host, broker.port))\n"
    )
    tests = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert tests.stdout == "True\n"


def test_the_terminal_s_interrupt_does_not_reach_a_broker(temporary: Path) -> None:
    """Ctrl-C goes to the process group of the tests; they decide when the broker stops."""
    program = (
        "import signal, sys\n"
        "from stompkit.testing import *\n"
        "from stompkit.testing.launching.ports import is_listening\n"
        "signal.signal(signal.SIGINT, lambda *_: None)\n"
        f"broker = launch(LaunchConfig(name={require('stompkit')!r}))\n"
        "print(flush=True)\n"
        "sys.stdin.readline()\n"
        "print(is_listening(broker.host, broker.port))\n"
    )
    tests = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with tests:
        assert tests.stdin is not None
        assert tests.stdout is not None
        tests.stdout.readline()
        os.killpg(tests.pid, signal.SIGINT)
        tests.stdin.close()
        assert tests.stdout.read() == b"True\n"
