"""Look whether the executors of a cluster see the folders that a job shares with them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from pyspark import SparkContext
from pyspark.sql import SparkSession

from stompkit._common.files import reason_of
from stompkit.spark.java import SparkError
from stompkit.spool import OtherSpoolError, ServerAccess, SpoolError, SpoolReader

__all__ = ["EVENT_STORE", "check_folders"]

_SPOOL: Final = "the spool"
#: Name of the folder of an event store.
EVENT_STORE: Final = "the event store"
#: Further ways to proceed if executors do not see a folder.
_WAYS: Final = {
    _SPOOL: (
        "; or serve the spool on this machine with `stompkit spool serve`, and set spool to the URL"
        " of this server"
    ),
    EVENT_STORE: "; or set through_driver = true in [events]",
}
#: Time in seconds in which an executor has to reach the server of a spool.
_SERVER_S: Final = 10.0


def check_folders(spark: SparkSession, spool: SpoolReader, others: Mapping[str, Path]) -> None:
    """Check that all executors can read the spool and see folders; raises :class:`SparkError`.

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
        access = spool.access
        if access is not None:
            access = replace(access, patience_s=_SERVER_S)
        found = _on_executors(context, partial(_unseen, spool.place, access, spool.id, marks))
    missing = {what for unseen in found.values() for what in unseen}
    if access is not None and _SPOOL in missing:
        raise SparkError(
            f"executors cannot read the spool of the server {spool.place}:"
            f" {_named(found, _SPOOL)}. All machines have to reach this server"
        )
    wrong = [
        f"the executors on {_named(found, what)} do not see {what} in {folder}"
        for what, folder in {_SPOOL: spool.place, **others}.items()
        if what in missing
    ]
    if wrong:
        ways = "".join(way for what, way in _WAYS.items() if what in missing)
        raise SparkError(
            f"{', and '.join(wrong)}. All machines have to see the same folder under this path,"
            f" over NFS or as a shared volume{ways}"
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
    place: str,
    access: ServerAccess | None,
    spool: str,
    marks: Mapping[str, Path],
    _task: int,
) -> tuple[str, dict[str, str]]:
    """Return the name of this machine, and the reasons for which it does not see some folders."""
    unseen = {}
    try:
        SpoolReader(place, expect_id=spool, access=access)
    except OtherSpoolError:
        unseen[_SPOOL] = "another spool is there"
    except SpoolError as error:
        unseen[_SPOOL] = "" if access is None else str(error)
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
