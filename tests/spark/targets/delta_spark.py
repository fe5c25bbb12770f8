"""Spark's own Delta, in an environment of its own: it supports older versions of Spark only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from stompkit._common.files import FileLock
from stompkit.testing.launching.fetched import cache_folder

__all__ = ["DeltaSparkMissing", "delta_spark", "read_tables"]

#: Version of delta-spark, which installs the matching version of PySpark.
_VERSION: Final = "4.3.1"
#: Time in seconds to fetch PySpark.
_FETCH_S: Final = 900.0
_READ_S: Final = 600.0
#: Reads tables and writes their rows as Parquet files; the arguments are pairs of folders.
_PROGRAM: Final = """
import sys
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

delta = "org.apache.spark.sql.delta"
builder = (
    SparkSession.builder.master("local[1]")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", f"{delta}.catalog.DeltaCatalog")
    .config("spark.driver.memory", "512m")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.databricks.delta.snapshotPartitions", "1")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    .config("spark.jars.ivy", sys.argv[1])
)
spark = configure_spark_with_delta_pip(builder).getOrCreate()
failures = []
for table, out in zip(sys.argv[2::2], sys.argv[3::2]):
    try:
        spark.read.format("delta").load(table).coalesce(1).write.parquet(out)
    except Exception as error:
        failures.append(f"{table}: {str(error)[:500]}")
spark.stop()
sys.exit("\\n".join(failures) if failures else 0)
"""


class DeltaSparkMissing(Exception):
    """Spark's own Delta cannot be fetched; ``str()`` gives the reason."""


def delta_spark() -> Path:
    """Return the interpreter of an environment with delta-spark, in the cache of fetched servers.

    Raises DeltaSparkMissing.
    """
    cache = cache_folder().parent
    name = f"delta-spark-{_VERSION}-python{sys.version_info.major}.{sys.version_info.minor}"
    folder = cache / name
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f"{name}.lock").acquire(timeout_s=None):
        mark = folder / "complete"
        if not mark.exists():
            _run([sys.executable, "-m", "venv", "--clear", str(folder)])
            _run(
                [
                    str(folder / "bin/python"),
                    "-m",
                    "pip",
                    "install",
                    "-q",
                    f"delta-spark=={_VERSION}",
                ]
            )
            mark.touch()
    return folder / "bin/python"


def read_tables(python: Path, *pairs: tuple[Path, Path]) -> None:
    """Read Delta tables by Spark, and write the rows as Parquet files into another folder each."""
    ivy = python.parent.parent / "ivy"
    folders = [str(folder) for pair in pairs for folder in pair]
    # The environment of this process names another Spark.
    own = {name: value for name, value in os.environ.items() if not name.startswith(_OTHER)}
    _run([str(python), "-c", _PROGRAM, str(ivy), *folders], environment=own)


_OTHER: Final = ("SPARK", "PYSPARK", "PYTHON")


def _run(command: list[str], *, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        timeout=_FETCH_S if environment is None else _READ_S,
        check=False,
    )
    if done.returncode:
        text = done.stdout.strip()[-3000:]
        is_missing = environment is None or "unresolved dependency" in done.stdout
        raise (DeltaSparkMissing if is_missing else AssertionError)(text)
