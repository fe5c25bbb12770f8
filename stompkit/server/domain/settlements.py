"""Transactions: frames between BEGIN and COMMIT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from stompkit.server.domain.deliveries import DestinationBase, MessageReference, Subscription
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.messages import Message
from stompkit.server.interfaces import Remove, Timer
from stompkit.server.settings.broker import BrokerConfig

__all__ = ["MOST_SETTLED", "Acknowledged", "Settlement", "Transaction"]

#: Maximum number of messages that one ACK or NACK settles at once; larger ones are settled in
#: parts.
MOST_SETTLED: Final = 500


class Settlement:
    """The entries of one ACK or NACK frame."""

    __slots__ = ("accepted", "entries", "requeue")

    def __init__(self, entries: list[MessageReference], *, accepted: bool, requeue: bool) -> None:
        """Keep the content of the frame; ``requeue`` matters for a NACK only."""
        self.entries = entries
        self.accepted = accepted
        self.requeue = requeue


class Share:
    """Messages of one destination that a transaction has acknowledged."""

    __slots__ = ("messages", "octets", "removals")

    def __init__(self) -> None:
        """Start with zero."""
        self.messages = 0
        self.octets = 0
        #: Operations of the store for these messages.
        self.removals: list[Remove] = []


class Acknowledged:
    """Messages of queues that a transaction has acknowledged, summed up before its COMMIT.

    They are removed together, however many they are; the clean-up of each follows later.
    """

    __slots__ = ("entries", "finish", "shares")

    def __init__(self) -> None:
        """Start empty."""
        self.entries: list[MessageReference] = []
        self.shares: dict[DestinationBase, Share] = {}
        #: Completes the clean-up after the removal at once.
        self.finish: Callable[[], None] | None = None

    def add(self, entry: MessageReference) -> None:
        """Add a message that the transaction holds."""
        self.entries.append(entry)
        share = self.shares.get(entry.home)
        if share is None:
            share = self.shares[entry.home] = Share()
        share.messages += 1
        share.octets += entry.message.size
        sub_queue = entry.sub_queue
        if sub_queue is not None and sub_queue.number:
            share.removals.append(Remove(sub_queue.number, entry.place))


class Transaction:
    """Frames that take effect together or not at all (1.2, "BEGIN")."""

    __slots__ = (
        "_config",
        "_frames",
        "_freed",
        "messages",
        "name",
        "octets",
        "settlements",
        "timer",
    )

    def __init__(self, name: str, config: BrokerConfig) -> None:
        """Start empty; ``config`` has the limits."""
        self.name = name
        self.messages: list[Message] = []
        self.settlements: list[Settlement] = []
        self.octets = 0
        self.timer: Timer | None = None
        self._config = config
        self._frames = 0
        #: Subscriptions with the number of additional deliveries allowed by acknowledgements of the
        #: transaction.
        self._freed: list[tuple[Subscription, int]] = []

    def send(self, message: Message, others: int) -> None:
        """Add a SEND; raises :class:`RefusedError` beyond the limits.

        ``others`` is the number of bytes held by other open transactions of the connection.
        """
        self._count()
        self.octets += message.size
        most = self._config.max_transaction_bytes
        if self.octets + others > most:
            raise RefusedError(
                f"transaction {self.name[:100]!a} is too large: at most {most} octets in all open"
                " ones of a connection",
                "transaction-too-large",
            )
        self.messages.append(message)

    def end_delays(self, now: float) -> None:
        """Remove the delays that have passed since the messages were sent, before COMMIT."""
        for message in self.messages:
            message.end_delay(now)

    def settle(self, settlement: Settlement) -> None:
        """Add an ACK or NACK, and protect its entries from other settlements."""
        self._count()
        self.settlements.append(settlement)
        for entry in settlement.entries:
            entry.holder = self

    def free(self, subscription: Subscription, count: int) -> None:
        """Allow a subscription more deliveries while the transaction holds its acknowledgements."""
        if subscription.is_over:
            return
        subscription.room += count
        self._freed.append((subscription, count))

    def split(self) -> tuple[list[Settlement], list[Settlement]]:
        """Return acknowledgements of queues separately if they are very many, and the rest."""
        many: list[Settlement] = []
        rest: list[Settlement] = []
        for each in self.settlements:
            is_one = each.accepted and each.entries and each.entries[0].home.is_queue
            (many if is_one else rest).append(each)
        if sum(len(each.entries) for each in many) <= MOST_SETTLED:
            return [], self.settlements
        return many, rest

    def release(self) -> None:
        """Release the entries: they wait for ACK as before (1.2, "ABORT")."""
        for subscription, count in self._freed:
            subscription.room -= count
        self._freed.clear()
        for settlement in self.settlements:
            for entry in settlement.entries:
                entry.holder = None

    def _count(self) -> None:
        self._frames += 1
        if self._frames > self._config.max_transaction_frames:
            raise RefusedError(
                f"transaction {self.name[:100]!a} has too many frames: at most"
                f" {self._config.max_transaction_frames}",
                "transaction-too-large",
            )
