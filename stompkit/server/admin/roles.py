"""Roles of the admin interface, their tokens, and who sends a request."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from stompkit.server.process.watched_files import Watched
from stompkit.server.settings.admin import AdminSettings
from stompkit.server.settings.admin_checks import token_in

__all__ = ["AdminTokens", "Operator", "Role", "watched_tokens"]


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


class AdminTokens(NamedTuple):
    """The token of operators, and that of readers if there is one."""

    operator: bytes
    reader: bytes | None = None


def watched_tokens(settings: AdminSettings) -> Callable[[], AdminTokens] | None:
    """Return a function that returns the tokens in force; ``None`` if none is required.

    Raises OSError or ValueError for a file without a token.
    """
    own = settings.token_file
    if own is None:
        return None
    readers = settings.read_token_file

    def read() -> AdminTokens:
        tokens = AdminTokens(token_in(own), None if readers is None else token_in(readers))
        if tokens.operator == tokens.reader:
            raise ValueError(f"{readers} must not have the token of {own}")
        return tokens

    return Watched([Path(each) for each in (own, readers) if each is not None], read).get
