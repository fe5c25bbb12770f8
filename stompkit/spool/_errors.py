"""Errors of a spool."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = [
    "BrokenSpoolError",
    "DataLostError",
    "OtherSpoolError",
    "SpoolError",
    "SpoolInUseError",
    "SpoolUnavailableError",
]


class SpoolError(Exception):
    """Base class of spool errors; the text says how to resolve the error."""


class SpoolInUseError(SpoolError):
    """Another process writes to the spool; the text names it."""


class OtherSpoolError(SpoolError):
    """The folder contains a different spool than the expected one."""


class SpoolUnavailableError(SpoolError):
    """The server of the spool does not answer; a later attempt may succeed."""


class DataLostError(SpoolError):
    """Requested messages are no longer retained, or never existed."""

    def __init__(self, text: str, *, partition: int, asked: int, there: int) -> None:
        """Store the range error; ``there`` is the available ordinal nearest to ``asked``."""
        super().__init__(text)
        self.partition: Final = partition
        self.asked: Final = asked
        self.there: Final = there

    def __reduce__(self) -> tuple[object, ...]:
        return _data_lost, (str(self), self.partition, self.asked, self.there)


class BrokenSpoolError(SpoolError):
    """A file is damaged in a way that a crash of a writer does not explain."""

    def __init__(self, path: Path, offset: int, reason: str) -> None:
        """Store the position; the damaged part of the file begins at byte ``offset``."""
        super().__init__(f"{path} is damaged at octet {offset}: {reason}")
        self.path: Final = path
        self.offset: Final = offset
        self._reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return BrokenSpoolError, (self.path, self.offset, self._reason)


def _data_lost(text: str, partition: int, asked: int, there: int) -> DataLostError:
    return DataLostError(text, partition=partition, asked=asked, there=there)
