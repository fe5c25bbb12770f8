"""Publishing of a job's stored dead letters to a destination of a broker, at least once.

The progress is a file beside the checkpoint. It is written after the broker's confirmation, so
after a crash in between messages are sent again with the same ``event-id``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol

from stompkit._common.files import make_directory, write_atomically
from stompkit._common.text import text_of
from stompkit.replication.model.frames import Packet
from stompkit.spark.stream.options import SinkOptions

__all__ = ["Find", "Letters", "Marks", "NotSentError", "Row", "beyond"]

#: A row of the table of dead letters.
Row = Mapping[str, Any]
#: Last published dead letter by partition: its ordinal, and its number in the message.
Marks = Mapping[int, tuple[int, int]]

#: Number of dead letters read and sent at a time.
_PAGE: Final = 500
_CONNECT_S: Final = 30.0
_CONFIRM_S: Final = 60.0


class Find(Protocol):
    """A function that reads dead letters."""

    def __call__(self, pipeline: str, spool: str, after: Marks, most: int) -> Sequence[Row]:
        """Return up to ``most`` rows of a pipeline and a spool, by partition, ordinal and change.

        They are after the marks, or of a partition without a mark.
        """


class NotSentError(Exception):
    """The broker is unreachable, or has not confirmed; a retry may succeed."""


class Letters:
    """Publisher of the dead letters of a pipeline."""

    def __init__(self, find: Find, pipeline: str, options: Mapping[str, str], mark: Path) -> None:
        """Start unconnected; ``mark`` is the progress file."""
        self._find: Final = find
        self._pipeline: Final = pipeline
        self._options: Final = SinkOptions.parse(options)
        self._mark: Final = mark
        # The last run may have crashed after the target's transaction.
        self._has_more = True

    def send(self, spool: str) -> int:
        """Send new dead letters, wait for the receipts, and return their number.

        Raises :class:`NotSentError`.
        """
        count = 0
        while self._has_more:
            marks = self._marks(spool)
            rows = self._find(self._pipeline, spool, marks, _PAGE)
            if rows:
                self._send([self._packet(row) for row in rows])
                self._note(spool, marks | {row["partition_no"]: _place(row) for row in rows})
                count += len(rows)
            self._has_more = len(rows) == _PAGE
        return count

    def look_again(self) -> None:
        """Expect new dead letters: a batch has stored some, or has failed after its commit."""
        self._has_more = True

    def _packet(self, row: Row) -> Packet:
        place = [row[name] for name in ("partition_no", "ordinal", "change_no")]
        told = {
            "pipeline": row["pipeline"],
            "spool": row["spool"],
            "partition": place[0],
            "ordinal": place[1],
            "change": place[2],
            "table": row["table_name"],
            "operation": row["operation"],
            "key": row["row_key"],
            "problem": row["problem"],
        }
        own = {
            "content-type": "application/json",
            "event-id": "-".join([self._pipeline, row["spool"], *map(str, place)]),
        }
        return Packet({**self._options.headers, **own}, json.dumps(told).encode())

    def _send(self, packets: list[Packet]) -> None:
        options = self._options
        try:
            with options.broker.link(receipts=options.receipts) as link:
                link.wait_connected(_CONNECT_S)
                link.send(options.destination, packets).result(_CONFIRM_S)
        except (Exception, CancelledError) as error:
            reason = text_of(error)
            raise NotSentError(
                f"dead letters cannot be sent to {options.destination}: {reason}"
            ) from (error)

    def _marks(self, spool: str) -> dict[int, tuple[int, int]]:
        try:
            found = json.loads(self._mark.read_bytes())
        except FileNotFoundError:
            return {}
        if found["spool"] != spool:
            return {}
        return {int(number): (at, change) for number, (at, change) in found["p"].items()}

    def _note(self, spool: str, marks: Marks) -> None:
        make_directory(self._mark.parent, mode=0o700)
        write_atomically(self._mark, json.dumps({"spool": spool, "p": marks}).encode(), mode=None)


def beyond(rows: Iterable[Row], after: Marks, most: int) -> list[Row]:
    """Return the dead letters after *after* among ordered rows, like :class:`Find`."""
    nothing = (-1, -1)
    new = (row for row in rows if _place(row) > after.get(row["partition_no"], nothing))
    return list(islice(new, most))


def _place(row: Row) -> tuple[int, int]:
    return row["ordinal"], row["change_no"]
