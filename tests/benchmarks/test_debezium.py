"""The comparison with Debezium's engine runs, and both readers deliver every row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.debezium._engine import application
from tests.benchmarks.programs import figures, missing, run
from tests.maven import BuildMissing
from tests.optional import report_missing

pytestmark = pytest.mark.matrix


@pytest.fixture(scope="module", autouse=True)
def built(pytestconfig: pytest.Config) -> None:
    """Build the engine's driver, or skip the tests."""
    try:
        application()
    except BuildMissing as problem:
        report_missing(pytestconfig, str(problem), "maven")


def check(
    source: str,
    size: int,
    works: tuple[str, ...],
    tmp_path: Path,
    skip: Callable[[str], BaseException],
) -> None:
    made = tmp_path / "made.json"
    arguments = ["--source", source, "--rows", "5000", "--rounds", "1", "--warm-up", "1"]
    given = [*arguments, "--transaction-rows", str(size), "--json", str(made)]
    done = run("debezium", *given, timeout_s=600.0)
    if "is not installed" in done.stderr:
        raise skip(done.stderr)
    figure = figures(done, made)
    for work in works:
        name = f"{source}_{size}_{work}"
        stompkit, debezium = (
            figure[f"{name}_{reader}_per_core_s"] for reader in ("stompkit", "debezium")
        )
        assert figure[f"{name}_share"] == pytest.approx(debezium / stompkit)
        assert figure[f"{name}_debezium_cold_start_s"] > 0
    # All of the columns are in the JSON of both.
    assert figure[f"{source}_{size}_read_stompkit_bytes"] > 200
    assert figure[f"{source}_{size}_read_debezium_bytes"] > 200


def test_a_replication_slot_is_read_by_both(tmp_path: Path) -> None:
    check("postgresql", 1, ("read", "publish", "each"), tmp_path, missing)


def test_a_binary_log_is_read_by_both(tmp_path: Path) -> None:
    # No package of Debian has MySQL.
    check("mysql", 100, ("read", "publish"), tmp_path, pytest.skip.Exception)


def test_too_few_rows_are_refused() -> None:
    done = run("debezium", "--rows", "4000")
    assert done.returncode == 2
    assert "--rows must be at least 4096" in done.stderr
