"""The programs measure the package of a wheel, unless Python is requested."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks._compiled import Uncompilable, environment
from stompkit.testing.launching.polling import wait_until
from tests.benchmarks.programs import ROOT, missing

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    if shutil.which("cc") is None:
        raise missing("needs a C compiler: apt-get install gcc libc6-dev python3-dev")


def is_compiled(directory: Path, **more: str) -> bool:
    """Return True if a program reports that it has measured the compiled package."""
    path = directory / "made.json"
    # The measured figures do not matter here, however slow the machine is.
    options = ["--rounds", "1", "--max-s", "1000", "--json", str(path)]
    command = [sys.executable, "-m", "benchmarks.start", *options]
    environ = {name: value for name, value in os.environ.items() if name != "STOMPKIT_PURE"}
    environ = {**environ, "PYTHONPATH": str(ROOT), **more}
    subprocess.run(command, cwd=ROOT, env=environ, check=True, stdout=subprocess.DEVNULL)
    made = json.loads(path.read_text())
    assert isinstance(made["compiled"], bool)
    return bool(made["compiled"])


@pytest.mark.matrix
def test_a_program_measures_what_is_compiled(tmp_path: Path) -> None:
    assert is_compiled(tmp_path)


@pytest.mark.matrix
def test_a_program_measures_python_where_it_is_asked_for(tmp_path: Path) -> None:
    assert not is_compiled(tmp_path, STOMPKIT_PURE="1")


@pytest.mark.matrix
def test_what_is_compiled_has_the_conformance_cases() -> None:
    tree = Path(environment()["PYTHONPATH"].split(os.pathsep)[0])
    assert (tree / "stompkit" / "conformance" / "cases" / "pytest.ini").exists()
    assert list(tree.rglob("_decoder.*.so"))


@pytest.mark.matrix
def test_where_nothing_can_be_compiled_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "/no/compiler")
    with pytest.raises(Uncompilable, match="cannot be compiled here"):
        environment()
    # Nothing but the lock remains of the attempt.
    folder = tmp_path / "stompkit"
    assert wait_until(lambda: [each.suffix for each in folder.iterdir()] == [".lock"], 10)
