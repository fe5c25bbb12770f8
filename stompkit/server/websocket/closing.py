"""Close codes of WebSockets (RFC 6455, section 7.4)."""

from __future__ import annotations

from typing import Final

from wsproto.events import CloseConnection
from wsproto.frame_protocol import CloseReason

from stompkit.frames import RemoteProtocolError

__all__ = ["goodbye"]

#: "Try Again Later", which wsproto does not define.
_TRY_AGAIN_LATER: Final = 1013
#: WebSocket close codes, by the code of the preceding ERROR frame; see also below.
_CLOSE_CODES: Final[dict[str, int]] = {
    "shutting-down": CloseReason.GOING_AWAY,
    "too-many-connections": _TRY_AGAIN_LATER,
    "header-too-large": CloseReason.MESSAGE_TOO_BIG,
    "too-many-headers": CloseReason.MESSAGE_TOO_BIG,
    "frame-too-large": CloseReason.MESSAGE_TOO_BIG,
    "store-failed": CloseReason.INTERNAL_ERROR,
    "store-full": CloseReason.INTERNAL_ERROR,
}
#: Codes of errors for input that is not STOMP.
_NOT_STOMP: Final = frozenset(
    {
        "wrong-protocol",
        "unknown-command",
        "unexpected-frame",
        "missing-header",
        "bad-header",
        "bad-escape",
        "bad-utf8",
        "bare-cr",
        "raw-colon",
        "bad-content-length",
        "bad-frame-start",
        "body-not-allowed",
        "truncated",
        "bad-heart-beat",
        "no-common-version",
    }
)


def goodbye(failure: RemoteProtocolError | None) -> CloseConnection:
    """Return the close frame that follows the ERROR frame of a failure, or a normal one."""
    if failure is None:
        return CloseConnection(CloseReason.NORMAL_CLOSURE)
    is_stomp = failure.code not in _NOT_STOMP
    other = CloseReason.POLICY_VIOLATION if is_stomp else CloseReason.PROTOCOL_ERROR
    return CloseConnection(_CLOSE_CODES.get(failure.code, other), failure.message)
