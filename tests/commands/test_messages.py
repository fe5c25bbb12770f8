"""The commands that send, receive and move messages, in child processes, on real brokers."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import stompkit
from stompkit._commands.shared.session import reason_of
from stompkit.client import LoginRefusedError
from stompkit.testing import RunningBroker
from stompkit.testing.plugin import BrokerFactory
from tests.effort import in_matrix
from tests.ports import free_ports
from tests.server.secured import secured

LONG_S = 60.0
ROOT = str(Path(stompkit.__file__).parents[1])
#: Time in seconds without messages, for a busy machine.
QUIET = ["--timeout", "5"]
QUIET_TIME = ["--quiet-time", "5"]


class Commands:
    """Commands configured for a broker by the environment, as those of ``stompkit run``."""

    def __init__(self, broker: RunningBroker) -> None:
        """Set the broker."""
        said = {
            "URL": broker.url,
            "LOGIN": broker.login,
            "PASSCODE": broker.passcode,
            "VHOST": broker.vhost,
        }
        path = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH", "")]))
        self.broker = broker
        self.environment = {**os.environ, "PYTHONPATH": path} | {
            f"STOMPKIT_{name}": value for name, value in said.items() if value is not None
        }

    def start(
        self,
        *arguments: str,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a command."""
        return subprocess.Popen(
            [sys.executable, "-m", "stompkit", *arguments],
            env=self.environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )

    def run(self, *arguments: str, said: bytes = b"", status: int = 0) -> bytes:
        """Run a command with this standard input, and return its output."""
        output, errors = self.both(*arguments, said=said, status=status)
        assert status or not errors, errors
        return output

    def both(self, *arguments: str, said: bytes = b"", status: int) -> tuple[bytes, str]:
        """Return its output and its standard error."""
        done = subprocess.run(
            [sys.executable, "-m", "stompkit", *arguments],
            env=self.environment,
            input=said,
            capture_output=True,
            timeout=LONG_S,
            check=False,
        )
        errors = done.stderr.decode()
        assert done.returncode == status, errors
        assert "Traceback" not in errors
        return done.stdout, errors

    def take(self, queue: str, count: int) -> list[bytes]:
        """Return this many bodies of a queue, each a line."""
        return self.run("receive", queue, "--count", str(count)).splitlines()


@pytest.fixture(scope="module", params=["stompkit", in_matrix("activemq"), in_matrix("rabbitmq")])
def commands(
    request: pytest.FixtureRequest, stomp_broker_factory: BrokerFactory
) -> Iterator[Commands]:
    """Commands for each of the brokers."""
    with stomp_broker_factory(request.param, frames=False) as broker:
        yield Commands(broker)


@pytest.fixture(scope="module")
def ours(stomp_broker_factory: BrokerFactory) -> Iterator[Commands]:
    """Commands for a stompkit broker."""
    with stomp_broker_factory("stompkit", frames=False) as broker:
        yield Commands(broker)


@pytest.fixture
def queue() -> str:
    """A unique queue."""
    return f"/queue/{uuid4().hex}"


# By TLS.


def test_messages_go_over_tls_to_whom_one_trusts(
    ours: Commands, queue: str, tmp_path: Path
) -> None:
    with secured(tmp_path) as broker:
        url = f"stomps://{broker.host}:{broker.port}"
        trusting = ["--mq", f"{url}?ca={broker.authorities}"]
        ours.run("send", queue, "secret", *trusting)
        untrusting = ["--mq", url, "--attempts", "1"]
        errors = ours.both("send", queue, "x", *untrusting, status=1)[1]
        assert "certificate verify failed" in errors
        assert ours.run("receive", queue, "--count", "1", *trusting) == b"secret\n"


def test_messages_go_to_a_broker_that_requires_a_certificate(
    ours: Commands, queue: str, tmp_path: Path
) -> None:
    with secured(tmp_path, asks_for_certificates=True) as broker:
        url = f"stomps://{broker.host}:{broker.port}?ca={broker.authority}"
        shown = ["--mq", f"{url}&cert={broker.client}&key={broker.client}"]
        ours.run("send", queue, "secret", *shown)
        errors = ours.both("send", queue, "x", "--mq", url, "--attempts", "1", status=1)[1]
        assert "requires a client certificate, and got none" in errors
        missing = ["--mq", f"{url}&cert={tmp_path / 'none.pem'}"]
        errors = ours.both("send", queue, "x", *missing, status=2)[1]
        assert "none.pem: No such file or directory" in errors
        assert "Traceback" not in errors
        assert ours.run("receive", queue, "--count", "1", *shown) == b"secret\n"


# On each of the brokers.


def test_what_is_sent_is_received_in_order(commands: Commands, queue: str) -> None:
    lines = [f"line {number} é".encode() for number in range(500)]
    commands.run("send", queue, "--persistent", "first", "second")
    commands.run("send", queue, "--lines", "--persistent", said=b"\n".join(lines))
    assert commands.take(queue, 502) == [b"first", b"second", *lines]


def test_messages_go_through_a_pipe_from_one_queue_to_another(
    commands: Commands, queue: str
) -> None:
    commands.run("send", queue, "-H", "colour:blue", "-H", "content-type:text/plain", "text")
    commands.run("send", queue, "-H", "content-type:image/x", said=b"\xff\0\n")
    lines = commands.run("receive", queue, "--json", "--count", "2")
    documents = [json.loads(line) for line in lines.splitlines()]
    assert documents[0]["body"] == "text"
    assert documents[0]["headers"]["colour"] == "blue"
    assert documents[1]["body_base64"] == "/wAK"
    commands.run("send", f"{queue}-2", "--jsonl", said=lines)
    again = commands.run("receive", f"{queue}-2", "--json", "--count", "2").splitlines()
    for line, before in zip(map(json.loads, again), documents, strict=True):
        assert line.get("body") == before.get("body")
        assert line.get("body_base64") == before.get("body_base64")
        for name in ("colour", "content-type"):
            assert line["headers"].get(name) == before["headers"].get(name)


def test_what_is_looked_at_stays(commands: Commands, queue: str) -> None:
    assert commands.run("send", queue, "1", "2", "3") == b"3 messages confirmed\n"
    seen = commands.run("receive", queue, "--browse", *QUIET)
    assert seen.splitlines() == [b"1", b"2", b"3"]
    assert commands.take(queue, 3) == [b"1", b"2", b"3"]


def test_messages_beyond_what_a_broker_shows_are_reported(commands: Commands, queue: str) -> None:
    commands.run("send", queue, "--lines", said=b"1\n2\n3\n4\n5")
    seen, said = commands.both("receive", queue, "--browse", "--prefetch", "3", *QUIET, status=0)
    if commands.broker.name == "stompkit":
        assert (seen.split(), said) == ([b"1", b"2", b"3", b"4", b"5"], "")
    else:
        assert seen.split() == [b"1", b"2", b"3"]
        assert "3 messages shown; there may be more" in said
        assert "raise --prefetch" in said
    commands.take(queue, 5)


def test_only_what_was_printed_is_gone(commands: Commands, queue: str) -> None:
    commands.run("send", queue, "--lines", said=b"1\n2\n3\n4\n5")
    assert commands.take(queue, 2) == [b"1", b"2"]
    assert commands.take(queue, 3) == [b"3", b"4", b"5"]


def test_messages_of_a_transaction_arrive_together(commands: Commands, queue: str) -> None:
    body = b"\n".join(b"%d" % number for number in range(250))
    told = commands.run("send", queue, "--lines", "--transaction", "100", "--json", said=body)
    document = json.loads(told)
    assert (document["sent"], document["confirmed"]) == (250, 250)
    assert commands.take(queue, 250) == body.split(b"\n")


def test_messages_move_to_another_queue(commands: Commands, queue: str) -> None:
    lines = [b"%d" % number for number in range(300)]
    commands.run("send", queue, "--lines", "-H", "colour:blue", said=b"\n".join(lines))
    url = commands.broker.url
    moved = commands.run("move", queue, f"{queue}-2", "--mq", url, "--limit", "250", "--json")
    assert json.loads(moved) == {"moved": 250}
    assert commands.take(f"{queue}-2", 250) == lines[:250]
    moved = commands.run("move", queue, f"{queue}-2", "--mq", url, *QUIET_TIME)
    assert moved == b"50 messages moved\n"
    moved, said = commands.both("move", queue, f"{queue}-2", "--mq", url, *QUIET_TIME, status=0)
    assert moved == b"0 messages moved\n"
    assert said.startswith(f"stompkit move: no message came from '{queue}' in ")
    left = commands.run("receive", f"{queue}-2", "--json", "--count", "50").splitlines()
    assert [json.loads(line)["body"].encode() for line in left] == lines[250:]
    assert {json.loads(line)["headers"]["colour"] for line in left} == {"blue"}


def test_messages_do_not_move_to_the_same_queue_for_ever(
    stomp_broker_factory: BrokerFactory, tmp_path: Path, queue: str
) -> None:
    (tmp_path / "broker.toml").write_text('[broker]\ndialect = "activemq"\n', encoding="utf-8")
    arguments = ("--config", str(tmp_path / "broker.toml"))
    with stomp_broker_factory("stompkit", frames=False, arguments=arguments) as broker:
        commands = Commands(broker)
        commands.run("send", queue, "--lines", said=b"1\n2\n3")
        move = ["move", queue, queue.removeprefix("/queue/"), "--mq", broker.url, *QUIET_TIME]
        assert "one queue for this broker" in commands.both(*move, status=1)[1]
        assert sorted(commands.take(queue, 3)) == [b"1", b"2", b"3"]
        assert commands.run("receive", queue, "--timeout", "1", status=3) == b""


def test_a_purged_queue_is_empty(commands: Commands, queue: str) -> None:
    commands.run("send", queue, "--count", "150", "x")
    purge = ["purge", queue, "--mq", commands.broker.url]
    assert "Say --yes" in commands.both(*purge, status=2)[1]
    assert commands.run(*purge, "--yes", *QUIET_TIME) == b"150 messages removed\n"
    assert commands.run("receive", queue, "--timeout", "1", status=3) == b""


def test_the_brokers_refusal_is_told(commands: Commands, queue: str) -> None:
    if commands.broker.name == "activemq":  # accepts any name, and every user
        wrong = ["receive", queue, "--selector", "a ="]
    else:
        wrong = ["send", "/nonsense/x", "x"]
    said = commands.both(*wrong, "--attempts", "1", status=1)[1]
    assert "answers with ERROR: " in said
    if commands.broker.name == "rabbitmq":
        login = ["--login", "nobody", "--passcode-file", os.devnull]
        said = commands.both("send", queue, "x", *login, status=1)[1]
        assert "refuses the login: " in said


# Sending.


def test_a_broker_that_is_not_there_is_told(ours: Commands) -> None:
    with free_ports() as [port]:
        at = ["--mq", f"me:secret@localhost:{port}", "--attempts", "2"]
        for command in (["send", "/queue/a", "x"], ["receive", "/queue/a"]):
            said = ours.both(*command, *at, status=1)[1]
            assert f"cannot connect to localhost:{port}: " in said
            assert "secret" not in said
        # The next host is tried, and passcodes in a file or variable are used there.
        both = f"stomp://localhost:{port},127.0.0.1:{ours.broker.port}"
        ours.environment["OTHER_URL"] = both
        ours.run("send", "/queue/failover", "x", "--mq", "env:OTHER_URL")
    assert ours.take("/queue/failover", 1) == [b"x"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "line 2: this is no JSON"),
        (b"[]", "line 2: a message is an object"),
        (b'{"text": "x"}', "not 'text'"),
        (b'{"headers": {"a": 1}}', "headers have to be an object with texts"),
        (b'{"body": 1}', "body has to be a text"),
        (b'{"body": "x", "body_base64": ""}', "not both"),
        (b'{"body_base64": "?"}', "has to be base64"),
    ],
)
def test_a_line_that_is_no_message_ends_it(
    ours: Commands, queue: str, line: bytes, problem: str
) -> None:
    said = b'{"body": "good"}\n' + line + b'\n{"body": "not sent"}'
    assert problem in ours.both("send", queue, "--jsonl", said=said, status=1)[1]
    assert ours.take(queue, 1) == [b"good"]


def test_an_error_while_reading_is_not_the_end_of_the_lines(ours: Commands, queue: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        writing = socket.create_connection(server.getsockname())
        reading, _ = server.accept()
    with (
        reading,
        ours.start(
            "send", queue, "--lines", stdin=reading.fileno(), stderr=subprocess.PIPE
        ) as process,
    ):
        assert process.stderr is not None
        writing.sendall(b"1\n2\n3")
        assert ours.take(queue, 2) == [b"1", b"2"]
        writing.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writing.close()  # resets the connection
        errors = process.stderr.read().decode()
        assert process.wait(LONG_S) == 1, errors
    assert "after line 2: Connection reset by peer" in errors
    ours.run("receive", queue, *QUIET, status=3)


def test_lines_of_a_pipe_that_does_not_block_are_waited_for(ours: Commands, queue: str) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with open(writing, "wb", buffering=0) as pipe:
        with ours.start("send", queue, "--lines", "--quiet", stdin=reading) as process:
            os.close(reading)
            pipe.write(b"1\n2\n")
            assert ours.take(queue, 2) == [b"1", b"2"]
            pipe.write(b"3")
            pipe.close()
            assert process.wait(LONG_S) == 0
    assert ours.take(queue, 1) == [b"3"]


def test_a_browser_says_how_much_it_does_not_show(
    stomp_broker_factory: BrokerFactory, queue: str
) -> None:
    with stomp_broker_factory("stompkit", persistent=True, frames=False) as broker:
        commands = Commands(broker)
        commands.run("send", queue, "--count", "6", "--quiet", said=b"x" * 1_000_000)
        shown, errors = commands.both("receive", queue, "--browse", "--json", status=0)
        assert len(shown.splitlines()) < 6
        hidden = 6 - len(shown.splitlines())
        assert f" {hidden} message" in errors
        assert "stompkit peek" in errors
        commands.run("receive", queue, "--browse", "--limit", "2", "--quiet")
        assert len(commands.take(queue, 6)) == 6


def test_lines_can_have_their_own_destinations(ours: Commands, queue: str) -> None:
    line = json.dumps({"destination": queue, "body": "x", "headers": {"a": "b"}})
    ours.run("send", "-", "--jsonl", said=line.encode())
    assert ours.take(queue, 1) == [b"x"]
    said = ours.both("send", "-", "--jsonl", said=b'{"body": "x"}', status=1)[1]
    assert "line 1: it has no destination" in said


def test_lines_are_sent_when_they_come(ours: Commands, queue: str) -> None:
    with ours.start("send", queue, "--lines", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        for line in (b"one", b"two"):
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            assert ours.take(queue, 1) == [line]
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG_S) == 130


def test_what_is_not_sent_yet_stays_unsent_after_a_signal(ours: Commands, queue: str) -> None:
    arguments = ["--count", "1000000", "--window", "10"]
    with ours.start("send", queue, "x", *arguments, stderr=subprocess.PIPE) as process:
        assert ours.take(queue, 1) == [b"x"]
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        assert process.wait(LONG_S) == 130
    assert time.monotonic() - began < 8.0  # seconds; receipts are awaited for 10


def test_a_file_is_a_message(ours: Commands, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "body"
    path.write_bytes(b"\0a\nb\xff")
    ours.run("send", queue, "--file", str(path))
    assert ours.run("receive", queue, "--raw", "--count", "1") == path.read_bytes()
    said = ours.both("send", queue, "--file", str(tmp_path / "none"), status=1)[1]
    assert said == f"stompkit send: {tmp_path / 'none'}: {os.strerror(2)}\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("form", ["--raw", "--json", "--quiet"])
def test_a_message_that_a_full_disk_does_not_take_stays_in_its_queue(
    ours: Commands, queue: str, tmp_path: Path, form: str, unbuffered: str
) -> None:
    """A file of limited size stands for the disk."""
    body = "x" * 100_000
    ours.run("send", queue, said=body.encode())
    limited = ["sh", "-c", 'ulimit -f 50; exec "$@"', "sh", sys.executable, "-m", "stompkit"]
    with (tmp_path / "output").open("wb") as output:
        done = subprocess.run(
            [*limited, "receive", queue, "--count", "1", form],
            env={**ours.environment, "PYTHONUNBUFFERED": unbuffered},
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.endswith("Free disk space, and repeat the command\n")
    assert "Traceback" not in done.stderr
    assert ours.take(queue, 1) == [body.encode()]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["send", "/queue/a", "x", "--lines"], "not both"),
        (["send", "-", "x"], "is for --jsonl"),
        (["send", "/queue/a", "x", "-H", "a"], "'a' is not NAME:VALUE"),
        (["send", "/queue/a", "x", "--rate", "0"], "messages per second"),
        (["send", "/queue/a", "x", "--mq", "http://x"], "--mq: the URL of a broker begins"),
        (["send", "/queue/a", "x", "--mq", "stomp://x/queue/a"], "has no destination here"),
        (["send", "/queue/a", "x", "--mq", "env:NO_SUCH"], "there is no NO_SUCH"),
        (["send", "/queue/a", "x", "--passcode-file", "/none"], f"/none: {os.strerror(2)}"),
        (["receive", "/queue/a", "--follow", "--count", "1"], "--follow never ends"),
        (["receive", "/queue/a", "/queue/b", "--durable", "x"], "for one destination"),
        (["receive", "/queue/a", "--browse", "--exec", "x"], "--browse takes nothing"),
        (["move", "/queue/a", "/queue/a"], "both queues are '/queue/a'"),
        (["move", "/queue/a", "/queue/b", "--mq", "x", "--id", "1"], "--id is for the admin"),
    ],
)
def test_a_wrong_command_line_is_told(ours: Commands, arguments: list[str], problem: str) -> None:
    assert problem in ours.both(*arguments, status=2)[1]


# Receiving.


def test_a_command_decides_what_is_acknowledged(ours: Commands, queue: str) -> None:
    ours.run("send", queue, "-H", "shoe-size:43", "good", "bad")
    command = "read body; echo $body $STOMP_SHOE_SIZE; test $body = good"
    arguments = ["receive", queue, "--exec", command, "--count", "2"]
    output, said = ours.both(*arguments, status=1)
    assert output.splitlines() == [b"good 43", b"bad 43"]
    assert "1 command of 2 failed" in said
    assert ours.take(queue, 1) == [b"bad"]


@pytest.mark.parametrize(
    ("code", "begin"),
    [
        ("not-authenticated", "refuses the login"),
        ("shutting-down", "answers with ERROR"),
        ("not-active", "answers with ERROR"),
    ],
)
def test_a_broker_that_stops_is_not_said_to_refuse_the_login(code: str, begin: str) -> None:
    error = LoginRefusedError("no", {"stompkit-code": code}, b"")
    assert reason_of(error).startswith(f"the broker {begin}: no ({code})")


def test_nothing_in_time_has_a_status_of_its_own(ours: Commands, queue: str) -> None:
    assert ours.run("receive", queue, "--timeout", "0.5", status=3) == b""
    ours.run("send", queue, "x")
    assert ours.run("receive", queue, "--count", "2", *QUIET, status=3) == b"x\n"


def test_who_follows_is_ended_by_a_signal_and_gives_back_the_rest(
    ours: Commands, queue: str
) -> None:
    with ours.start("receive", queue, "--follow", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        ours.run("send", queue, "1", "2")
        assert [process.stdout.readline() for _ in range(2)] == [b"1\n", b"2\n"]
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG_S) == 0
    # An endless command keeps its message, and those after it, until its end.
    ours.run("send", queue, "3", "4")
    arguments = ["receive", queue, "--exec", "echo begun; exec sleep 1000"]
    with ours.start(*arguments, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.kill()
    assert sorted(ours.take(queue, 2)) == [b"3", b"4"]


def test_whoever_reads_may_have_enough(ours: Commands, queue: str) -> None:
    ours.run("send", queue, "--count", "20000", "--quiet", "x" * 100)
    python = f"'{sys.executable}' -m stompkit"
    done = subprocess.run(
        ["bash", "-c", f"{python} receive {queue} | head -1; echo ${{PIPESTATUS[0]}}"],
        env=ours.environment,
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=True,
    )
    assert done.stdout.splitlines() == ["x" * 100, "141"]
    assert done.stderr == ""
    left = json.loads(ours.run("purge", queue, "--mq", ours.broker.url, "--yes", "--json"))
    assert 0 < left["purged"] < 20_000


def test_a_durable_subscription_keeps_what_comes_meanwhile(ours: Commands) -> None:
    topic = f"/topic/{uuid4().hex}"
    arguments = ["receive", topic, "--durable", "mine", "--timeout"]
    ours.run(*arguments, "0.5", status=3)
    ours.run("send", topic, "kept")
    assert ours.run("receive", topic, "--durable", "mine", "--count", "1") == b"kept\n"


def test_a_selector_chooses(ours: Commands, queue: str) -> None:
    ours.run("send", queue, "-H", "colour:blue", "1")
    ours.run("send", queue, "-H", "colour:red", "2")
    chosen = ours.run("receive", queue, "--selector", "colour = 'red'", "--count", "1", "--headers")
    assert b"colour:red\n" in chosen
    assert chosen.endswith(b"\n\n2\n\n")
    assert ours.take(queue, 1) == [b"1"]


def test_several_destinations_are_received_together(ours: Commands, queue: str) -> None:
    for number in "12":
        ours.run("send", f"{queue}{number}", number)
    both = ours.run("receive", f"{queue}1", f"{queue}2", "--count", "2")
    assert sorted(both.splitlines()) == [b"1", b"2"]


def test_octets_are_shown_as_such(ours: Commands, queue: str) -> None:
    ours.run("send", queue, said=b"\xff\x00")
    assert ours.take(queue, 1) == [b"(2 octets) ff 00"]


def test_a_passcode_is_that_of_a_file(stomp_broker_factory: BrokerFactory, tmp_path: Path) -> None:
    passcode = tmp_path / "passcode"
    passcode.write_text("s3/cret\n")
    with stomp_broker_factory("stompkit", login="ann", passcode="s3/cret", frames=False) as broker:
        ours = Commands(broker)
        ours.run("send", "/queue/a", "x")
        del ours.environment["STOMPKIT_LOGIN"], ours.environment["STOMPKIT_PASSCODE"]
        said = ours.both("send", "/queue/a", "x", status=1)[1]
        assert "refuses the login" in said
        assert "No login was sent: write --login NAME --passcode-file FILE" in said
        said = ours.both("receive", "/queue/a", "--login", "ann", status=1)[1]
        assert "No passcode was sent for ann: write --passcode-file FILE" in said
        ours.run("send", "/queue/a", "x", "--login", "ann", "--passcode-file", str(passcode))
        wrong = ["--mq", f"stomp://ann:wrong-one@localhost:{broker.port}"]
        said = ours.both("send", "/queue/a", "x", *wrong, status=1)[1]
        assert "The login was ann: --login and --passcode-file name others" in said
        assert "wrong-one" not in said
        given = ["--login", "ann", "--passcode-file", str(passcode), "--count", "2"]
        assert ours.run("receive", "/queue/a", *given) == b"x\nx\n"


def test_what_waits_for_a_broker_goes_on_when_it_is_back(ours: Commands, queue: str) -> None:
    """The last test of the module's broker, which loses its messages in memory."""
    body = b"\n".join(b"%d" % number for number in range(50))
    arguments = ["send", queue, "--lines", "--rate", "25", "--attempts", "0"]
    with ours.start(*arguments, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(body)
        process.stdin.close()
        assert ours.take(queue, 5) == [b"0", b"1", b"2", b"3", b"4"]
        ours.broker.restart()
        assert process.wait(LONG_S) == 0
    assert ours.take(queue, 1)
