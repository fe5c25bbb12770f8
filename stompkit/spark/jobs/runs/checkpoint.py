"""Spark's checkpoint of a job, and the progress stored in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from stompkit._common.files import describe
from stompkit.spark.fence import Span
from stompkit.spark.jobs.settings import PipelineError
from stompkit.spool import SpoolReader

__all__ = ["Checkpoint", "Offset", "put_aside"]


class Offset(NamedTuple):
    """End position of a batch in a spool."""

    #: Id of the spool.
    spool: str
    #: Ordinal after the last message, by partition.
    ends: dict[int, int]
    #: The whole offset, in JSON.
    text: str

    def is_of(self, reader: SpoolReader) -> bool:
        """Return True if the offset belongs to this spool, and not to another or a newer copy."""
        heads = dict(enumerate(reader.head()))
        is_there = all(end <= heads.get(number, -1) for number, end in self.ends.items())
        return self.spool == reader.id and is_there


class Checkpoint:
    """The checkpoint folder or URI of a query."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        """Describe the checkpoint; it need not exist."""
        self._spark = spark
        self.place = place

    def last(self) -> int | None:
        """Return the number of the last completed batch; ``None`` if there is none."""
        return max((int(name) for name in self._names("commits") if name.isdecimal()), default=None)

    def offset(self, batch_id: int) -> Offset | None:
        """Return the offset of a batch; ``None`` if it is missing or unreadable."""
        with suppress(ValueError, KeyError, AttributeError):
            for line in self._lines(f"offsets/{batch_id}"):
                if line.startswith("{") and "p" in (found := json.loads(line)):
                    ends = {int(number): end for number, end in found["p"].items()}
                    return Offset(found["spool"], ends, line)
        return None

    def span(self, batch_id: int) -> Span:
        """Return the bounds of a batch, which Spark writes before the batch begins."""
        before = self.offset(batch_id - 1) if batch_id else None
        own = self.offset(batch_id)
        if own is None:
            raise RuntimeError(f"{self.place}/offsets/{batch_id} has no offset of the format stomp")
        if before is None:
            return Span({}, own.ends, ("", own.text))
        return Span(before.ends, own.ends, (before.text, own.text))

    def put_aside(self) -> None:
        """Remove the checkpoint, so that the query starts from scratch; raises PipelineError."""
        if "://" not in self.place:
            put_aside(Path(self.place))
            return
        path, files = self._hadoop(self.place)
        files.delete(path, True)

    def _names(self, folder: str) -> Iterator[str]:
        """Yield the names of the files in a folder."""
        if "://" not in self.place:
            with suppress(OSError):
                yield from (each.name for each in (Path(self.place) / folder).iterdir())
            return
        path, files = self._hadoop(f"{self.place}/{folder}")
        if files.exists(path):
            yield from (each.getPath().getName() for each in files.listStatus(path))

    def _lines(self, file: str) -> list[str]:
        """Return the lines of a file; an empty list if it does not exist."""
        if "://" not in self.place:
            try:
                return (Path(self.place) / file).read_text(encoding="utf-8").splitlines()
            except OSError:
                return []
        path, files = self._hadoop(f"{self.place}/{file}")
        if not files.exists(path):
            return []
        text: str = self._spark.read.text(f"{self.place}/{file}", wholetext=True).collect()[0][0]
        return text.splitlines()

    def _hadoop(self, place: str) -> tuple[Any, Any]:
        """Return a Hadoop path and its file system."""
        jvm: Any = self._spark._jvm
        session: Any = self._spark._jsparkSession
        path = jvm.org.apache.hadoop.fs.Path(place)
        return path, path.getFileSystem(session.sessionState().newHadoopConf())


def put_aside(folder: Path) -> None:
    """Remove a checkpoint on this machine; raises PipelineError."""
    unused = folder.with_name(f"{folder.name}.unused")
    try:
        if unused.exists():
            shutil.rmtree(unused)
        if folder.exists():
            # Atomically: Spark could resume from a partially deleted checkpoint.
            folder.rename(unused)
            shutil.rmtree(unused)
    except OSError as error:
        raise PipelineError(describe(error)) from None
