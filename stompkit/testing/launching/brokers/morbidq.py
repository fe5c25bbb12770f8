"""Launch MorbidQ, a broker of 2008 without receipts: the real one, or its emulation by stompkit."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from stompkit.testing.launching.brokers.launcher import Prepared, inherited_environment
from stompkit.testing.launching.brokers.stompkit import Stompkit
from stompkit.testing.launching.config import LaunchConfig
from stompkit.testing.launching.errors import BrokerError

__all__ = ["PYTHON_VARIABLE", "MorbidQ", "morbidq_python"]

#: Environment variable with a Python 2.7 interpreter that has MorbidQ; empty selects the emulation.
PYTHON_VARIABLE: Final = "STOMPKIT_MORBIDQ_PYTHON"
_PYTHONS: Final = ("python2.7", "python2")
_MAIN: Final = "import sys; from morbid import main; sys.exit(main())"
#: Timeout in seconds for an interpreter to import MorbidQ.
_IMPORT_S: Final = 30.0


class MorbidQ:
    """MorbidQ 0.8.7 with a Python 2.7; without one, stompkit with MorbidQ's quirks."""

    chooses_port = False
    # It answers any offer as 1.0.
    versions = "1.0"
    start_timeout_s = 20.0
    login: str | None = None
    passcode: str | None = None
    features: frozenset[str] = frozenset()

    def __init__(self, stand_in: Stompkit) -> None:
        """Store the launcher of the broker that emulates MorbidQ."""
        self._stand_in = stand_in

    def vhost(self, config: LaunchConfig) -> str:
        """Return the default: MorbidQ has no virtual hosts."""
        return config.host

    def missing(self) -> str | None:
        """Return what the emulation lacks, unless the variable names a Python."""
        named = os.environ.get(PYTHON_VARIABLE)
        if named and morbidq_python() is None:
            return (
                f"{PYTHON_VARIABLE} names {named}, which is no Python with a module 'morbid'; take "
                "the variable away to have stompkit play it"
            )
        return None if named else self._stand_in.missing()

    def prepare(
        self, config: LaunchConfig, directory: Path, take_port: Callable[[], int]
    ) -> Prepared:
        """Return the command of the real MorbidQ or of the emulation."""
        if config.login is not None:
            raise BrokerError(
                "MorbidQ takes everybody, since no release can check a login: leave out --mq-login,"
                " or LaunchConfig(login=...)"
            )
        python = morbidq_python()
        if python is None:
            prepared = self._stand_in.prepare(
                replace(config, quirks="morbidq"), directory, take_port
            )
            note = (
                "stompkit: this is stompkit with the quirks of MorbidQ; the real one was not found,"
                f" neither by {PYTHON_VARIABLE} nor by {' or '.join(_PYTHONS)} on PATH"
            )
            return replace(prepared, is_emulated=True, note=note)
        command = [python, "-u", "-c", _MAIN, "-i", config.host, "-p", str(config.port)]
        note = f"stompkit: this is the real MorbidQ, by {python}"
        return Prepared([*command, *config.arguments], _environment(), note=note)


def morbidq_python() -> str | None:
    """Return the interpreter that has MorbidQ, if there is one."""
    named = os.environ.get(PYTHON_VARIABLE)
    if named == "":
        return None
    for name in _PYTHONS if named is None else [named]:
        path = shutil.which(name)
        if path is not None and _has_morbidq(path):
            return path
    return None


@cache
def _has_morbidq(python: str) -> bool:
    """Return True if an interpreter can import MorbidQ."""
    try:
        asked = subprocess.run(
            [python, "-c", "from morbid import main"],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_IMPORT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def _environment() -> dict[str, str]:
    """Return the environment without variables for another Python."""
    return inherited_environment("PYTHON")
