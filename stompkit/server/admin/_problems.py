"""Saying no, in words for people and for programs."""

from __future__ import annotations

from typing import NoReturn

import msgspec

from stompkit.server.admin._shapes import Complaint, Refusal

__all__ = ["Problem", "refuse"]


class Problem(Exception):
    """What can't be answered, with the status of HTTP."""

    def __init__(self, status: int, code: str, message: str) -> None:
        """Keep the sentence for people and the word for programs."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message

    @property
    def body(self) -> bytes:
        """It as JSON."""
        return msgspec.json.encode(Refusal(error=Complaint(code=self.code, message=self.message)))


def refuse(status: int, code: str, message: str) -> NoReturn:
    """Raise a :class:`Problem`."""
    raise Problem(status, code, message)
