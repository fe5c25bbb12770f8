"""Runs with a lease keep all guarantees; one in which somebody tampers with the store does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.disk import NoCompiler, built
from tests.campaign.lease.checks import ACTIVE
from tests.campaign.lease.faults import TAMPERING
from tests.campaign.lease.run import LEASE, lease_plan
from tests.campaign.running import run
from tests.effort import effort
from tests.servers import SqlServer, postgresql

__all__ = ["postgresql"]

pytestmark = pytest.mark.matrix

QUOTA = effort(300, 1_200)
#: Seeds that draw each of the faults at least once, and the further ones of a campaign.
SEEDS = effort((1, 2, 3), range(1, 21))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder where runs leave histories and logs."""
    folder = tmp_path_factory.mktemp("lease")
    try:
        built(folder)
    except NoCompiler as error:
        pytest.skip(str(error))
    if missing := LEASE.missing():
        pytest.skip(f"this needs {missing}")
    return folder


@pytest.mark.parametrize("seed", SEEDS)
def test_promises_are_kept(seed: int, report: Path, postgresql: SqlServer) -> None:
    verdict = run(lease_plan(seed, quota=QUOTA), report, fault=LEASE)
    assert verdict.problem == ""
    assert verdict.texts == []
    assert verdict.tracebacks == 0
    assert verdict.counts["receipted"] >= QUOTA


def test_tampering_is_found(report: Path, postgresql: SqlServer) -> None:
    verdict = run(lease_plan(1, TAMPERING, QUOTA), report, fault=LEASE)
    assert verdict.problem == ""
    assert verdict.violations[ACTIVE] > 0
    assert verdict.violations["lost"] > 0
