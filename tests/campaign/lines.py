"""Runs in which several programs of stompkit work together, and their requirements."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.campaign.plan import Plan
from tests.campaign.stage import Line, Stage

__all__ = ["LINES", "RARE"]


def _spooled(plan: Plan, directory: Path, report: Path) -> Stage:
    from tests.campaign.spooled import Spooled

    return Spooled(plan, directory, report)


def _bridged(plan: Plan, directory: Path, report: Path) -> Stage:
    from tests.campaign.bridged import Bridged

    return Bridged(plan, directory, report)


def _replicated(plan: Plan, directory: Path, report: Path) -> Stage:
    from tests.campaign.replicated import Replicated

    return Replicated(plan, directory, report)


def _piped(plan: Plan, directory: Path, report: Path) -> Stage:
    from tests.campaign.piped import Piped

    return Piped(plan, directory, report)


def _confined(plan: Plan, directory: Path, report: Path) -> Stage:
    from tests.campaign.confined import Confined

    return Confined(plan, directory, report)


def _lacks(name: str) -> str:
    from tests.campaign.confined import missing

    return missing(name)


def _without_spark() -> str:
    names = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    return f"{' and '.join(names)}: pip install 'stompkit[spark,java]'" if names else ""


#: The run that starts Java, which takes a minute.
RARE: Final = "pipeline"
LINES: Final = {
    "spool": Line("a spool: all is killed, disks fail", _spooled),
    "bridge": Line("a bridge: all is killed, disks fail", _bridged),
    "replication": Line("replicas: all is killed", _replicated),
    "namespace": Line("a network namespace is down", _confined, partial(_lacks, "namespace")),
    "loop-disk": Line("a file system of its own is full", _confined, partial(_lacks, "loop-disk")),
    RARE: Line("Spark: all is killed", _piped, _without_spark),
}
