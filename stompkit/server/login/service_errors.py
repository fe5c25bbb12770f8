"""Descriptions of the failures of an HTTP service, for the log."""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import CancelledError
from twisted.internet.defer import TimeoutError as DeferredTimeoutError
from twisted.internet.error import ConnectError
from twisted.internet.error import TimeoutError as ConnectTimeoutError

__all__ = ["UnusableError", "describe", "status_error"]

_TIMEOUTS: Final = (CancelledError, DeferredTimeoutError, ConnectTimeoutError, TimeoutError)
_HINTS: Final = {
    401: ": it needs the right token in token_file of [auth.http]",
    403: ": it needs the right token in token_file of [auth.http]. A refusal is status 200 with"
    ' {"allow": false}',
    404: ": it has nothing at the path of url in [auth.http]",
}


class UnusableError(Exception):
    """A response that cannot be used."""


def status_error(status: int) -> UnusableError:
    """Return the error for a response with another status than 200."""
    hint = _HINTS.get(status, "")
    if 300 <= status < 400:
        hint = ": redirections are not followed, so set url in [auth.http] to their target"
    return UnusableError(f"it answers with status {status}{hint}")


def describe(error: BaseException | None, timeout_s: float) -> str:
    """Return what has happened to a request, and what to do about it."""
    if isinstance(error, UnusableError):
        return str(error)
    if isinstance(error, _TIMEOUTS):
        return f"it does not answer within {timeout_s:g} seconds (timeout_s in [auth.http])"
    if isinstance(error, ConnectError):
        return f"it does not answer: {_reason(error)}"
    text = _reason(error)
    if "certificate verify failed" in text:
        return (
            "its certificate is not trusted: set ca_file in [auth.http] to the authority that"
            " signed it, and check that it has not expired"
        )
    if type(error).__name__ == "VerificationError":
        return "its certificate is for another name than that in url of [auth.http]"
    return f"it does not answer: {text}"


def _reason(error: BaseException | None) -> str:
    name = type(error).__name__
    return f"{name}: {error}" if str(error) else name
