"""Cases about time: what a busy machine spoils is tried once more."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final

from stompkit.conformance.target import Target

__all__ = ["tried_again"]

_ATTEMPTS: Final = 2


def tried_again(function: Callable[[Target], None]) -> Callable[[Target], None]:
    """Make a case about intervals go again if it has failed; the last attempt counts.

    A machine that stops for a moment makes a punctual target late, or the suite; it never makes a
    late one punctual. So one attempt that succeeds says more than one that fails. The first one's
    failure becomes a note. To stand below ``@case`` or ``@trial``.
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
