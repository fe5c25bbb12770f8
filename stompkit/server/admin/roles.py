"""Users of the admin interface."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Operator"]


class Operator(NamedTuple):
    """The sender of a request, by its address."""

    peer: str
