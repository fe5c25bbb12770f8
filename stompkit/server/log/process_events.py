"""Events of the process: start, settings, files and stop."""

from __future__ import annotations

from twisted.python.failure import Failure

from stompkit.server.log.event import log_event

__all__ = [
    "cleanup_failed",
    "fatal",
    "file_invalid",
    "file_reloaded",
    "listening",
    "log_file_failed",
    "messages_in_memory",
    "no_settings_file",
    "not_compiled",
    "notify_failed",
    "notify_socket_invalid",
    "open_endpoint",
    "restart_needed",
    "setting_invalid",
    "settings_invalid",
    "settings_reloaded",
    "standing_by",
    "taking_over",
    "time_changed",
    "trusting_endpoint",
]


@log_event("info", "listening on {address} for {protocol}")
def listening(*, address: str, protocol: str) -> None:
    """The broker accepts connections at an address.

    ``protocol`` is STOMP, WebSocket, beanstalk or HTTP.
    """


@log_event(
    "warning",
    "everybody who can reach {address} can do everything without a login: add --auth, or"
    " --anonymous if that is intended",
)
def open_endpoint(*, address: str) -> None:
    """Other machines can reach an endpoint, and clients need no login."""


@log_event(
    "warning",
    "everybody who can reach {address} can claim any client address: list the load balancers in"
    " proxies of [[listen]]",
)
def trusting_endpoint(*, address: str) -> None:
    """Other machines can reach an endpoint that accepts a PROXY header from everybody."""


@log_event(
    "info",
    "messages are kept in memory and end with the broker: --data or [store] keeps them on disk",
)
def messages_in_memory() -> None:
    """The broker has no store."""


@log_event("info", "this broker is {reason}")
def not_compiled(*, reason: str) -> None:
    """The broker runs as Python, which is slower; a wheel for this platform is faster."""


@log_event("info", "waiting for {path}, which is held by {holder}")
def standing_by(*, path: str, holder: str) -> None:
    """Another broker uses the same data; this one waits for it to end."""


@log_event("info", "{path} is free: taking over")
def taking_over(*, path: str) -> None:
    """The other broker has ended, and this one starts."""


@log_event("info", "the system's time has changed by {seconds} seconds")
def time_changed(*, seconds: float) -> None:
    """The system's time was set; delayed and expiring messages follow it."""


@log_event("critical", "{reason}")
def fatal(*, reason: str) -> None:
    """The broker cannot start, or cannot continue; the process ends with status 1."""


@log_event("info", "{path} was reloaded")
def settings_reloaded(*, path: str) -> None:
    """The settings of a file are in force after SIGHUP."""


@log_event("info", "SIGHUP has no effect: the broker has no configuration file")
def no_settings_file() -> None:
    """A broker without ``--config`` got SIGHUP, and continues."""


@log_event("error", "{problem}")
def setting_invalid(*, problem: str) -> None:
    """A setting of a reloaded file is invalid; ``settings-invalid`` follows."""


@log_event("error", "{path} is invalid[: {error}]: the previous settings stay in force")
def settings_invalid(*, path: str, error: str = "") -> None:
    """A file of settings is not reloaded, since it has errors."""


@log_event("warning", "{path}: {setting} has changed, and takes effect after a restart")
def restart_needed(*, path: str, setting: str) -> None:
    """A setting has changed that a running broker cannot change."""


@log_event("info", "{path} has changed and was reloaded")
def file_reloaded(*, path: str) -> None:
    """The broker uses the new content of a file of users or certificates."""


@log_event("error", "{path} has changed and is invalid: {error}: the previous content stays in use")
def file_invalid(*, path: str, error: str) -> None:
    """The broker keeps the previous content of a file of users or certificates."""


@log_event("error", "cannot open {path}: {error}: the log continues in the previous file")
def log_file_failed(*, path: str, error: str) -> None:
    """The log file cannot be opened again after it was moved away."""


@log_event("warning", "cannot notify {path}, from NOTIFY_SOCKET, of {state}: {error}")
def notify_failed(*, path: str, state: str, error: str) -> None:
    """The service manager does not accept a notification."""


@log_event(
    "warning",
    "cannot notify anybody of readiness: NOTIFY_SOCKET is {path!a}, which does not begin with / or"
    " @",
)
def notify_socket_invalid(*, path: str) -> None:
    """The address of the service manager is invalid."""


@log_event("error", "an authentication service could not be closed")
def cleanup_failed(*, failure: Failure) -> None:
    """The previous authentication service caused an error when it was closed."""
