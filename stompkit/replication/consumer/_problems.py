"""Problems that do not end a consumer: logged, and passed to a function of the user."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from stompkit.replication.consumer._reports import Problem, ProblemKind

__all__ = ["ProblemReporter"]

_log: Final = logging.getLogger(__name__)
_Given = TypeVar("_Given")


class ProblemReporter:
    """Reports the problems of a consumer."""

    def __init__(
        self, consumer: object, destination: str, on_problem: Callable[[Problem], object] | None
    ) -> None:
        """Pass problems with frames of *destination* to *on_problem*."""
        self._consumer = consumer
        self._destination = destination
        self._on_problem = on_problem

    def report_failure(self, error: Exception) -> None:
        """Report a failure of the sink, which is retried."""
        self.report("retry", f"the sink has failed: {error!r}", error=error)

    def report(
        self,
        kind: ProblemKind,
        text: str,
        origin: str = "",
        sequence: int | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Log a problem, and pass it on."""
        level = logging.WARNING if kind == "retry" else logging.ERROR
        _log.log(level, "%s: %s", self._destination, text)
        if self._on_problem is not None:
            problem = Problem(kind=kind, text=text, origin=origin, sequence=sequence, error=error)
            self.call(self._on_problem, problem)

    def call(self, function: Callable[[_Given], object], argument: _Given) -> None:
        """Call a function of the user; its exception is logged."""
        try:
            function(argument)
        except Exception:
            _log.exception("a callback of %r has failed", self._consumer)
