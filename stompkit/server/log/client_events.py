"""Events of clients: refused connections, lost messages, and frames."""

from __future__ import annotations

from twisted.python.failure import Failure

from stompkit.server.log.event import log_event

__all__ = [
    "beanstalk_command_failed",
    "client_refused",
    "frame",
    "level_not_readable",
    "no_local_ignored",
    "proxy_header_invalid",
    "proxy_headers_late",
    "proxy_untrusted",
    "refusals_omitted",
    "repetition_ignored",
    "slots_in_transaction",
    "slow_reader",
    "tls_failed",
    "warnings_omitted",
    "websocket_refused",
]


@log_event("info", "{peer}[ (user {user!a})] refused: {code}: {reason}")
def client_refused(
    *, peer: str, code: str, reason: str, user: str = "", destination: str = ""
) -> None:
    """The broker sends ERROR and closes a connection.

    ``code`` and ``reason`` are those of the ERROR frame. Before login, ``user`` is the login that
    the client claims. ``destination`` is that of the refused frame.
    """


@log_event("info", "{peer} lost: {reason}")
def tls_failed(*, peer: str, reason: str) -> None:
    """A connection could not be encrypted."""


@log_event("info", "{peer} gets no WebSocket: {reason}")
def websocket_refused(*, peer: str, reason: str) -> None:
    """A request is not a valid opening of a WebSocket, or comes from a page of another site."""


@log_event("warning", "{peer} refused: too many connections wait for their PROXY header")
def proxy_headers_late(*, peer: str) -> None:
    """A connection is closed, since too many others wait for their PROXY header."""


@log_event("warning", "{peer} refused: it is not one of the proxies of this endpoint")
def proxy_untrusted(*, peer: str) -> None:
    """A connection does not come from a configured load balancer."""


@log_event("info", "{peer} refused: no PROXY header: {reason}")
def proxy_header_invalid(*, peer: str, reason: str) -> None:
    """A connection begins without a valid PROXY header."""


@log_event(
    "warning", "{count} more clients were refused within a second, and are not logged separately"
)
def refusals_omitted(*, count: int) -> None:
    """Many clients are refused; only the first ones of each second are logged."""


@log_event(
    "warning",
    "{peer}[ (user {user!a})] reads {destination!a} too slowly and loses messages, even if their"
    " senders got receipts; see max_topic_backlog, or subscribe durably",
)
def slow_reader(*, peer: str, host: str, destination: str, user: str = "") -> None:
    """A subscriber of a topic loses messages; logged once for each topic and client address."""


@log_event(
    "warning",
    "{destination!a}: a subscriber may read the levels below, but not the level itself, and does"
    " not receive its messages; a rule with # in place of > allows both",
)
def level_not_readable(*, host: str, destination: str) -> None:
    """A subscription gets only a part of what it names; logged once for each pattern."""


@log_event(
    "warning",
    "{destination!a}: a client uses no-local, which this broker does not support: it also receives"
    " its own messages",
)
def no_local_ignored(*, host: str, destination: str) -> None:
    """A client requests a feature of other brokers; logged once for each destination."""


@log_event(
    "warning",
    "{destination!a}: a client uses AMQ_SCHEDULED_PERIOD, _REPEAT or _CRON, which this broker does"
    " not support: it delivers the message once, after its delay if it has one",
)
def repetition_ignored(*, host: str, destination: str) -> None:
    """A client requests repeated deliveries; logged once for each destination."""


@log_event(
    "warning",
    "{destination!a}: with flow = one-in-flight an ACK in a transaction frees no slot before"
    " COMMIT; a client without free slots receives nothing until then",
)
def slots_in_transaction(*, host: str, destination: str) -> None:
    """A client may wait for itself; logged once for each destination."""


@log_event("warning", "further destinations with such problems are not logged")
def warnings_omitted() -> None:
    """Warnings that are logged once for each destination have reached their maximum number."""


@log_event("error", "a command of a beanstalkd client failed")
def beanstalk_command_failed(*, failure: Failure) -> None:
    """A defect of the broker; the client gets INTERNAL_ERROR."""


@log_event("info", "{peer} {direction} {command} {headers} {bytes} bytes")
def frame(
    *,
    peer: str,
    direction: str,
    command: str,
    headers: str,
    bytes: int,
    destination: str = "",
) -> None:
    """A frame, with ``--log-frames``.

    ``direction`` is ``<`` from a client and ``>`` to a client. ``headers`` is a JSON object, in
    which secrets are masked and long values are cut. ``bytes`` is the size of the body.
    """
