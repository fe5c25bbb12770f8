"""The life cycle of the process: durable data, standby, reloading settings, logs, shutdown."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from stompkit.testing.launching.polling import wait_until
from tests.server.processes import (
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

both = pytest.mark.parametrize("command", [TWIST, TWISTD], ids=["twist", "twistd"])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts commands, and ends all that still run."""
    with processes(tmp_path) as start:
        yield start


class Brokers:
    """Brokers that share a data directory and a file of settings."""

    def __init__(self, start: Start, directory: Path) -> None:
        """Start with empty settings."""
        self._start = start
        self._count = 0
        self.data = directory / "data"
        self.file = directory / "stompkit.toml"
        self.configure("")

    def configure(self, text: str) -> None:
        """Write the file of settings."""
        self.file.write_text(text, encoding="utf-8")

    def start(self, *arguments: str, command: list[str] = TWISTD) -> tuple[Process, Path]:
        """Start a broker; return it, and its announce file."""
        self._count += 1
        announce = self.file.with_name(f"announce.{self._count}")
        # twistd refuses to start beside another in the same directory.
        pidfile = ["--pidfile", f"pid.{self._count}"] if command is TWISTD else []
        settings = ["--config", str(self.file), "--announce", str(announce)]
        process = self._start([*command, *pidfile], *settings, *arguments)
        return process, announce

    def running(
        self, *arguments: str, command: list[str] = TWISTD
    ) -> tuple[Process, dict[str, Any]]:
        """Start a broker and wait until it listens; return it, and its endpoint."""
        process, announce = self.start("--endpoint", LOOPBACK, *arguments, command=command)
        [where] = announced(process, announce)
        return process, where

    def reload(self, process: Process, text: str, *, expect: str = "was reloaded") -> None:
        """Change the file and reload it; wait until the log has the result."""
        count = process.log.count(expect)
        self.configure(text)
        process.popen.send_signal(signal.SIGHUP)
        process.wait_for(expect, count + 1)


@pytest.fixture
def brokers(start: Start, tmp_path: Path) -> Brokers:
    """Brokers in a temporary directory."""
    return Brokers(start, tmp_path)


# Data.


@both
def test_messages_survive_the_death_of_the_process(brokers: Brokers, command: list[str]) -> None:
    process, where = brokers.running("--data", str(brokers.data), command=command)
    with Client(where) as client:
        for number in range(3):
            assert client.send("/queue/a", f"m{number}").startswith(b"RECEIPT\n")
        process.kill()
    _, where = brokers.running("--data", str(brokers.data), command=command)
    with Client(where) as client:
        bodies = [client.subscribe("/queue/a"), client.receive(), client.receive()]
    assert [body.rpartition(b"\n")[2] for body in bodies] == [b"m0", b"m1", b"m2"]


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
@both
def test_there_is_room_for_all_descriptors_from_the_beginning(
    brokers: Brokers, command: list[str]
) -> None:
    brokers.configure("[broker]\nmax_connections = 3000\n")
    process, _ = brokers.running(command=command)
    pid = process.popen.pid
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    size = int(re.search(r"^FDSize:\s+(\d+)$", status, re.MULTILINE)[1])  # type: ignore[index]
    limit, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    assert size >= min(3_000, limit)
    assert len(list(Path(f"/proc/{pid}/fd").iterdir())) < 50


@pytest.mark.skipif(sys.platform != "linux", reason="limits of other processes are Linux's")
@both
def test_a_broker_without_memory_ends_at_once_and_the_next_has_what_was_confirmed(
    brokers: Brokers, command: list[str]
) -> None:
    process, where = brokers.running("--data", str(brokers.data), command=command)
    with Client(where) as client:
        assert client.send("/queue/a", "m0").startswith(b"RECEIPT\n")
        pid = process.popen.pid
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[0])
        bound = pages * resource.getpagesize() + (1 << 20)
        resource.prlimit(pid, resource.RLIMIT_AS, (bound, resource.RLIM_INFINITY))
        with suppress(OSError):
            # The broker may end before it has the whole message.
            client.send("/queue/a", "x" * (32 << 20))
        assert process.ended() == 1
    assert "no memory is left" in process.log
    _, where = brokers.running("--data", str(brokers.data), command=command)
    with Client(where) as client:
        assert client.subscribe("/queue/a").endswith(b"\nm0")


def test_what_is_not_acknowledged_at_the_end_is_delivered_again(brokers: Brokers) -> None:
    process, where = brokers.running("--data", str(brokers.data))
    with Client(where) as sender, Client(where) as receiver:
        sender.send("/queue/a", "hello")
        assert receiver.subscribe("/queue/a").endswith(b"hello")
        process.terminate()
        assert b"stompkit-code:shutting-down" in receiver.receive()
    assert "Traceback" not in process.log
    _, where = brokers.running("--data", str(brokers.data))
    with Client(where) as client:
        again = client.subscribe("/queue/a")
    assert b"redelivered:true\n" in again
    assert again.endswith(b"hello")


@pytest.mark.parametrize("sync", ["always", "never", "interval:50"])
def test_a_broker_that_ends_in_good_order_has_everything(brokers: Brokers, sync: str) -> None:
    store = f'[store]\npath = "{brokers.data}"\nsync = "{sync}"'
    brokers.configure(store)
    process, where = brokers.running()
    with Client(where) as client:
        client.send("/queue/a", "hello")
    process.terminate()
    _, where = brokers.running()
    with Client(where) as client:
        assert client.subscribe("/queue/a").endswith(b"hello")


def test_a_database_can_be_the_store(brokers: Brokers, tmp_path: Path) -> None:
    brokers.configure(f'[store]\nurl = "sqlite:///{tmp_path}/messages.sqlite"')
    process, where = brokers.running()
    with Client(where) as client:
        client.send("/queue/a", "hello")
    process.kill()
    _, where = brokers.running()
    with Client(where) as client:
        assert client.subscribe("/queue/a").endswith(b"hello")


@both
def test_without_a_store_the_log_says_that_nothing_survives(
    brokers: Brokers, command: list[str]
) -> None:
    process, _ = brokers.running(command=command)
    process.wait_for("messages are kept in memory")
    assert process.log.count("messages are kept in memory") == 1


def test_a_directory_of_data_that_cannot_be_made_ends_the_start_and_is_told(
    brokers: Brokers, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    process, _ = brokers.start("--data", str(tmp_path / "file" / "data"))
    assert process.ended() == 1
    assert f"{tmp_path / 'file'} is a file, not a directory. Name another" in process.log
    assert "Traceback" not in process.log


def test_a_store_that_cannot_be_read_ends_the_start_and_is_told(brokers: Brokers) -> None:
    store = brokers.data / "messages.lmdb"
    store.mkdir(parents=True)
    (store / "data.mdb").write_bytes(b"nonsense" * 10_000)
    process, _ = brokers.start("--data", str(brokers.data))
    assert process.ended() == 1
    assert "cannot open the store" in process.log
    assert "Traceback" not in process.log


@both
def test_a_broker_that_can_not_listen_lets_go_of_its_data(
    brokers: Brokers, command: list[str]
) -> None:
    process, where = brokers.running("--data", str(brokers.data))
    with Client(where) as client:
        client.send("/queue/a", "hello")
    process.terminate()
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"tcp:{other.getsockname()[1]}:interface=127.0.0.1"
        data = ["--data", str(brokers.data)]
        process, _ = brokers.start("--endpoint", taken, *data, command=command)
        # The thread of the store has to end, too.
        assert process.ended() == 1
    assert f"cannot listen on {taken}" in process.log
    assert (brokers.data / "lock").read_bytes() == b""


def test_a_daemon_works_with_its_data(brokers: Brokers, tmp_path: Path) -> None:
    daemon = [*(word for word in TWISTD if word != "--nodaemon")]
    pid, log, announce = (tmp_path / name for name in ("daemon.pid", "daemon.log", "announce"))
    process, _ = brokers.start(
        "--data",
        str(brokers.data),
        "--endpoint",
        LOOPBACK,
        "--announce",
        str(announce),
        command=[*daemon, "--pidfile", str(pid), "--logfile", str(log)],
    )
    assert process.ended() == 0, process.log
    number = 0
    try:
        assert wait_until(announce.exists, DEADLINE_S), log.read_text()
        document = json.loads(announce.read_text(encoding="utf-8"))
        number = document["pid"]
        with Client(document["endpoints"][0]) as client:
            assert client.send("/queue/a", "hello").startswith(b"RECEIPT\n")
    finally:
        if number:
            os.kill(number, signal.SIGTERM)
    assert wait_until(lambda: not pid.exists(), DEADLINE_S), log.read_text()
    assert "Traceback" not in log.read_text()
    _, where = brokers.running("--data", str(brokers.data))
    with Client(where) as client:
        assert client.subscribe("/queue/a").endswith(b"hello")


# Standby.


@both
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_second_broker_takes_over_when_the_first_has_ended(
    brokers: Brokers, command: list[str], number: signal.Signals
) -> None:
    first, where = brokers.running("--data", str(brokers.data), command=command)
    second, announce = brokers.start(
        "--data", str(brokers.data), "--endpoint", LOOPBACK, command=command
    )
    held = f"held by process {first.popen.pid} on {socket.gethostname()}"
    second.wait_for(f"waiting for {brokers.data / 'lock'}, which is {held}")
    with Client(where) as client:
        assert client.send("/queue/a", "hello").startswith(b"RECEIPT\n")
        assert not announce.exists()
        first.popen.send_signal(number)
        first.ended()
    [where] = announced(second, announce)
    with Client(where) as client:
        assert client.subscribe("/queue/a").endswith(b"hello")
    assert "taking over" in second.log
    second.terminate()
    assert "Traceback" not in first.log + second.log


def test_both_brokers_can_have_the_same_address(brokers: Brokers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = ["--data", str(brokers.data), "--endpoint", f"tcp:{port}:interface=127.0.0.1"]
    first, announce = brokers.start(*arguments)
    [where] = announced(first, announce)
    second, announce = brokers.start(*arguments)
    second.wait_for("waiting for")
    with Client(where) as client:
        client.send("/queue/a", "hello")
        first.kill()
    [where] = announced(second, announce)
    assert where["port"] == port
    with Client(where) as client:
        assert client.subscribe("/queue/a").endswith(b"hello")


@both
def test_a_broker_that_stands_by_can_be_stopped(brokers: Brokers, command: list[str]) -> None:
    first, where = brokers.running("--data", str(brokers.data))
    second, announce = brokers.start("--data", str(brokers.data), command=command)
    second.wait_for("waiting for")
    # Before the reactor handles it, the signal just ends the process.
    second.wait_until(lambda: "Starting reactor" in second.log or command is TWISTD)
    assert second.terminate() in (0, -signal.SIGTERM)
    assert not announce.exists()
    assert "Traceback" not in second.log
    with Client(where) as client:
        assert client.send("/queue/a").startswith(b"RECEIPT\n")
    first.kill()
    _, where = brokers.running("--data", str(brokers.data))
    with Client(where) as client:
        assert client.subscribe("/queue/a").startswith(b"MESSAGE\n")


@both
@pytest.mark.parametrize("timeout_s", ["0", "0.2"])
def test_a_broker_that_has_waited_enough_ends_with_the_reason(
    brokers: Brokers, command: list[str], timeout_s: str
) -> None:
    first, _ = brokers.running("--data", str(brokers.data))
    arguments = ["--data", str(brokers.data), "--lock-timeout", timeout_s]
    second, announce = brokers.start(*arguments, command=command)
    assert second.ended() == 1
    assert f"held by process {first.popen.pid} on {socket.gethostname()}" in second.log
    assert "Traceback" not in second.log
    assert not announce.exists()


def test_what_goes_wrong_after_the_wait_ends_the_process_with_the_reason(brokers: Brokers) -> None:
    first, where = brokers.running("--data", str(brokers.data))
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"tcp:{other.getsockname()[1]}:interface=127.0.0.1"
        second, _ = brokers.start("--data", str(brokers.data), "--endpoint", taken)
        second.wait_for("waiting for")
        first.kill()
        assert second.ended() == 1
    assert f"cannot listen on {taken}" in second.log
    assert where


# Reloading settings.


@both
def test_sighup_changes_the_policy_of_a_queue_that_is_there(
    brokers: Brokers, command: list[str]
) -> None:
    limit = '[[destination]]\nname = "/queue/a"\nmax_queue_messages = {}'
    brokers.configure(limit.format(1))
    process, where = brokers.running(command=command)
    with Client(where) as client:
        assert client.send("/queue/a").startswith(b"RECEIPT\n")
        assert b"stompkit-code:queue-full" in client.send("/queue/a")
    with Client(where) as client:
        brokers.reload(process, limit.format(2))
        assert client.send("/queue/a").startswith(b"RECEIPT\n")
        assert b"stompkit-code:queue-full" in client.send("/queue/a")
    assert "Traceback" not in process.log


def test_sighup_changes_who_is_let_in_and_what_they_may_do(
    brokers: Brokers, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    users.write_text("joe:secret\n")
    process, where = brokers.running()
    with Client(where) as client:
        assert client.first.startswith(b"CONNECTED\n")
        rights = '[[rights]]\ndestination = ">"\nallow = ["read", "create"]'
        brokers.reload(process, f'[auth]\ncheckers = ["file:{users}"]\n{rights}')
        # A connected client stays connected, with the new rights.
        assert client.send("/queue/a").startswith(b"ERROR\n")
    with Client(where) as stranger, Client(where, login="joe:secret") as joe:
        assert stranger.first.startswith(b"ERROR\n")
        assert joe.first.startswith(b"CONNECTED\n")
        brokers.reload(process, "")
        assert joe.send("/queue/a").startswith(b"RECEIPT\n")
    with Client(where) as client:
        assert client.first.startswith(b"CONNECTED\n")
    assert "secret" not in process.log


def test_sighup_changes_the_limits_of_new_clients(brokers: Brokers) -> None:
    process, where = brokers.running()
    with Client(where) as old:
        limits = "[broker.limits]\nmax_body_bytes = 10\nmax_frame_bytes = 10_000"
        brokers.reload(process, limits)
        with Client(where) as new:
            assert old.send("/queue/a", "x" * 20).startswith(b"RECEIPT\n")
            assert b"stompkit-code:frame-too-large" in new.send("/queue/a", "x" * 20)


@both
def test_a_file_with_mistakes_changes_nothing_and_all_of_them_are_logged(
    brokers: Brokers, command: list[str]
) -> None:
    limit = '[[destination]]\nname = "/queue/a"\nmax_queue_messages = {}\n'
    brokers.configure(limit.format(1))
    process, where = brokers.running(command=command)
    with Client(where) as client:
        client.send("/queue/a")
        mistakes = "[broker]\nprefetch = 0\nmax_conections = 1"
        brokers.reload(process, limit.format(5) + mistakes, expect="stay in force")
        assert b"stompkit-code:queue-full" in client.send("/queue/a")
    assert f"{brokers.file}, line 5: [broker] prefetch: must be" in process.log
    assert f"{brokers.file}, line 6: [broker] max_conections: unknown" in process.log
    brokers.reload(process, limit.format(5))
    with Client(where) as client:
        assert client.send("/queue/a").startswith(b"RECEIPT\n")


def test_a_file_that_is_gone_changes_nothing(brokers: Brokers) -> None:
    process, where = brokers.running()
    brokers.file.unlink()
    process.popen.send_signal(signal.SIGHUP)
    process.wait_for("stay in force")
    assert f"{brokers.file}: cannot be read: No such file or directory" in process.log
    with Client(where) as client:
        assert client.send("/queue/a").startswith(b"RECEIPT\n")


@both
def test_sighup_without_a_file_changes_nothing(start: Start, command: list[str]) -> None:
    process = start(command, "--endpoint", LOOPBACK)
    process.wait_for("listening on")
    process.popen.send_signal(signal.SIGHUP)
    process.wait_for("SIGHUP has no effect")
    assert process.popen.poll() is None


@both
def test_a_broker_in_a_terminal_that_is_closed_stops_normally(
    tmp_path: Path, command: list[str]
) -> None:
    ours, theirs = pty.openpty()
    try:
        arguments = ["stompkit", "--endpoint", LOOPBACK, "--data", str(tmp_path / "data")]
        process = Process([*command, *arguments], tmp_path, stdin=theirs)
        process.wait_for("listening on")
        process.popen.send_signal(signal.SIGHUP)
        assert process.ended() == 0
        assert "Traceback" not in process.log
    finally:
        os.close(ours)
        os.close(theirs)


def test_what_takes_a_restart_is_named(brokers: Brokers, tmp_path: Path) -> None:
    process, where = brokers.running("--data", str(brokers.data))
    brokers.reload(
        process,
        '[store]\nsync = "never"\n[broker]\nstorage = "memory"\nhosts = ["a"]\n'
        '[[destination]]\nname = "/queue/a"\nstorage = "memory"\n[log]\nformat = "text"',
    )
    settings = re.findall(r": (\[.*) has changed, and takes effect after a restart", process.log)
    assert settings == [
        "[store]",
        "[broker] hosts",
        "[broker] storage",
        "[[destination]] storage",
        "[log] format",
    ]
    with Client(where) as client:
        assert client.send("/queue/a").startswith(b"RECEIPT\n")


def test_the_command_line_stands_over_the_file_also_when_it_is_read_again(
    brokers: Brokers,
) -> None:
    process, where = brokers.running("--max-connections", "1")
    brokers.reload(process, "[broker]\nmax_connections = 5")
    with Client(where) as one, Client(where) as two:
        assert one.first.startswith(b"CONNECTED\n")
        assert b"stompkit-code:too-many-connections" in two.first


# Logs.


def entries(process: Process) -> list[dict[str, Any]]:
    """Return the events of a JSON log when all lines are complete."""
    lines = process.log.splitlines()
    return [json.loads(line) for line in lines]


@both
def test_the_log_can_be_json(brokers: Brokers, command: list[str]) -> None:
    brokers.configure('[log]\nformat = "json"')
    process, where = brokers.running(command=command)
    with Client(where):
        pass
    process.terminate()
    texts = [entry["message"] for entry in entries(process)]
    assert [text for text in texts if text.startswith("listening on ")]
    assert where["host"] in " ".join(texts)


def test_the_format_of_the_log_can_change(brokers: Brokers) -> None:
    brokers.configure('[log]\nformat = "json"')
    process, _ = brokers.running()
    brokers.reload(process, '[log]\nformat = "text"')
    brokers.reload(process, '[log]\nformat = "json"')
    process.terminate()
    read = [line for line in process.log.splitlines() if "was reloaded" in line]
    assert [line.startswith("{") for line in read] == [False, True]


def test_the_log_goes_where_twistd_is_told(brokers: Brokers, tmp_path: Path) -> None:
    brokers.configure('[log]\nformat = "json"')
    log = tmp_path / "the.log"
    process, announce = brokers.start(
        "--endpoint",
        LOOPBACK,
        command=[*TWISTD, "--logfile", str(log)],
    )
    announced(process, announce)
    process.popen.send_signal(signal.SIGUSR1)
    process.wait_until(Path(f"{log}.1").exists)
    process.terminate()
    lines = Path(f"{log}.1").read_text().splitlines() + log.read_text().splitlines()
    assert "listening on " in " ".join(json.loads(line)["message"] for line in lines)
    assert "listening on " not in process.log


@both
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_frames_are_logged_without_passcodes_and_bodies(
    brokers: Brokers, command: list[str], log_format: str
) -> None:
    process, where = brokers.running("--log-frames", "--log-format", log_format, command=command)
    with Client(where, login="joe:sesame") as client:
        client.send("/queue/a", "a body")
        client.subscribe("/queue/a")
    process.wait_for("/queue/a", 3)
    process.terminate()
    log = process.log
    if log_format == "json":
        log = "\n".join(entry["message"] for entry in entries(process))
    assert '"login": "joe", "passcode": "***"' in log
    for line in (
        '> CONNECTED {"version": "1.2", "session": "',
        '< SEND {"destination": "/queue/a", "receipt": "r"} 6 bytes',
        '> RECEIPT {"receipt-id": "r"} 0 bytes',
        '> MESSAGE {"subscription": "1"',
    ):
        assert re.search(rf"127\.0\.0\.1:\d+ {re.escape(line)}", log)
    assert "sesame" not in log
    assert "a body" not in log


def test_frames_are_not_logged_unless_that_is_wanted(brokers: Brokers) -> None:
    process, where = brokers.running()
    with Client(where) as client:
        client.send("/queue/a")
    brokers.reload(process, "[log]\nframes = true")
    with Client(where) as client:
        client.send("/queue/b")
    brokers.reload(process, "")
    with Client(where) as client:
        client.send("/queue/c")
    process.terminate()
    assert re.findall("< SEND .*/queue/(.)", process.log) == ["b"]


def test_headers_cannot_begin_a_line_of_the_log(brokers: Brokers) -> None:
    process, where = brokers.running("--log-frames")
    with Client(where) as client:
        client.ask(b"SEND\ndestination:/queue/a\nx:1\\n2026 forged\nreceipt:r\n\n\0")
    process.terminate()
    assert "forged" in process.log
    assert [line for line in process.log.splitlines() if line.startswith("2026 forged")] == []


# Open brokers.


@pytest.mark.parametrize(
    ("endpoint", "arguments", "is_warned"),
    [
        ("tcp:0", [], True),
        ("tcp:0:interface=0.0.0.0", [], True),
        ("tcp:0:interface=\\:\\:", [], True),
        (LOOPBACK, [], False),
        ("tcp:0:interface=127.0.0.2", [], False),
        ("tcp:0", ["--anonymous"], False),
        ("tcp:0", ["--auth=memory:joe:secret"], False),
        ("unix:socket", [], False),
    ],
)
def test_a_broker_that_is_open_to_all_says_so(
    brokers: Brokers, endpoint: str, arguments: list[str], is_warned: object
) -> None:
    process, announce = brokers.start("--endpoint", endpoint, *arguments)
    announced(process, announce)
    assert ("can do everything without a login" in process.log) is is_warned
