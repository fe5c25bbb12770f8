"""The program that measures starts launches every kind of broker, in the right order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks._client import RefusedError
from benchmarks.start import launched, line_from, wait_for
from tests.benchmarks.programs import figures, run


@pytest.mark.matrix
def test_every_kind_of_start_comes_to_connected_by_its_parts(tmp_path: Path) -> None:
    made = tmp_path / "made.json"
    figure = figures(run("start", "--rounds", "1", "--json", str(made)), made)
    for name in ("twistd", "twist"):
        assert 0 < figure[f"{name}_interpreter_s"]
        assert 0 < figure[f"{name}_imports_s"]
        parts = [figure[f"{name}_{part}_s"] for part in ("store", "listening", "connected")]
        assert parts == sorted(parts)
        assert 0 < figure[f"{name}_processor_time_s"]
    assert 0 < figure["stompkit_run_connected_s"]


@pytest.mark.matrix
def test_a_bound_that_is_broken_is_the_exit_status(tmp_path: Path) -> None:
    made = tmp_path / "made.json"
    done = run("start", "--rounds", "1", "--max-s", "0", "--json", str(made))
    assert done.returncode == 1
    figures(done, made)


def test_a_command_that_ends_before_it_is_ready_is_told_with_its_log(tmp_path: Path) -> None:
    code = "import sys; sys.exit('no port is free')"
    with launched([sys.executable, "-c", code], tmp_path) as (child, _):
        with pytest.raises(RefusedError, match="no port is free"):
            line_from(child.stdout, tmp_path)


def test_nothing_is_awaited_of_a_process_that_has_ended() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(RefusedError, match="does not start"):
        wait_for(lambda: False, ended)  # type: ignore[arg-type]
