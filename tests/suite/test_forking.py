"""Forked processes of tests behave as processes that are started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stompkit.testing.launching.polling import wait_until

COMMAND = [sys.executable, "-m", "stompkit"]
DEADLINE_S = 60.0
ROOT = str(Path(__file__).parents[2])

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or "STOMPKIT_NO_FORK" in os.environ, reason="processes are started"
)


def is_forked(pid: int) -> bool:
    return b"tests.forking_server" in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.fixture(params=["forked", "started"])
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables of a process of either kind."""
    path = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
    kind = {} if request.param == "forked" else {"STOMPKIT_NO_FORK": "1"}
    return {**os.environ, "PYTHONPATH": path} | kind


@pytest.fixture
def broker(environment: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A broker that listens."""
    announced = tmp_path / "announced"
    command = [*COMMAND, "serve", "--endpoint", "tcp:0:interface=127.0.0.1"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--announce", str(announced)], env=environment, stderr=log, stdout=log
        )
    with process:
        assert wait_until(announced.exists, DEADLINE_S), (tmp_path / "log").read_text()
        assert is_forked(process.pid) == ("STOMPKIT_NO_FORK" not in environment)
        yield process
        if process.poll() is None:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["version"], 0, "stompkit"),
        (["nosuch"], 2, "there is no command"),
        (["check-config", "nosuch.toml"], 1, "nosuch.toml"),
    ],
)
def test_status_and_output(
    arguments: list[str], status: int, text: str, environment: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [*COMMAND, *arguments],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, text in done.stdout) == (status, True), done.stdout


def test_input_and_folder(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "users").touch(0o600)
    command = [*COMMAND, "passwd", "users", "joe"]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, input=b"s3cret\n", capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "users").read_text().startswith("joe:")


@pytest.mark.parametrize("options", [[], ["-W", "error"]])
def test_warnings_are_errors_only_on_demand(
    options: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "careful.py").write_text(
        "import warnings\nwarnings.warn('careful')\nfrom stompkit.replica import Rules as rules\n"
    )
    (tmp_path / "shop.toml").write_text('db = "sqlite:///shop.db"\nrules = "careful:rules"\n')
    done = subprocess.run(
        [sys.executable, *options, *COMMAND[1:], "replica", "create", "--config", "shop.toml"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ("replica create: careful" if options else "UserWarning: careful") in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_signals(number: int, broker: subprocess.Popen[bytes]) -> None:
    broker.send_signal(number)
    assert broker.wait(DEADLINE_S) == (-number if number == signal.SIGKILL else 0)


def test_a_timeout_and_a_stop(broker: subprocess.Popen[bytes]) -> None:
    broker.send_signal(signal.SIGSTOP)
    broker.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        broker.wait(0.1)
    assert broker.poll() is None
    broker.send_signal(signal.SIGCONT)
    assert broker.wait(DEADLINE_S) == 0


def test_threads_that_start_their_first_commands_together_share_a_server() -> None:
    program = """
import subprocess, sys, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tests import forking

forking.install()
together = threading.Barrier(8)

def start(number):
    together.wait()
    return subprocess.run([sys.executable, "-m", "stompkit", "version"]).returncode

with ThreadPoolExecutor(8) as pool:
    assert [*pool.map(start, range(8))] == [0] * 8
threads = [each.read_text().split() for each in Path("/proc/self/task").glob("*/children")]
print("servers", sum(map(len, threads)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ROOT},
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "servers 1"
