"""A separate log file: moved, or copied and truncated, by hand and by logrotate."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stompkit.server.operations import parse_settings
from tests.server.processes import (
    LOOPBACK,
    TWIST,
    TWISTD,
    Client,
    Process,
    Start,
    announced,
    processes,
)

CONFIGURATION = Path(__file__).parents[3] / "packaging" / "logrotate" / "stompkit"

both = pytest.mark.parametrize("command", [TWIST, TWISTD], ids=["twist", "twistd"])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts commands, and ends all that still run."""
    (tmp_path / "run").mkdir()
    with processes(tmp_path / "run") as start:
        yield start


class Logging:
    """A broker that logs each frame to a file, with a client that sends frames."""

    def __init__(self, start: Start, directory: Path, command: list[str]) -> None:
        """Start the broker."""
        self.log = directory / "logs" / "stompkit.log"
        self.log.parent.mkdir(mode=0o755)
        settings, announce = directory / "f.toml", directory / "announce"
        settings.write_text(f'[log]\nformat = "json"\nframes = true\nfile = "{self.log}"')
        arguments = ["--endpoint", LOOPBACK, "--config", str(settings)]
        self.process: Process = start(command, *arguments, "--announce", str(announce))
        [self._where] = announced(self.process, announce)
        self._count = 0

    def work(self) -> None:
        """Send ten numbered frames, which are logged."""
        with Client(self._where) as client:
            for _ in range(10):
                client.send(f"/queue/n{self._count}")
                self._count += 1

    def signal(self) -> None:
        """Send the signal to reopen the file, and wait for the new file."""
        self.process.popen.send_signal(signal.SIGUSR1)
        self.process.wait_until(self.log.exists)

    def check(self, *names: str) -> None:
        """Check that every frame is logged once, in order, in these files together."""
        self.process.terminate()
        lines = "".join(self.log.with_name(name).read_text() for name in names).splitlines()
        texts = [str(entry(line)["message"]) for line in lines]
        numbers = [int(n) for text in texts for n in re.findall(r'< SEND .*/queue/n(\d+)"', text)]
        assert numbers == list(range(self._count))
        assert "/queue/n" not in self.process.log


def entry(line: str) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(line)
    return decoded


@both
def test_no_line_is_lost_when_the_file_is_moved(
    start: Start, tmp_path: Path, command: list[str]
) -> None:
    broker = Logging(start, tmp_path, command)
    broker.work()
    broker.log.rename(broker.log.with_name("stompkit.log.1"))
    broker.work()
    assert not broker.log.exists()
    broker.signal()
    broker.work()
    broker.check("stompkit.log.1", "stompkit.log")


def test_a_broker_without_a_file_survives_the_signal(start: Start, tmp_path: Path) -> None:
    """Logrotate signals every broker of the machine, also one that logs to the journal."""
    settings, announce = tmp_path / "f.toml", tmp_path / "announce"
    settings.write_text('[log]\nformat = "json"\n')
    arguments = ["--endpoint", LOOPBACK, "--config", str(settings)]
    process = start(TWISTD, *arguments, "--announce", str(announce))
    [where] = announced(process, announce)
    process.popen.send_signal(signal.SIGUSR1)
    with Client(where) as client:
        client.send("/queue/a")
    process.terminate()


def test_a_file_that_is_copied_and_cut_goes_on_at_its_beginning(
    start: Start, tmp_path: Path
) -> None:
    broker = Logging(start, tmp_path, TWISTD)
    broker.work()
    shutil.copy(broker.log, broker.log.with_name("stompkit.log.1"))
    os.truncate(broker.log, 0)
    broker.work()
    broker.check("stompkit.log.1", "stompkit.log")
    assert b"\0" not in broker.log.read_bytes()


def test_where_no_new_file_can_be_made_the_log_goes_on_in_the_old_one(
    start: Start, tmp_path: Path
) -> None:
    broker = Logging(start, tmp_path, TWISTD)
    moved = broker.log.with_name("stompkit.log.1")
    broker.log.rename(moved)
    broker.log.mkdir()
    broker.process.popen.send_signal(signal.SIGUSR1)
    broker.process.wait_until(lambda: "the log continues in the previous file" in moved.read_text())
    broker.work()
    broker.check("stompkit.log.1")


def test_a_file_that_cannot_be_made_ends_the_start_and_is_told(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "f.toml").write_text(f'[log]\nfile = "{tmp_path}/missing/log"')
    process = start(TWISTD, "--config", str(tmp_path / "f.toml"))
    assert process.ended() == 1
    assert f"cannot log to {tmp_path}/missing/log: No such file or directory" in process.log


def test_the_configuration_says_how_the_settings_have_to_be() -> None:
    text = CONFIGURATION.read_text()
    comment = "\n".join(re.findall(r"^#   (.*)$", text, re.MULTILINE))
    log = parse_settings(comment, "the comment").log
    assert log.format == "json"
    assert f"\n{log.file} {{\n" in text


def test_logrotate_loses_no_line(start: Start, tmp_path: Path) -> None:
    """The test uses the installed configuration, with the log and the signal of this broker."""
    logrotate = shutil.which("logrotate", path=f"{os.environ['PATH']}:/usr/sbin")
    if logrotate is None:
        if os.environ.get("STOMPKIT_MQ_MISSING") == "fail":
            pytest.fail("logrotate is missing: apt-get install logrotate")
        pytest.skip("logrotate is missing: apt-get install logrotate")
    broker = Logging(start, tmp_path, TWISTD)
    broker.work()
    text = CONFIGURATION.read_text().replace("/var/log/stompkit/stompkit.log", str(broker.log))
    kill = f"kill -USR1 {broker.process.popen.pid}"
    text = re.sub(r"systemctl kill .*", kill, text)
    configuration = tmp_path / "logrotate.conf"
    configuration.write_text(text)
    configuration.chmod(0o644)
    command = [logrotate, "--force", "--state", str(tmp_path / "state"), str(configuration)]
    subprocess.run(command, check=True, timeout=60)
    broker.process.wait_until(broker.log.exists)
    broker.work()
    broker.check("stompkit.log.1", "stompkit.log")
