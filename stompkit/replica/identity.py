"""Names of nodes and their origins.

A node is named by its **branch**, which its administrator chooses. Its changesets are numbered by
**origin**: the branch and eight random hexadecimal digits, as in ``laptop~1f2e3d4c``. The digits
are created with the store.
"""

from __future__ import annotations

import re
from random import Random, SystemRandom
from typing import Final

__all__ = ["MARK", "branch_of", "check_branch_id", "is_origin", "new_origin"]

_BRANCH: Final = r"[A-Za-z0-9._-]{1,64}"
_IS_BRANCH: Final = re.compile(_BRANCH).fullmatch
_IS_ORIGIN: Final = re.compile(_BRANCH + "~[0-9a-f]{8}").fullmatch
MARK: Final = "~"


def check_branch_id(text: str) -> str:
    """Return a valid branch id unchanged; raises ValueError, which says what is valid."""
    if _IS_BRANCH(text) is None:
        raise ValueError(
            f"{text[:80]!r} is no branch id: that is 1 to 64 letters from a to z, digits and any of"
            " '.', '_' and '-'"
        )
    return text


def new_origin(branch_id: str, chance: Random | None = None) -> str:
    """Return a new random origin for a store of this branch; raises ValueError."""
    digits = (SystemRandom() if chance is None else chance).getrandbits(32)
    return f"{check_branch_id(branch_id)}{MARK}{digits:08x}"


def is_origin(text: str) -> bool:
    """Return True if the text has the form of an origin."""
    return _IS_ORIGIN(text) is not None


def branch_of(origin: str) -> str:
    """Return the branch of an origin; raises ValueError if it is malformed."""
    if not is_origin(origin):
        raise ValueError(f"{origin[:80]!r} is no origin, as in 'laptop~1f2e3d4c'")
    return origin.partition(MARK)[0]
