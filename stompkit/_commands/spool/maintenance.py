"""Maintenance of a spool: old segments are sealed or removed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from stompkit._commands.spool.options import SpoolUsageError
from stompkit._common.files import describe
from stompkit.spool import SpoolError, SpoolWriter
from stompkit.spool.retention import retain

if TYPE_CHECKING:
    from stompkit.spool.sealing import Form

__all__ = ["Maintenance"]

_log: Final = logging.getLogger(__name__)
#: Interval of maintenance in seconds.
_EVERY_S: Final = 60.0


class Maintenance:
    """Seals and removes segments periodically, while other threads append messages."""

    def __init__(
        self,
        writer: SpoolWriter,
        *,
        max_age_s: float | None,
        max_bytes: int | None,
        readers_expire_s: float | None,
        form: Form | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up; raises :class:`SpoolUsageError` if pyarrow is missing."""
        if form is not None:
            try:
                import stompkit.spool.sealing  # noqa: F401  # it needs the extra, and says which
            except ModuleNotFoundError as error:
                raise SpoolUsageError(
                    f"--seal needs {error.name}: pip install 'stompkit[spark]'"
                ) from None
        self._writer = writer
        self._max_age_s = max_age_s
        self._max_bytes = max_bytes
        self._readers_expire_s = readers_expire_s
        self._form = form
        self._clock = clock
        self._due_s = clock()
        self._held_up: frozenset[str] = frozenset()
        self._has_open = False

    def run_if_due(self) -> None:
        """Run maintenance if it is due; failures are logged and retried."""
        if self._clock() < self._due_s:
            return
        self._due_s = self._clock() + _EVERY_S
        try:
            # Segments to be removed need not be sealed first.
            self._remove()
            self._seal()
        except (OSError, SpoolError) as error:
            _log.warning(
                "old messages could not be removed or sealed; retrying: %s", describe(error)
            )

    def _remove(self) -> None:
        if self._max_age_s is None and self._max_bytes is None:
            return
        removed = retain(
            self._writer,
            max_age_s=self._max_age_s,
            max_bytes=self._max_bytes,
            readers_expire_s=self._readers_expire_s,
        )
        for name in sorted(removed.kept_for.keys() - self._held_up):
            _log.warning(
                "messages are kept longer for the reader %s, who has not read them yet", name
            )
        self._held_up = frozenset(removed.kept_for)
        if removed.kept_whole and not self._has_open:
            _log.warning(
                "%d segments are kept longer, as changesets in several messages begin in them whose"
                " other parts are behind them, or have not come yet",
                removed.kept_whole,
            )
        self._has_open = bool(removed.kept_whole)

    def _seal(self) -> None:
        if self._form is None:
            return
        from stompkit.spool.sealing import seal, unsealed

        for partition, segment in unsealed(self._writer.folder):
            seal(self._writer, partition, segment, form=self._form)
