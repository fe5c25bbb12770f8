"""Nothing remains of ``stompkit run``, wherever in its code a signal ends it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.effort import effort, in_matrix
from tests.testing.plugin_runs import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux hands over orphans")
#: Of so many points one is tried: each of them in a campaign.
STEP: Final = effort(29, 1)
LONG_S: Final = 36_000.0


def problems(folder: Path, *arguments: str) -> list[str]:
    """Return what runs leave behind that are ended by a signal."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.testing.launching.interruption", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LONG_S,
    )
    *found, tried = run.stdout.splitlines()
    assert int(tried) > 0
    return found


@pytest.mark.parametrize("number", ["SIGTERM", in_matrix("SIGKILL")])
def test_nothing_is_left_of_a_folder_whose_creation_is_interrupted(
    tmp_path: Path, number: str
) -> None:
    assert problems(tmp_path, number, "now", "2", "make_folder") == []


@pytest.mark.matrix
@pytest.mark.parametrize("when", ["now", "starved"])
@pytest.mark.parametrize("number", ["SIGTERM", "SIGKILL", "SIGINT"])
def test_nothing_is_left_of_a_start_that_is_interrupted(
    tmp_path: Path, number: str, when: str
) -> None:
    assert problems(tmp_path, number, when, str(STEP)) == []
