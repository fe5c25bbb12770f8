"""The table of commands: the sender, the required headers and whether a body is allowed."""

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
    """The rules that the specifications give for one command."""

    name: str
    sender: Role
    #: Required headers by version, for the versions that define the command. One of several
    #: alternative names is sufficient.
    required: dict[Version, tuple[_Alternatives, ...]]
    #: True if the frame may carry a body ("Body"; 1.0 only describes each command).
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

# The session checks CONNECT's own headers. The meaning of a missing accept-version depends on the
# session. A client must send host only if its accept-version includes a version above 1.0.
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
