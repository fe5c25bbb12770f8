"""The one table of commands: who sends each, what it needs, whether it may have a body."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from stompkit.frames._grammar import Version

__all__ = ["COMMANDS", "Command", "Role"]


class Role(Enum):
    """The two ends of a STOMP connection."""

    CLIENT = "client"
    SERVER = "server"


#: Header names of which a frame needs at least one.
_Alternatives = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """What the specifications say of one command."""

    name: str
    sender: Role
    #: The versions that define it, each with the headers that it requires. An entry of several
    #: names is satisfied by any one of them.
    required: dict[Version, tuple[_Alternatives, ...]]
    #: Whether the frame may carry a body ("Body"; 1.0 has only the word of each command).
    body: bool = False
    #: The method of a session's owner that a frame of this command is handed to.
    handler: str = ""


def _row(
    name: str,
    sender: Role,
    v1_0: str | None,
    v1_1: str | None,
    v1_2: str | None,
    *,
    body: bool = False,
    handler: str = "",
) -> Command:
    """Build a row: required headers by version, blank-separated, ``a|b`` for either of two.

    ``None`` says that the version does not have the command.
    """
    texts: dict[Version, str | None] = {"1.0": v1_0, "1.1": v1_1, "1.2": v1_2}
    required = {
        version: tuple(tuple(entry.split("|")) for entry in text.split())
        for version, text in texts.items()
        if text is not None
    }
    return Command(name, sender, required, body, handler or "on_" + name.lower())


_C, _S = Role.CLIENT, Role.SERVER

# CONNECT's own headers are left to the session: what a missing accept-version means depends on
# it, and host is required of clients only where the server is not told by accept-version that
# the client knows no better.
COMMANDS: Final[dict[str, Command]] = {
    row.name: row
    for row in (
        _row("CONNECT", _C, "", "", ""),
        _row("STOMP", _C, None, "", "", handler="on_connect"),
        _row("SEND", _C, "destination", "destination", "destination", body=True),
        _row("SUBSCRIBE", _C, "destination", "destination id", "destination id"),
        _row("UNSUBSCRIBE", _C, "destination|id", "id", "id"),
        _row("ACK", _C, "message-id", "message-id subscription", "id"),
        _row("NACK", _C, None, "message-id subscription", "id"),
        _row("BEGIN", _C, "transaction", "transaction", "transaction"),
        _row("COMMIT", _C, "transaction", "transaction", "transaction"),
        _row("ABORT", _C, "transaction", "transaction", "transaction"),
        _row("DISCONNECT", _C, "", "", ""),
        _row("CONNECTED", _S, "session", "version", "version"),
        _row(
            "MESSAGE",
            _S,
            "destination message-id",
            "destination message-id subscription",
            "destination message-id subscription",
            body=True,
        ),
        _row("RECEIPT", _S, "receipt-id", "receipt-id", "receipt-id"),
        _row("ERROR", _S, "", "", "", body=True),
    )
}
