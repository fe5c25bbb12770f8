"""The recorded figures, and the comparison with new ones."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

__all__ = ["BASELINE", "FEWER_PERCENT", "MORE_PERCENT", "build", "faults", "load", "record"]

BASELINE: Final = Path(__file__).with_name("baseline.json")
#: A scenario that needs this percentage more is a fault. Runs of the same code differ by up to 0.3
#: per cent. Those with and without the pinned variants of the C library differ by up to 0.8 per
#: cent.
MORE_PERCENT: Final = 3.0
#: A scenario that needs this percentage fewer must be recorded, or a later loss would be unnoticed.
FEWER_PERCENT: Final = 5.0


def build(*, compiled: bool = False) -> str:
    """Return a description of the build, which must be equal for counts to be compared.

    It includes the compiler if the package is compiled. Two builds of Python 3.11 for one machine
    differ by 10 %, and not by the same in each scenario.
    """
    name = f"{sys.implementation.name}-{platform.python_version()}"
    options = str(sysconfig.get_config_var("PY_CFLAGS")).split()
    level = [option for option in options if option.startswith("-O")][-1:]
    arguments = str(sysconfig.get_config_var("CONFIG_ARGS"))
    chosen = ("shared", "optimizations", "lto", "pydebug", "computed-gotos")
    more = [word for word in chosen if f"-{word}" in arguments]
    if compiled:
        more.append(f"compiled by mypy {version('mypy')}, cc {_compiler()}")
    return " ".join([name, platform.machine(), platform.python_compiler(), *level, *more])


def _compiler() -> str:
    """Return the version of the C compiler, without which the package cannot be compiled."""
    command = [*shlex.split(os.environ.get("CC", "cc")), "-dumpfullversion"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def load(path: Path = BASELINE) -> dict[str, dict[str, float]]:
    """Return instructions for each delivery by scenario, by build."""
    made: dict[str, dict[str, float]] = json.loads(path.read_text(encoding="utf-8"))
    return made


def record(counted: Mapping[str, float], path: Path = BASELINE, *, compiled: bool = False) -> None:
    """Write ``counted`` as the figures of this build, and keep those of other builds."""
    made = load(path) if path.exists() else {}
    made[build(compiled=compiled)] = {name: round(figure) for name, figure in counted.items()}
    path.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def faults(counted: Mapping[str, float], recorded: Mapping[str, float]) -> list[str]:
    """Yield a sentence for each scenario whose figure is out of bounds or missing on one side."""
    found = []
    for name in sorted(counted.keys() ^ recorded.keys()):
        found.append(f"{name}: only {'counted' if name in counted else 'recorded'}; record again")
    for name in sorted(counted.keys() & recorded.keys()):
        percent = (counted[name] / recorded[name] - 1) * 100
        said = f"{name}: {counted[name]:,.0f} instructions, recorded {recorded[name]:,.0f}"
        if percent > MORE_PERCENT:
            found.append(f"{said}: {percent:.1f} % more")
        elif -percent > FEWER_PERCENT:
            found.append(f"{said}: {-percent:.1f} % fewer; record that")
    return found
