"""Roles of the admin interface, and who sends a request."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

__all__ = ["Operator", "Role"]


class Role(Enum):
    """Permissions of the sender of a request."""

    READER = "reader"
    """Read everything, change nothing."""
    OPERATOR = "operator"
    """Everything."""


class Operator(NamedTuple):
    """The sender of a request: its role and its address."""

    role: Role
    peer: str
