"""``stompkit serve``: a broker in the foreground, and its output."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import stompkit
from stompkit._commands.broker.serve import parser
from stompkit.server.operations import hash_passcode
from stompkit.server.tap import Options
from stompkit.testing import RunningBroker
from tests.ports import free_ports
from tests.server.processes import DEADLINE_S, LOOPBACK, Client

COMMAND = [sys.executable, "-m", "stompkit", "serve"]


@contextmanager
def serving(
    directory: Path, *arguments: str
) -> Iterator[tuple[dict[str, str], subprocess.Popen[str]]]:
    """Run a broker; yield its lines about listeners, by their beginnings."""
    with (directory / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            [*COMMAND, *arguments], cwd=directory, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    assert process.stdout is not None
    try:
        said: dict[str, str] = {}
        for line in process.stdout:
            if line.startswith("Press"):
                break
            what, _, where = line.partition(":")
            said[what] = where.strip()
        yield said, process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(DEADLINE_S)
        process.stdout.close()


def complaint(directory: Path) -> str:
    """Return the standard error."""
    return (directory / "stderr").read_text()


def refused(*arguments: str) -> tuple[int, str]:
    """Return the status and the standard error of a broker that does not start."""
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def client_of(address: str) -> Client:
    host, _, port = address.rpartition(":")
    return Client({"host": host, "port": int(port)})


def test_it_says_where_it_listens_and_where_data_is(tmp_path: Path) -> None:
    options = ("--endpoint", LOOPBACK, "--admin", LOOPBACK, "--data", "data")
    with serving(tmp_path, *options) as (said, process):
        assert said["data"] == str(tmp_path / "data")
        assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+/", said["console"])
        with client_of(said["STOMP"]) as client:
            assert client.send("/queue/a", "hello").startswith(b"RECEIPT")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
    assert complaint(tmp_path) == ""


def test_it_says_that_messages_are_in_memory(tmp_path: Path) -> None:
    with serving(tmp_path, "--endpoint", LOOPBACK) as (said, process):
        assert said["data"].startswith("in memory")
        assert "console" not in said
        process.terminate()
        assert process.wait(DEADLINE_S) == 0


def test_it_says_why_a_client_is_refused(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(f"joe:{hash_passcode('other')}\n")
    options = ("--endpoint", LOOPBACK, "--auth", f"stompkit:{users}")
    with serving(tmp_path, *options) as (said, process):
        host, _, port = said["STOMP"].rpartition(":")
        with Client({"host": host, "port": int(port)}, "joe:secret") as client:
            assert client.first.startswith(b"ERROR\n")
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
    assert "not-authenticated" in complaint(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_several_signals_stop_it_as_one_does(tmp_path: Path, number: signal.Signals) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("[broker]\nlinger_s = 10\n")
    with serving(tmp_path, "--endpoint", LOOPBACK, "--config", str(config)) as (said, process):
        with client_of(said["STOMP"]) as client:
            process.send_signal(number)
            # The broker waits until this client has closed its end.
            assert client.receive().startswith(b"ERROR\n")
            process.send_signal(number)
            process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    assert complaint(tmp_path) == ""


def test_it_says_all_endpoints(tmp_path: Path) -> None:
    options = ("--endpoint", LOOPBACK, "--endpoint", f"unix:{tmp_path}/s", "--beanstalk", LOOPBACK)
    with serving(tmp_path, *options) as (said, _):
        assert said["STOMP"] == f"unix:{tmp_path}/s"
        assert said["beanstalk"].startswith("127.0.0.1:")


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command for operators."""
    command = [sys.executable, "-m", "stompkit", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def test_who_waits_for_the_data_says_so(tmp_path: Path) -> None:
    first_directory, second_directory = tmp_path / "1", tmp_path / "2"
    options = ("--endpoint", LOOPBACK, "--data", str(tmp_path / "data"))
    for each in (first_directory, second_directory):
        each.mkdir()
    with serving(first_directory, *options) as (_, first), free_ports() as [port]:
        stderr = (second_directory / "stderr").open("w+")
        admin = f"tcp:{port}:interface=127.0.0.1"
        second = subprocess.Popen(
            [*COMMAND, *options, "--admin", admin],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert second.stderr is not None and second.stdout is not None
        with stderr, second.stderr, second.stdout, ExitStack() as stack:
            stack.callback(second.kill)
            assert f"is held by process {first.pid} on" in second.stderr.readline()
            assert "not ready: it stands by" in second.stderr.readline()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                metrics = answer.read().decode()
            # Alerts tell a broker that stands by from one that fails.
            assert "stompkit_active 0.0\n" in metrics
            assert "stompkit_ready 0.0\n" in metrics
            address = ["--admin", f"127.0.0.1:{port}"]
            status = ran("status", *address)
            assert f"role         standby: process {first.pid} on " in status.stdout
            assert "ready" not in status.stdout
            assert status.returncode == 0
            for listing in ("queues", "connections", "durables"):
                listed = ran(listing, *address)
                assert f"is a standby: process {first.pid} on" in listed.stderr
                assert (listed.returncode, listed.stdout) == (1, "")
            first.terminate()
            assert second.stdout.readline().startswith("STOMP:")
            assert "role" not in ran("status", *address).stdout
            assert ran("queues", *address).stdout == "no destinations\n"
            second.terminate()
            assert second.wait(DEADLINE_S) == 0


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["--data", "{file}"], 1, "cannot keep messages in {file}: {file} is a file, .*"),
        (
            ["--config", "/nonexistent"],
            1,
            "/nonexistent: cannot be read: No such file or directory",
        ),
        (["--prefetch", "none"], 2, "--prefetch takes a positive whole number, not 'none'"),
        (["--endpoint", "nonsense:1"], 2, "--endpoint: cannot listen on nonsense:1: .*"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path, arguments: list[str], status: int, line: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    found, said = refused(*(each.format(file=file) for each in arguments))
    assert found == status
    assert re.fullmatch(f"stompkit serve: {line.format(file=file)}\n", said)


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"tcp:{other.getsockname()[1]}:interface=127.0.0.1"
        status, said = refused("--endpoint", taken)
    assert status == 1
    assert said.startswith(f"stompkit serve: cannot listen on {taken}: the address is in use.")
    assert said.count("\n") == 1


def test_all_mistakes_of_a_file_are_said_each_in_a_line(tmp_path: Path) -> None:
    file = tmp_path / "stompkit.toml"
    file.write_text("[broker]\nprefetch = 0\nnonsense = 1\n", encoding="utf-8")
    status, said = refused("--config", str(file))
    assert status == 1
    assert [line.split(":")[0] for line in said.splitlines()] == ["stompkit serve"] * 2


def test_it_takes_all_options_of_the_plug_in() -> None:
    own = {name for action in parser()._actions for name in action.option_strings}
    options = Options()
    known = {f"--{name.rstrip('=')}" for name in options.longOpt}
    assert known - own == {"--version"}
    assert own - known == {"-h"}


def test_help_for_auth_ends_well() -> None:
    done = subprocess.run(
        [*COMMAND, "--help-auth"], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0
    assert "stompkit" in done.stdout


def test_it_says_that_it_is_not_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stomp_broker: RunningBroker
) -> None:
    remedy = "install a wheel for this platform"
    with serving(tmp_path, "--endpoint", LOOPBACK) as (said, _):
        assert (remedy in said.get("speed", "")) != stompkit.is_compiled()
    assert (remedy in stomp_broker.log) != stompkit.is_compiled()
    # Users who ask for Python know it.
    monkeypatch.setenv("STOMPKIT_PURE", "1")
    with serving(tmp_path, "--endpoint", LOOPBACK) as (said, _):
        assert "speed" not in said
