"""No broker and no folder remains, however the process that launched brokers ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stompkit.testing.launching.polling import wait_until
from stompkit.testing.launching.ports import is_taken
from tests.effort import in_matrix
from tests.testing.launched import needs_proc, processes_below, require
from tests.testing.plugin_runs import ROOT

LONG_S = 120.0
#: Launches brokers, prints their addresses, and ends in the given way.
PROGRAM = """
import contextlib, json, os, signal, subprocess, sys
from stompkit.testing import BrokerStartError, FailoverPair, LaunchConfig, launch
from stompkit.testing.launching.polling import wait_until
from tests.testing.launched import pids
def children():
    command = ["ps", "--no-headers", "-o", "pid,args", "--ppid", str(os.getpid())]
    return subprocess.check_output(command, text=True).splitlines()
arguments = ("--data", "/dev/null/x") if sys.argv[1] == "failed" else ()
config = LaunchConfig(name="stompkit", persistent=True, arguments=arguments)
if sys.argv[1] == "failed":
    try:
        launch(config)
    except BrokerStartError as error:
        assert error.attempt.log_path.exists()
elif sys.argv[1] == "killed":
    held = launch(config)
    held.kill()
elif sys.argv[1] == "killed by others":
    held = launch(config)
    for number in pids(held):
        os.kill(number, signal.SIGKILL)
    assert wait_until(lambda: not held.is_running, 30)
elif sys.argv[1] == "killed with its guard":
    held = launch(config)
    for number in pids(held, with_guard=True):
        os.kill(number, signal.SIGKILL)
elif sys.argv[1] == "killed after the sweeper":
    held = launch(config)
    [sweeper] = [int(each.split()[0]) for each in children() if "sweeper.py" in each]
    os.kill(sweeper, signal.SIGKILL)
    os.waitid(os.P_PID, sweeper, os.WEXITED | os.WNOWAIT)
    launch(config).kill()
    held.kill()
elif sys.argv[1] == "killed pair":
    held = FailoverPair.launch(config, shared=True)
    held.fail_over()
    held.active.kill()
elif sys.argv[1] == "pair":
    held = FailoverPair.launch(config, shared=True)
    held.fail_over()
else:
    held = launch(config)
print(json.dumps([os.path.abspath(each) for each in os.listdir(".")]), flush=True)
if sys.argv[2] == "kill -9":
    os.kill(os.getpid(), signal.SIGKILL)
elif sys.argv[2] == "SIGTERM for all":
    # As a build server ends a job; ps is among the children.
    for child in children():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child.split()[0]), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
elif sys.argv[2] == "os._exit":
    os._exit(3)
elif sys.argv[2] == "Ctrl-C":
    signal.raise_signal(signal.SIGINT)
else:
    raise SystemExit(3)
"""


#: The launched brokers, and their end before that of the process.
WHAT = [
    "broker",
    "pair",
    "failed",
    "killed",
    "killed by others",
    "killed with its guard",
    "killed after the sweeper",
    "killed pair",
]


@needs_proc
@pytest.mark.parametrize(
    ("what", "end"),
    [
        *((what, "kill -9") for what in WHAT),
        *((what, end) for what in WHAT[:2] for end in ("os._exit", "Ctrl-C", "exit")),
        *((what, "SIGTERM for all") for what in ("broker", "killed")),
        *(in_matrix(what, "exit") for what in WHAT[2:]),
    ],
)
def test_nothing_stays_however_who_launched_it_ends(tmp_path: Path, what: str, end: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, what, end],
        cwd=tmp_path,
        env={"TMPDIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_S,
    )
    assert json.loads(run.stdout), run.stderr
    # Its guard is an orphan by then, and needs some time.
    assert wait_until(lambda: list(tmp_path.iterdir()) == [], LONG_S)
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(tmp_path) not in processes.stdout


@pytest.mark.parametrize("status", [3, -signal.SIGKILL])
def test_a_folder_goes_though_a_forked_process_lives_longer(tmp_path: Path, status: int) -> None:
    program = """
import os, signal, sys
from stompkit.testing import LaunchConfig, launch
held = launch(LaunchConfig())
held.kill()
if os.fork():
    if int(sys.argv[1]) < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit(int(sys.argv[1]))
os.read(0, 1)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(int(status))],
        cwd=tmp_path,
        env={"TMPDIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.PIPE,
    ) as process:
        # The forked process waits for the end of its input.
        assert process.wait(LONG_S) == status
        assert wait_until(lambda: list(tmp_path.iterdir()) == [], LONG_S)


#: Two tests for two workers. One worker is killed while it has a running broker and a killed one.
WORKERS = """
import os, signal

def test_killed(stomp_broker, stomp_broker_factory):
    stomp_broker.client().close()
    stomp_broker_factory(persistent=True).kill()
    os.kill(os.getpid(), signal.SIGKILL)

def test_other(stomp_client):
    stomp_client.disconnect()
"""


def test_nothing_stays_of_a_worker_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(WORKERS)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    # The workers find the plug-in where this Python does.
    plugins = "-p xdist -p stompkit.testing.plugin -p no:cacheprovider"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins.split(), "-n", "2", "test_it.py"],
        cwd=tmp_path,
        env={
            "TMPDIR": str(temporary),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_S * 4,
    )
    assert "1 failed, 1 passed" in run.stdout, run.stdout + run.stderr
    assert "crashed while running" in run.stdout
    assert wait_until(lambda: list(temporary.glob("stompkit*")) == [], LONG_S)
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(temporary) not in processes.stdout


#: Ends the process that runs the test, or the worker of xdist.
SUDDEN = """
import os, pathlib, signal

def test_end(stomp_broker_factory):
    broker = stomp_broker_factory(start_timeout_s=1_000)
    broker.client().close()
    pathlib.Path("ports").write_text(f"{broker.server_address[1]} {broker.port}")
    if "end" == "os._exit":
        os._exit(3)
    if "end" == "Ctrl-C":
        signal.raise_signal(signal.SIGINT)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@needs_proc
@pytest.mark.parametrize(
    "end", ["kill -9", *map(in_matrix, ("os._exit", "Ctrl-C", "kill -9 of a worker"))]
)
@pytest.mark.parametrize(
    "name", ["stompkit", *map(in_matrix, ("coilmq", "rabbitmq", "activemq", "artemis"))]
)
def test_nothing_of_a_broker_stays_however_pytest_ends(tmp_path: Path, name: str, end: str) -> None:
    """Processes, folders and ports are gone."""
    require(name)
    (tmp_path / "test_it.py").write_text(SUDDEN.replace('"end"', repr(end)))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    plugins = "-p stompkit.testing.plugin -p no:cacheprovider".split()
    if "worker" in end:
        plugins += "-p xdist -n 1 --max-worker-restart 0".split()
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "--mq-broker", name, "test_it.py"],
        cwd=tmp_path,
        env={
            **os.environ,
            "TMPDIR": str(temporary),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_S * 10,
    )
    assert (tmp_path / "ports").exists(), run.stdout + run.stderr
    assert run.returncode != 0
    assert wait_until(lambda: list(temporary.glob("stompkit*")) == [], LONG_S)
    assert processes_below(temporary) == []
    ports = map(int, (tmp_path / "ports").read_text().split())
    assert not any(is_taken("127.0.0.1", port) for port in ports)


#: Is interrupted at the worst moment: the folder exists, and nobody has its name.
INTERRUPTED = """
import pathlib
from stompkit.testing.launching.processes.leftovers import make_folder
create = pathlib.Path.mkdir
def mkdir(self, mode):
    create(self, mode)
    raise KeyboardInterrupt
pathlib.Path.mkdir = mkdir
make_folder("stompkit-test-")
"""


def test_nothing_stays_where_a_signal_comes_when_the_folder_is_created(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        timeout=LONG_S,
        check=False,
    )
    assert b"KeyboardInterrupt" in ended.stderr
    assert wait_until(lambda: not list(tmp_path.iterdir()), LONG_S)
