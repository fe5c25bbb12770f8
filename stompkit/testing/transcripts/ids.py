"""Headers that contain ids, and the mapping of recorded ids to those of a replay."""

from __future__ import annotations

from typing import Final

from stompkit.frames import Frame

__all__ = ["Ids", "id_kind"]

#: Kind of id in a header, for headers that are the same in all commands.
_KINDS: Final = {
    "message-id": "message-id",
    "receipt": "receipt",
    "receipt-id": "receipt",
    "session": "session",
    "subscription": "subscription",
    "transaction": "transaction",
}
#: Kind of id in a header, for headers whose meaning depends on the command.
_KINDS_BY_COMMAND: Final = {
    ("SUBSCRIBE", "id"): "subscription",
    ("UNSUBSCRIBE", "id"): "subscription",
    ("ACK", "id"): "ack",
    ("NACK", "id"): "ack",
    ("MESSAGE", "ack"): "ack",
}
#: The frame with a destination that the broker generates, and the frame in which clients use it.
_DESTINATIONS: Final = frozenset({("MESSAGE", "reply-to"), ("SEND", "destination")})
#: Headers that define an id; all others refer to one.
_GIVEN: Final = frozenset(
    {("SUBSCRIBE", "id"), ("BEGIN", "transaction"), ("CONNECTED", "session")}
    | {("MESSAGE", name) for name in ("message-id", "ack", "subscription", "reply-to")}
)


def id_kind(command: str, name: str) -> str | None:
    """Return the kind of id in a header; ``None`` for a header without an id."""
    return _KINDS_BY_COMMAND.get((command, name)) or _KINDS.get(name)


class Ids:
    """The recorded ids of one connection, mapped to those of its replay."""

    def __init__(self) -> None:
        """Start empty."""
        self._new: dict[tuple[str, str], str] = {}

    def learn(self, recorded: Frame, actual: Frame) -> None:
        """Learn the ids from the peer's frame that corresponds to a recorded one."""
        for name, old in recorded.headers.items():
            kind = _kind(recorded.command, name)
            new = actual.headers.get(name)
            if kind is None or new is None:
                continue
            if name == "receipt" or (recorded.command, name) in _GIVEN:
                self._new[kind, old] = new

    def translated(self, recorded: Frame) -> Frame:
        """Return a recorded frame with the ids of the replay."""
        headers = {
            name: self.value(recorded.command, name, old) for name, old in recorded.headers.items()
        }
        return Frame(recorded.command, headers, recorded.body, recorded.repeated)

    def value(self, command: str, name: str, old: str) -> str:
        """Return the value of one recorded header with the ids of the replay."""
        kind = _kind(command, name)
        if kind is None:
            return old
        new = self._new.get((kind, old))
        if new is None and kind == "ack":
            # Some brokers accept the message-id as an ack id.
            new = self._new.get(("message-id", old))
        return old if new is None else new


def _kind(command: str, name: str) -> str | None:
    return "destination" if (command, name) in _DESTINATIONS else id_kind(command, name)
