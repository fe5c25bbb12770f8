"""Errors of the API, with a message for people and a code for programs."""

from __future__ import annotations

from typing import NoReturn

import msgspec

from stompkit.server.admin.results import Complaint, Refusal

__all__ = ["AdminError", "refuse"]


class AdminError(Exception):
    """A request that is refused, with an HTTP status."""

    def __init__(self, status: int, code: str, message: str, *, delay_s: float = 0.0) -> None:
        """Keep the message for people and the code for programs.

        ``delay_s`` is the delay in seconds before the response is sent.
        """
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.delay_s = delay_s

    @property
    def body(self) -> bytes:
        """Return the error as JSON."""
        return msgspec.json.encode(Refusal(error=Complaint(code=self.code, message=self.message)))


def refuse(status: int, code: str, message: str) -> NoReturn:
    """Raise a :class:`AdminError`."""
    raise AdminError(status, code, message)
