"""What a client has sent and acknowledged between BEGIN and COMMIT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompkit.server._config import BrokerConfig
from stompkit.server._errors import Refused

if TYPE_CHECKING:
    from stompkit.server._destinations import Entry
    from stompkit.server._messages import Message

__all__ = ["Settlement", "Transaction"]


class Settlement:
    """The entries of one ACK or NACK frame."""

    __slots__ = ("accepted", "entries", "requeue")

    def __init__(self, entries: list[Entry], *, accepted: bool, requeue: bool) -> None:
        """Keep what the frame said; ``requeue`` matters for a NACK only."""
        self.entries = entries
        self.accepted = accepted
        self.requeue = requeue


class Transaction:
    """Frames that take effect together or not at all (1.2, "BEGIN")."""

    __slots__ = ("_config", "_frames", "_octets", "messages", "name", "settlements")

    def __init__(self, name: str, config: BrokerConfig) -> None:
        """Begin; ``config`` has the bounds."""
        self.name = name
        self.messages: list[Message] = []
        self.settlements: list[Settlement] = []
        self._config = config
        self._frames = 0
        self._octets = 0

    def send(self, message: Message) -> None:
        """Add a SEND; raises :class:`Refused` past the bounds."""
        self._count(message.size)
        self.messages.append(message)

    def settle(self, settlement: Settlement) -> None:
        """Add an ACK or NACK, and keep its entries from being settled otherwise."""
        self._count(0)
        self.settlements.append(settlement)
        for entry in settlement.entries:
            entry.holder = self

    def release(self) -> None:
        """Give the entries up again: they wait for ACK as before (1.2, "ABORT")."""
        for settlement in self.settlements:
            for entry in settlement.entries:
                entry.holder = None

    def _count(self, size: int) -> None:
        self._frames += 1
        self._octets += size
        if self._frames > self._config.max_transaction_frames:
            raise Refused(
                f"transaction {self.name[:100]!a} has too many frames: at most"
                f" {self._config.max_transaction_frames}",
                "transaction-too-large",
            )
        if self._octets > self._config.max_transaction_bytes:
            raise Refused(
                f"transaction {self.name[:100]!a} is too large: at most"
                f" {self._config.max_transaction_bytes} octets",
                "transaction-too-large",
            )
