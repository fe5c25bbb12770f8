"""Events of logins and of authentication services."""

from __future__ import annotations

from twisted.python.failure import Failure

from stompkit.server.log.event import log_event

__all__ = [
    "login_check_failed",
    "login_error",
    "login_repeated",
    "login_service_failed",
    "login_service_recovered",
    "logins_limited",
    "passcode_checks_busy",
    "question_not_utf8",
    "scrypt_without_process",
]


@log_event("error", "{peer} refused: its login cannot be checked, because of {error} at {place}")
def login_check_failed(*, peer: str, error: str, place: str) -> None:
    """A checker of logins raised an error; its message is omitted, since it may contain secrets."""


@log_event("error", "error while a login was processed")
def login_error(*, failure: Failure) -> None:
    """A defect of the broker, or of a plug-in that checks logins."""


@log_event(
    "warning",
    "{peer} has repeated a wrong login: the same one is refused unchecked for {seconds} seconds",
)
def login_repeated(*, peer: str, seconds: int) -> None:
    """A login with the same wrong passcode is refused; it is checked again every 5 seconds.

    It is checked earlier if a file with users has changed.
    """


@log_event(
    "warning",
    "{peer} has sent too many wrong logins: its logins are refused unchecked for {seconds} seconds",
)
def logins_limited(*, peer: str, seconds: int) -> None:
    """Logins of an address are refused for a time, without a check of their passcodes."""


@log_event("warning", "too many logins wait for the check of their passcodes")
def passcode_checks_busy() -> None:
    """A login is refused, since more arrive than passcodes can be checked."""


@log_event("warning", "no process can be started to compute scrypt: {error}")
def scrypt_without_process(*, error: str) -> None:
    """Passcodes are checked in the process of the broker, which delays its clients."""


@log_event("error", "requests to {url} fail, so logins and frames are refused: {error}")
def login_service_failed(*, url: str, error: str) -> None:
    """An HTTP service for logins or permissions fails; logged once for each kind of error."""


@log_event("info", "{url} answers again; {count} requests were refused")
def login_service_recovered(*, url: str, count: int) -> None:
    """An HTTP service for logins or permissions works again."""


@log_event("warning", "refused: a request contains bytes that are not UTF-8, as JSON requires")
def question_not_utf8() -> None:
    """A login or frame cannot be sent to the HTTP service for logins or permissions."""
