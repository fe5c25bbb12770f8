"""Fixtures for the tests of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# These packages are large, and a separate extra: the tests are skipped without them.
if find_spec("pyspark") is None or find_spec("pyarrow") is None:
    collect_ignore_glob = ["*.py"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of this process: a second one would need another JVM, which takes ten seconds."""
    from stompkit.spark import spark_session

    session = spark_session("tests", master="local[2]", profile="test")
    yield session
    session.stop()
