"""The example that replicates one database to another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.replication.sinks.sql_targets import Target, database_url, target
from tests.servers import mariadb, postgresql

__all__ = ["database_url", "mariadb", "postgresql", "target"]

EXAMPLE = Path(__file__).parents[3] / "examples" / "replication" / "repl_db.py"
ROWS = "(4, 'Edsger', 'Austin') (10, 'Ada', 'London')"


def run(*arguments: str) -> list[str]:
    result = subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_the_example_runs_by_itself() -> None:
    *events, source, copy = run()
    assert [source, copy] == [f"source: {ROWS}", f"target: {ROWS}"]
    assert "Nobody" not in "".join(events)


@pytest.mark.parametrize("target", ["postgresql", "mariadb"], indirect=True)
def test_the_example_replicates_to_a_server(target: Target, tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path / 'source.sqlite'}"
    assert run(source, target.url)[-1] == f"target: {ROWS}"
