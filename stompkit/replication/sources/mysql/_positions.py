"""Positions in the log, with evidence that it is still the same log."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from stompkit.replication.sources.mysql._errors import OffsetLostError

__all__ = ["Position", "gtid_set", "is_behind", "parse_gtids"]


class Position(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A position between two transactions."""

    file: str
    #: Offset in bytes from the beginning of the file.
    pos: int
    #: Last transaction of each domain, as MariaDB writes it: ``0-1-270,7-1-3``.
    gtid: str = ""
    #: All transactions up to here, as MySQL writes them; ``None`` if unknown.
    executed: str | None = None
    server_id: int = 0
    #: The server's own id: ``server_uuid`` or ``server_uid``.
    server: str = ""
    #: Creation time of the file, in seconds since 1970: a reset log reuses file names.
    made: int = 0
    #: True if reading starts at the file position, although the transactions are known, because the
    #: server cannot map this position to transactions. Never part of a checkpoint.
    by_place: bool = False

    def __str__(self) -> str:
        """Return the form ``binlog.000001:4711``."""
        return f"{self.file}:{self.pos}"

    def encode(self) -> str:
        """Return the position as JSON, for a checkpoint."""
        return _ENCODER.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> Position:
        """Return the position for its JSON; raises :class:`OffsetLostError` for any other text."""
        try:
            return _DECODER.decode(text)
        except msgspec.DecodeError as error:
            raise OffsetLostError(
                f"the position of the checkpoint is none of a binary log ({error}): "
                "use the offsets of this publisher, or empty ones"
            ) from None


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Position)


def parse_gtids(text: str) -> dict[int, str]:
    """Return the transactions of MariaDB's list by their domains."""
    gtids = (each.strip() for each in text.split(",") if each.strip())
    return {int(gtid.partition("-")[0]): gtid for gtid in gtids}


def gtid_set(gtids: dict[int, str]) -> str:
    """Return MariaDB's list of the transactions, in the order of their domains."""
    return ",".join(gtids[domain] for domain in sorted(gtids))


def is_behind(place: tuple[str, int], other: tuple[str, int]) -> bool:
    """Return True if a file and position come later in the log than others."""
    return (_number(place[0]), place[1]) > (_number(other[0]), other[1])


def _number(file: str) -> int:
    found = re.search(r"\.(\d+)$", file)
    return int(found[1]) if found else 0
