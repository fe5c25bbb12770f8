"""Runs of pytest with the plug-in, for the tests of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import stompkit

__all__ = ["ROOT", "alone", "run"]

ROOT = Path(stompkit.__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this package importable in the runs, without the settings of this run.

    Other plug-ins are not loaded, since that takes seconds; a test names those that it needs.
    """
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    for name in list(os.environ):
        if name.startswith("STOMPKIT_MQ"):
            monkeypatch.delenv(name)


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest with the plug-in, whether or not the package is installed."""
    return pytester.runpytest_subprocess("-p", "stompkit.testing.plugin", *arguments)
