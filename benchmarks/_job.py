"""A job of a pipeline in a child process, and a spool with changes for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from stompkit.replication.model.events import RowChange, Source, encode, make_changeset
from stompkit.spool import Record, SpoolWriter

__all__ = ["TABLE", "fill", "running"]

#: The table of the changes in a spool.
TABLE: Final = "CREATE TABLE parts (id INTEGER PRIMARY KEY, name TEXT)"
#: Number of records that are written together.
_LOT: Final = 1_000
#: Longer than any end of a job takes, in seconds.
_END_S: Final = 300.0


def fill(folder: Path, number: int, keys: int) -> None:
    """Write a spool with so many changesets of one row each, which have so many keys in turn."""
    source = Source(kind="test")
    headers = (("content-type", "application/json"),)
    with SpoolWriter(folder, sync=False) as writer:
        for first in range(1, number + 1, _LOT):
            records = []
            for sequence in range(first, min(first + _LOT, number + 1)):
                key = sequence % keys
                after = {"id": key, "name": f"part {sequence}"}
                row = RowChange(table="parts", action="write", key={"id": key}, after=after)
                made = make_changeset("shop", sequence, [row], source, id=f"{sequence:032}")
                body = encode(made)
                records.append(Record(0, "/queue/changes", "", made.id, "", headers, body))
            writer.append(records)


@contextmanager
def running(
    name: str, settings: Path, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Launch a job, and stop it at the end of the block, as an operator does."""
    command = [sys.executable, "-m", "stompkit", "pipeline", "run", name]
    own = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    with open(log, "wb") as output:
        job = subprocess.Popen(
            [*command, "--config", str(settings)],
            stdout=output,
            stderr=output,
            env={**own, **(environment or {})},
        )
    try:
        yield job
        job.send_signal(signal.SIGINT)
        job.wait(_END_S)
    finally:
        job.kill()
        job.wait()
