"""What can be wrong with a spool."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["BrokenSpool", "DataLost", "OtherSpool", "SpoolInUse", "SpoolProblem"]


class SpoolProblem(Exception):
    """Something about a spool that its user has to know; the text says what can be done."""


class SpoolInUse(SpoolProblem):
    """Another process writes to the spool; the text says which."""


class OtherSpool(SpoolProblem):
    """The folder has another spool than the one that was expected."""


class DataLost(SpoolProblem):
    """Messages that are asked for are not there any more, or never were."""

    def __init__(self, text: str, *, partition: int, asked: int, there: int) -> None:
        """``there`` is the nearest ordinal that can be asked for instead of ``asked``."""
        super().__init__(text)
        self.partition: Final = partition
        self.asked: Final = asked
        self.there: Final = there

    def __reduce__(self) -> tuple[object, ...]:
        return _data_lost, (str(self), self.partition, self.asked, self.there)


class BrokenSpool(SpoolProblem):
    """A file is damaged, in a way that no crash of a writer explains."""

    def __init__(self, path: Path, offset: int, reason: str) -> None:
        """``offset`` is the octet where the damaged part of the file begins."""
        super().__init__(f"{path} is damaged at octet {offset}: {reason}")
        self.path: Final = path
        self.offset: Final = offset
        self._reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return BrokenSpool, (self.path, self.offset, self._reason)


def _data_lost(text: str, partition: int, asked: int, there: int) -> DataLost:
    return DataLost(text, partition=partition, asked=asked, there=there)
