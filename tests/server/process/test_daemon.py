"""``twistd stompkit`` as a daemon: the terminal shows at once if the start fails."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from stompkit.testing.launching.polling import wait_until
from tests.server.processes import DEADLINE_S, LOOPBACK, TWISTD

DAEMON = [word for word in TWISTD if word != "--nodaemon"]


class Started:
    """The result of starting a daemon in a directory."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        """Start the daemon, and wait until the command returns."""
        self.pid_file, self.log_file = directory / "broker.pid", directory / "broker.log"
        files = ("--pidfile", str(self.pid_file), "--logfile", str(self.log_file))
        done = subprocess.run(
            [*DAEMON, *files, "stompkit", *arguments],
            cwd=directory,
            # A daemon that keeps them open would block this call.
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        self.status, self.said, self.complaint = done.returncode, done.stdout, done.stderr

    @property
    def log(self) -> str:
        """The log of the daemon."""
        return self.log_file.read_text(encoding="utf-8") if self.log_file.exists() else ""

    def assert_failed(self, reason: str) -> None:
        """Check that the daemon reports why it did not start, and leaves no pid file."""
        assert self.status == 1
        assert not self.pid_file.exists()
        first, *_ = self.complaint.splitlines()
        assert first.startswith("stompkit: ")
        assert reason in first
        assert reason in self.log
        assert "Traceback" not in self.complaint + self.log


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"tcp:{other.getsockname()[1]}:interface=127.0.0.1"
        started = Started(tmp_path, "--endpoint", taken)
    started.assert_failed(f"cannot listen on {taken}: the address is in use")


def test_a_port_in_use_is_said_where_the_data_is_fine(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"tcp:{other.getsockname()[1]}:interface=127.0.0.1"
        started = Started(tmp_path, "--endpoint", taken, "--data", "data")
    started.assert_failed(f"cannot listen on {taken}")
    # The data directory can be used by the next broker.
    assert (tmp_path / "data" / "lock").read_bytes() == b""


def test_a_reason_that_is_long_is_said_as_a_whole(tmp_path: Path) -> None:
    missing = tmp_path / ("x" * 200) / "announce"
    started = Started(tmp_path, "--endpoint", LOOPBACK, "--announce", str(missing))
    started.assert_failed(f"cannot write the announce file {missing}: No such file or directory")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("file", "cannot keep messages in {0}: {0} is a file, not a directory"),
        ("file/below", "file is a file, not a directory"),
    ],
)
def test_data_that_is_no_directory_is_said(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    started = Started(tmp_path, "--endpoint", LOOPBACK, "--data", name)
    started.assert_failed(said.format(tmp_path / name))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_data_that_can_not_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o500)
    started = Started(tmp_path, "--endpoint", LOOPBACK, "--data", "data")
    started.assert_failed("Permission denied")


def test_an_admin_port_in_use_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"tcp:{other.getsockname()[1]}:interface=127.0.0.1"
        started = Started(tmp_path, "--endpoint", LOOPBACK, "--admin", taken)
    started.assert_failed(
        f"cannot listen on {taken} for the admin interface: the address is in use. Stop the process"
        " that listens there, or choose another address with --admin or in the file of --config."
    )


def test_a_store_that_can_not_be_opened_is_said(tmp_path: Path) -> None:
    file = tmp_path / "stompkit.toml"
    file.write_text('[store]\nurl = "sqlite:////nonexistent/broker.db"\n', encoding="utf-8")
    started = Started(tmp_path, "--endpoint", LOOPBACK, "--config", str(file))
    started.assert_failed("cannot open the store")


def test_a_mistake_on_the_command_line_makes_no_daemon(tmp_path: Path) -> None:
    started = Started(tmp_path, "--prefetch", "none")
    assert started.status == 1
    assert "--prefetch takes a positive whole number" in started.complaint + started.said
    assert not started.pid_file.exists()


def test_a_daemon_that_works_says_nothing_and_lets_go_of_the_terminal(tmp_path: Path) -> None:
    """Otherwise the start would have waited for the daemon."""
    announce = tmp_path / "announce"
    started = Started(tmp_path, "--endpoint", LOOPBACK, "--announce", str(announce))
    number = int(started.pid_file.read_text())
    try:
        assert (started.status, started.said, started.complaint) == (0, "", "")
        assert wait_until(announce.exists, DEADLINE_S), started.log
    finally:
        os.kill(number, signal.SIGTERM)
    assert wait_until(lambda: not started.pid_file.exists(), DEADLINE_S), started.log
