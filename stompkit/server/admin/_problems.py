"""Saying no, in words for people and for programs."""

from __future__ import annotations

from typing import NoReturn

import msgspec

from stompkit.server.admin._shapes import Complaint, Refusal

__all__ = ["Problem", "refuse"]


class Problem(Exception):
    """What can't be answered, with the status of HTTP."""

    def __init__(self, status: int, code: str, message: str, *, delay_s: float = 0.0) -> None:
        """Keep the sentence for people and the word for programs.

        ``delay_s`` is how late it is to be said.
        """
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.delay_s = delay_s

    @property
    def body(self) -> bytes:
        """It as JSON."""
        return msgspec.json.encode(Refusal(error=Complaint(code=self.code, message=self.message)))


def refuse(status: int, code: str, message: str) -> NoReturn:
    """Raise a :class:`Problem`."""
    raise Problem(status, code, message)
