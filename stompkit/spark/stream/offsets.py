"""Offsets of a stream over a spool, and the input of the batch between two of them.

An offset is ``{"v": 1, "spool": ID, "p": {"0": ORDINAL, ...}, "e": EPOCH}``. The id prevents the
use of a checkpoint with another spool, whose ordinals identify other messages. The epoch prevents
it with an older copy of the spool that has grown since. For changes, ``o`` contains the progress of
each origin, which determines the order of changesets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from stompkit.spark.stream.options import Bound, Ordinals, SourceOptions
from stompkit.spark.stream.order import Scan, scan
from stompkit.spark.stream.origins import Origins
from stompkit.spark.stream.partitions import SpoolRange, plan
from stompkit.spool import OtherSpoolError, SpoolError, SpoolReader

__all__ = ["check_end", "initial", "made_offset", "ordinals_of", "origins_of", "planned", "resolve"]

_FORMAT: Final = 1


def made_offset(
    reader: SpoolReader, ordinals: Sequence[int], origins: Origins | None = None
) -> dict[str, Any]:
    """Return an offset; ``origins`` is the progress of the origins of changesets."""
    positions = {str(number): ordinal for number, ordinal in enumerate(ordinals)}
    made = {"v": _FORMAT, "spool": reader.id, "p": positions, "e": reader.epoch(ordinals)}
    return made if origins is None else {**made, "o": origins.dump()}


def origins_of(offset: Mapping[str, Any]) -> Origins:
    """Return the progress of origins at an offset; unknown in offsets of an earlier version."""
    return Origins.load(offset["o"]) if "o" in offset else Origins(has_past=True)


def ordinals_of(reader: SpoolReader, offset: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the ordinals of an offset; raises SpoolError for another spool."""
    if offset.get("v") != _FORMAT:
        raise SpoolError(
            f"the checkpoint has offsets of format {offset.get('v')}, and {_FORMAT} is known"
        )
    _check_spool(reader, offset["spool"])
    ordinals = tuple(offset["p"].get(str(number), 0) for number in range(reader.partitions))
    reader.check_epoch(ordinals, offset.get("e", ""))
    return ordinals


def _check_spool(reader: SpoolReader, spool: str) -> None:
    """Raise OtherSpoolError if an offset of a checkpoint is about another spool."""
    if spool != reader.id:
        raise OtherSpoolError(
            f"{reader.place} has the spool {reader.id}, and the checkpoint is about {spool},"
            " whose ordinals are others: bring the former one back, or begin with a new checkpoint"
        )


def check_end(reader: SpoolReader, ordinals: Sequence[int]) -> tuple[int, ...]:
    """Return the head of a spool; raises SpoolError if it is before some of the ordinals."""
    head = reader.head()
    if any(there < first for there, first in zip(head, ordinals, strict=True)):
        raise SpoolError(
            f"{reader.place} ends at {list(head)}, and this query begins or has read up to "
            f"{list(ordinals)}: the spool is an older copy, or the offset is wrong. Bring back the"
            " newer one, or begin with a new checkpoint and an offset that is there"
        )
    return head


def resolve(reader: SpoolReader, bound: Bound) -> tuple[int, ...]:
    """Return the ordinals of a bound; raises SpoolError for an invalid partition, or another spool.

    Ordinals below the floor or beyond the head are returned unchanged.
    """
    if bound == "earliest":
        return reader.floor()
    if bound == "latest":
        return reader.head()
    if isinstance(bound, Ordinals):
        if bound.spool is not None:
            _check_spool(reader, bound.spool)
        given = bound.by_partition
        unknown = [number for number in given if number >= reader.partitions]
        if unknown:
            raise SpoolError(
                f"{reader.place} has {reader.partitions} partitions, counted from 0, and no "
                f"partition {unknown[0]}"
            )
        ends = {-2: reader.floor(), -1: reader.head()}
        found = (given.get(number, -2) for number in range(reader.partitions))
        ordinals = tuple(
            ends[ordinal][number] if ordinal < 0 else ordinal
            for number, ordinal in enumerate(found)
        )
        reader.check_epoch(ordinals, bound.epoch)
        return ordinals
    assert isinstance(bound, (int, float))
    return reader.position_at(bound)


def initial(reader: SpoolReader, options: SourceOptions) -> dict[str, Any]:
    """Return the start offset of a query without checkpoint."""
    ordinals = None
    if options.reader and _moves(options):
        # Only the registered reader shows whether this is the first start.
        known = reader.readers().get(options.reader)
        ordinals = None if known is None else known.positions
    if ordinals is None:
        ordinals = resolve(reader, options.starting)
    if options.payload == "raw":
        return made_offset(reader, ordinals)
    # No message before this offset was scanned.
    return made_offset(reader, ordinals, Origins(has_past=any(ordinals)))


def _moves(options: SourceOptions) -> bool:
    """Return True if the start depends on the time of the first start."""
    starting = options.starting
    if isinstance(starting, Ordinals):
        return -1 in starting.by_partition.values()
    return starting != "earliest"


def planned(
    reader: SpoolReader, start: Mapping[str, Any], end: Mapping[str, Any], options: SourceOptions
) -> list[SpoolRange]:
    """Return what tasks read of a stream's batch: the same whenever it is planned.

    Raises :class:`~stompkit.spool.DataLostError`, and SpoolError for offsets of another spool or
    beyond the end of this one.
    """
    begin, ends = ordinals_of(reader, start), ordinals_of(reader, end)
    check_end(reader, ends)
    scans: dict[int, Scan] = {}
    if options.payload != "raw" and "o" in end:
        origins, known = origins_of(start), origins_of(end).known
        # Repeat the decisions made when the end was determined.
        skips = {name: each.passed for name, each in known.items()}
        begins = {name: each.begun for name, each in known.items()}
        floor = reader.floor()
        for number, last in enumerate(ends):
            first = max(begin[number], floor[number])
            bounds = (number, first, last, last)
            scans[number] = scan(reader, *bounds, origins, skips=skips, begins=begins)
    return plan(reader, begin, ends, options, scans)
