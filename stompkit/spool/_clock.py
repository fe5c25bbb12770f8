"""A check of the clock by which old messages are removed: it may be ahead for a while.

If it is much later than at the last run, either retention did not run for long, or the clock is
ahead. A machine that has not reached its time server has such a clock. Nobody can tell one from the
other at once, but a wrong clock is usually corrected soon.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["trusted_time"]

_log: Final = logging.getLogger(__name__)

#: Names of empty files. Their modification times are the last time of the clock that was trusted,
#: and the first doubtful one. A full disk has room for that.
_TRUSTED: Final = "clock"
_DOUBTED: Final = "clock-ahead"
#: Time for which a doubtful clock must go on, and difference that is never doubtful, in seconds.
_DOUBTED_S: Final = 3600.0


def trusted_time(folder: Path, now_s: float, written: Iterable[Path], least_s: float) -> float:
    """Return the time by which things older than ``least_s`` can be removed, at most ``now_s``.

    If the clock is later than at the last call by more than ``least_s``, the former time is
    returned for an hour, and a warning logged. Before the first call, the files ``written`` have
    the former time.
    """
    trusted, doubted = folder / _TRUSTED, folder / _DOUBTED
    last_s = _time_of(trusted)
    if last_s is None:
        last_s = max((each.stat().st_mtime for each in written), default=now_s)
    if now_s - last_s > max(least_s, _DOUBTED_S):
        since_s = _time_of(doubted)
        if since_s is None or since_s > now_s:
            since_s = now_s
            _log.warning(
                "old messages were not removed from %s for long, or the clock is ahead: none are"
                " removed by their age for an hour, so that a wrong clock can be corrected",
                folder,
            )
            _set_time(doubted, now_s)
        if now_s - since_s < _DOUBTED_S:
            _set_time(trusted, last_s)
            return last_s
    with suppress(FileNotFoundError):
        doubted.unlink()
    _set_time(trusted, now_s)
    return now_s


def _time_of(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None


def _set_time(path: Path, time_s: float) -> None:
    try:
        if not path.exists():
            path.touch()
        os.utime(path, (time_s, time_s))
    except OSError as error:
        _log.warning("the time of %s cannot be set: %s", path, error)
