"""Allowed frames in each state of a STOMP connection, as one literal table.

The table applies to both ends. A row lists the commands that one role may send in one state, and
the state that each leads to. A command that is not in the row is a protocol error.
``docs/make_state_diagram.py`` draws it.

    OPENING         nothing has been sent
    CONNECTING      the client has sent CONNECT; the server has not answered
    CONNECTED       the server has answered CONNECTED
    DISCONNECTING   the client has sent DISCONNECT; the server may still answer
    FAILED          the server has sent ERROR, and closes (1.2, "ERROR")
    CLOSED          the stream has ended
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from stompkit.frames._commands import Role

__all__ = ["TRANSITIONS", "State"]


class State(Enum):
    """State of a connection; see the module docstring."""

    OPENING = "opening"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    DISCONNECTING = "disconnecting"
    FAILED = "failed"
    CLOSED = "closed"


_CLIENT, _SERVER = Role.CLIENT, Role.SERVER

TRANSITIONS: Final[dict[tuple[Role, State], dict[str, State]]] = {
    (_CLIENT, State.OPENING): {"CONNECT": State.CONNECTING, "STOMP": State.CONNECTING},
    (_SERVER, State.OPENING): {"ERROR": State.FAILED},
    (_CLIENT, State.CONNECTING): {},
    (_SERVER, State.CONNECTING): {"CONNECTED": State.CONNECTED, "ERROR": State.FAILED},
    (_CLIENT, State.CONNECTED): {
        "SEND": State.CONNECTED,
        "SUBSCRIBE": State.CONNECTED,
        "UNSUBSCRIBE": State.CONNECTED,
        "ACK": State.CONNECTED,
        "NACK": State.CONNECTED,
        "BEGIN": State.CONNECTED,
        "COMMIT": State.CONNECTED,
        "ABORT": State.CONNECTED,
        "DISCONNECT": State.DISCONNECTING,
    },
    (_SERVER, State.CONNECTED): {
        "MESSAGE": State.CONNECTED,
        "RECEIPT": State.CONNECTED,
        "ERROR": State.FAILED,
    },
    (_CLIENT, State.DISCONNECTING): {},
    (_SERVER, State.DISCONNECTING): {
        "MESSAGE": State.DISCONNECTING,
        "RECEIPT": State.DISCONNECTING,
        "ERROR": State.FAILED,
    },
    (_CLIENT, State.FAILED): {},
    (_SERVER, State.FAILED): {},
    (_CLIENT, State.CLOSED): {},
    (_SERVER, State.CLOSED): {},
}
