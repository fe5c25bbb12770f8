"""Look whether the executors of a cluster see the folders that a job shares with them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from pyspark import SparkContext
from pyspark.sql import SparkSession

from stompkit._common.files import reason_of
from stompkit.spark.java import SparkError
from stompkit.spool import OtherSpoolError, SpoolError, SpoolReader

__all__ = ["check_folders"]

_SPOOL: Final = "the spool"


def check_folders(spark: SparkSession, spool: SpoolReader, others: Mapping[str, Path]) -> None:
    """Check that all executors see the spool, and other folders; raises :class:`SparkError`.

    ``others`` are folders by what is in them. For each of them a file is created for a moment, so
    that another folder of that name is not mistaken for it. In local mode nothing is done.
    """
    context = spark.sparkContext
    master = context.master or ""
    if master == "local" or master.startswith("local["):
        return
    with ExitStack() as stack:
        marks: dict[str, Path] = {}
        for what, folder in others.items():
            if (mark := stack.enter_context(_marked(folder))) is not None:
                marks[what] = mark
        found = _on_executors(context, partial(_unseen, str(spool.folder), spool.id, marks))
    wrong = [
        f"the executors on {_named(found, what)} do not see {what} in {folder}"
        for what, folder in {_SPOOL: spool.folder, **others}.items()
        if any(what in unseen for unseen in found.values())
    ]
    if wrong:
        raise SparkError(
            f"{', and '.join(wrong)}. All machines have to see the same folder under this path,"
            " over NFS or as a shared volume"
        )


@contextmanager
def _marked(folder: Path) -> Iterator[Path | None]:
    """Create a file in a folder, or in the one in which that will be created.

    Yields ``None`` if the driver cannot do so: the job reports the reason.
    """
    there = next(each for each in (folder, *folder.parents) if each.is_dir())
    mark = there / f".stompkit-{uuid4().hex}"
    try:
        mark.touch()
    except OSError:
        yield None
        return
    try:
        yield mark
    finally:
        with suppress(OSError):
            mark.unlink()


def _on_executors(context: SparkContext, look: Any) -> dict[str, dict[str, str]]:
    """Return the results of a function on all executors, by machine.

    Spark gives each idle executor a task before it gives one a second task. An executor that was
    registered meanwhile may have none, so the job is repeated for it.
    """
    inner: Any = context._jsc
    found: dict[str, dict[str, str]] = {}
    seen = 0
    # The driver counts as one.
    while (executors := inner.sc().getExecutorMemoryStatus().size()) > seen:
        seen = executors
        tasks = max(context.defaultParallelism, executors)
        for machine, unseen in context.parallelize(range(tasks), tasks).map(look).collect():
            found[machine] = {**found.get(machine, {}), **unseen}
    return found


def _unseen(
    folder: str, spool: str, marks: Mapping[str, Path], _task: int
) -> tuple[str, dict[str, str]]:
    """Return the name of this machine, and the reasons for which it does not see some folders."""
    unseen = {}
    try:
        SpoolReader(folder, expect_id=spool)
    except OtherSpoolError:
        unseen[_SPOOL] = "another spool is there"
    except SpoolError:
        unseen[_SPOOL] = ""
    except OSError as error:
        unseen[_SPOOL] = reason_of(error)
    for what, mark in marks.items():
        try:
            os.stat(mark)
        except FileNotFoundError:
            unseen[what] = ""
        except OSError as error:
            unseen[what] = reason_of(error)
    return socket.gethostname(), unseen


def _named(found: Mapping[str, Mapping[str, str]], what: str) -> str:
    """Return the machines that do not see something, with the reasons."""
    named = []
    for machine, unseen in sorted(found.items()):
        if what in unseen:
            reason = unseen[what]
            named.append(f"{machine} ({reason})" if reason else machine)
    return ", ".join(named)
