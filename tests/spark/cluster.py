"""A standalone cluster of Spark on this machine, and Pythons with and without stompkit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
import tempfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyspark
import pytest

import stompkit
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.launching.processes.process import GuardedProcess

__all__ = [
    "JOB_S",
    "LOOPBACK",
    "QUICK",
    "ROOTS",
    "Machines",
    "bare",
    "cluster",
    "installed",
    "machines",
    "master",
    "wait_for_line",
]

LOOPBACK: Final = "127.0.0.1"
#: Timeouts in seconds for the start of a server, and for a job.
_START_S: Final = 300.0
JOB_S: Final = 600.0
_STOP_S: Final = 5.0
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
ROOTS: Final = (str(Path(__file__).parents[2]), str(Path(stompkit.__file__).parents[1]))
#: Arguments of a driver: only it has stompkit, and not from its environment.
_DRIVER: Final = (
    "import sys; sys.path[:0] = sys.argv[1].split(','); "
    "from tests.spark.test_cluster import drive; drive(*sys.argv[2:])"
)


class Machines(NamedTuple):
    """Command and environment of processes of Spark."""

    environment: dict[str, str]
    folder: Path

    def start(self, name: str, *command: str, **environment: str) -> GuardedProcess:
        """Start a process that writes its log to a separate folder; names may be repeated."""
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))
        return GuardedProcess(command, self.environment | environment, folder, _STOP_S)

    def spark_class(
        self, name: str, *arguments: str, before: Sequence[str] = (), **environment: str
    ) -> GuardedProcess:
        """Start a server of Spark, by the command *before* it if there is one."""
        program = str(Path(self.environment["SPARK_HOME"], "bin", "spark-class"))
        return self.start(name, *before, program, *arguments, **environment)

    def drive(self, name: str, python: Path, job: Mapping[str, Any]) -> dict[str, Any]:
        """Run a driver to its end; return its results."""
        told, found = self.folder / f"{name}.json", self.folder / f"{name}-found.json"
        told.write_text(json.dumps({"folder": str(self.folder / f"{name}-data"), **job}))
        command = (str(python), "-c", _DRIVER, ",".join(ROOTS), str(told), str(found))
        process = self.start(name, *command, PYSPARK_PYTHON=str(python))
        try:
            wait_until(lambda: process.status() is not None, JOB_S)
            assert process.status() == 0, process.log()
        finally:
            process.stop()
        answer: dict[str, Any] = json.loads(found.read_text())
        return answer


def interpreter(folder: Path, *, has_stompkit: bool) -> Path:
    """Return a Python with the packages of this one, with or without stompkit."""
    venv.create(folder, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    for kind in ("purelib", "platlib"):
        for path in Path(sysconfig.get_path(kind)).iterdir():
            link = packages / path.name
            if (
                path.suffix == ".pth"
                or "stompkit" in path.name
                or path.name == "__pycache__"
                or link.is_symlink()
            ):
                continue
            link.symlink_to(path)
    if has_stompkit:
        (packages / "stompkit.pth").write_text(f"{ROOTS[1]}\n")
    python = folder / "bin" / "python"
    asked = "import importlib.util; print(importlib.util.find_spec('stompkit') is not None)"
    told = subprocess.run([python, "-c", asked], cwd="/", env={}, capture_output=True, check=True)
    assert told.stdout == f"{has_stompkit}\n".encode()
    return python


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, java_home: Path) -> Machines:
    folder = tmp_path_factory.mktemp("cluster")
    home = folder / "spark"
    home.mkdir()
    for name in ("bin", "jars"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    environment = {
        "PATH": os.defpath,
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
    }
    return Machines(environment, folder)


@pytest.fixture(scope="module")
def bare(machines: Machines) -> Path:
    """A Python without stompkit."""
    return interpreter(machines.folder / "bare", has_stompkit=False)


def wait_for_line(process: GuardedProcess, pattern: str) -> str:
    """Wait until a server has written a line; return its first group."""

    def found() -> re.Match[str] | None:
        assert process.status() is None, process.log()
        return re.search(pattern, process.log())

    match = wait_until(found, _START_S)
    assert match is not None, process.log()
    return match[1]


@contextmanager
def cluster(machines: Machines, *workers: Sequence[str]) -> Iterator[str]:
    """Run a cluster and yield its URL; of each worker the command before it is given."""
    package, at = "org.apache.spark.deploy", ("--host", LOOPBACK, "--port", "0")
    started = [machines.spark_class("master", f"{package}.master.Master", *at, "--webui-port", "0")]
    try:
        url = wait_for_line(started[0], r"Starting Spark master at (spark://\S+)")
        for number, before in enumerate(workers):
            size = ("--webui-port", "0", "--cores", "1", "--memory", "1g")
            command = (f"{package}.worker.Worker", *at, *size, url)
            started.append(machines.spark_class(f"worker-{number}", *command, before=before))
        for worker in started[1:]:
            wait_for_line(worker, "(Successfully registered) with master")
        yield url
    finally:
        for each in reversed(started):
            each.stop()


@pytest.fixture(scope="module")
def master(machines: Machines) -> Iterator[str]:
    """The URL of a cluster with two workers."""
    with cluster(machines, (), ()) as url:
        yield url


@pytest.fixture(scope="module")
def installed(machines: Machines) -> Path:
    """A Python with stompkit."""
    return interpreter(machines.folder / "installed", has_stompkit=True)
