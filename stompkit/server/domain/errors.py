"""Errors that refuse a frame."""

from __future__ import annotations

__all__ = ["RefusedError"]


class RefusedError(Exception):
    """A frame that the broker cannot or may not process; its sender gets ERROR and is closed.

    ``code`` is the value of the ERROR frame's ``stompkit-code`` header.
    """

    def __init__(self, message: str, code: str) -> None:
        """Keep the message for people and the code for programs."""
        super().__init__(message)
        self.message = message
        self.code = code
