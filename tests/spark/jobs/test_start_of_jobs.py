"""The start of jobs: its steps on standard error, and signals to all processes of a job."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from stompkit.testing.launching.polling import wait_until
from tests.effort import in_matrix
from tests.spark.jobs.test_known_names import describe, messages
from tests.spark.messages import fill

WAIT_S = 300.0
PROGRAM = "import sys; from stompkit._commands import main; sys.exit(main(sys.argv[1:]))"


@contextmanager
def running(file: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run the job replicate in a process group of its own."""
    job = ["pipeline", "run", "replicate", "--config", str(file), *options]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *job],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_to(stream: IO[str] | None, text: str) -> list[str]:
    """Return the lines up to one with a text."""
    assert stream is not None
    lines = []
    for line in stream:
        lines.append(line.rstrip())
        if text in line:
            return lines
    raise AssertionError(f"there is no {text!r} in {lines}")


def has_java(group: int) -> bool:
    """Return True if a Java of a process group runs."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (path / "stat").read_text().partition(") ")
        except OSError:
            continue
        if name.endswith("(java") and int(rest.split()[2]) == group:
            return True
    return False


@pytest.fixture
def file(tmp_path: Path, java_home: Path) -> Path:
    fill(tmp_path / "spool", messages(1, 9, "orders"))
    describe(tmp_path / "shop.toml", "")
    return tmp_path / "shop.toml"


def test_each_step_of_the_start_is_shown(file: Path) -> None:
    with running(file, "--once") as process:
        errors = process.communicate(timeout=WAIT_S)[1].splitlines()
    assert process.returncode == 0
    folder = file.parent
    steps = [
        "starting Spark",
        f"connected to sqlite:///{folder}/copy.sqlite",
        f"reading the spool {folder}/spool, waiting for the first change",
    ]
    shown = [line for line in errors if not line.startswith(("WARNING: Using", "running"))]
    assert shown == [*steps, "ended  batch 0  8 changes  lag 0 messages"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_all_processes_ends_the_start_quietly(file: Path, number: int) -> None:
    with running(file) as process:
        read_to(process.stderr, "starting Spark")
        assert wait_until(lambda: has_java(process.pid), WAIT_S)
        os.killpg(process.pid, number)
        errors = process.communicate(timeout=WAIT_S)[1].splitlines()
    assert process.returncode == 0
    assert [line for line in errors if not line.startswith("WARNING: Using")][-1:] == [
        "ended  0 changes"
    ]
    assert [line for line in errors if "refused" in line or "Traceback" in line] == [], errors


@pytest.mark.parametrize(
    "moment", [in_matrix("connected to "), in_matrix("reading the spool "), "running  batch 0"]
)
def test_a_signal_to_all_processes_ends_a_job_quietly(file: Path, moment: str) -> None:
    with running(file) as process:
        read_to(process.stderr, moment)
        os.killpg(process.pid, signal.SIGTERM)
        errors = process.communicate(timeout=WAIT_S)[1].splitlines()
    assert process.returncode == 0
    # The first job that ends in an environment keeps Spark's classes, and says so after its end.
    shown = [line for line in errors if not line.startswith("keeping Spark's classes")]
    assert shown[-1].startswith("ended  ")
    assert [line for line in errors if "refused" in line or "Traceback" in line] == [], errors


@pytest.mark.parametrize(
    ("missing", "told"), [("spool", "there is no spool in "), ("target", "target.url: ")]
)
def test_what_is_missing_is_told_before_spark_starts(file: Path, missing: str, told: str) -> None:
    if missing == "spool":
        shutil.rmtree(file.parent / "spool")
    else:
        (file.parent / "copy.sqlite").write_text("not a database" * 1000)
    with running(file, "--once") as process:
        errors = process.communicate(timeout=WAIT_S)[1].splitlines()
    assert process.returncode == 1
    assert "starting Spark" not in errors
    assert [line for line in errors if told in line], errors
