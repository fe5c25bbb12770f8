"""Fixtures for the tests of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.optional import report_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# These packages are large, and a separate extra: the tests are skipped without them.
if find_spec("pyspark") is None or find_spec("pyarrow") is None:
    collect_ignore_glob = ["*.py"]


@pytest.fixture(scope="session")
def java_home(pytestconfig: pytest.Config) -> Path:
    """The home of the Java that Spark uses."""
    from stompkit.spark import SparkError
    from stompkit.spark.java import find_java_home

    try:
        return find_java_home()
    except SparkError as error:
        report_missing(pytestconfig, str(error), "default-jre-headless")


@pytest.fixture(scope="session")
def spark(java_home: Path) -> Iterator[SparkSession]:
    """The session of this process: a second one would need another JVM, which takes ten seconds."""
    from stompkit.spark import spark_session

    session = spark_session("tests", master="local[2]", profile="test")
    yield session
    session.stop()
