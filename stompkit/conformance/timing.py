"""Cases about time, which are repeated once: a busy machine may disturb them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final

from stompkit.conformance.target import Target

__all__ = ["tried_again"]

_ATTEMPTS: Final = 2


def tried_again(function: Callable[[Target], None]) -> Callable[[Target], None]:
    """Repeat a case about intervals if it has failed; the last attempt counts.

    A machine that stops for a moment delays a punctual target, or the suite; it never makes a late
    target punctual. A successful attempt therefore proves more than a failed one. The failure of
    the first attempt becomes a note. Put this decorator below ``@case`` or ``@trial``.
    """

    @wraps(function)
    def attempts(target: Target) -> None:
        for _ in range(1, _ATTEMPTS):
            try:
                return function(target)
            except AssertionError as error:
                target.note(f"tried once more, since at first: {error}")
                target.start_over()
        return function(target)

    return attempts
