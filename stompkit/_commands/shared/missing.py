"""Errors for which a library is missing."""

from __future__ import annotations

from stompkit._common.files import describe
from stompkit._common.lazy import extra_advice

__all__ = ["reason"]


def reason(error: Exception) -> str:
    """Return the cause of an error, or the extra to install if a library is missing."""
    return extra_advice(error) or describe(error)
