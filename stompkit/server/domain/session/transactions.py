"""What a client has sent and acknowledged between BEGIN and COMMIT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stompkit.server.domain.errors import Refused
from stompkit.server.interfaces import Remove, Timer
from stompkit.server.settings.broker import BrokerConfig

if TYPE_CHECKING:
    from stompkit.server.domain.destinations import Destination
    from stompkit.server.domain.messages import Message
    from stompkit.server.domain.queues.references import MessageReference
    from stompkit.server.domain.session.subscriptions import Subscription

__all__ = ["MOST_SETTLED", "Acknowledged", "Settlement", "Transaction"]

#: Messages that one ACK or NACK settles at a time; with more, others are served in between.
MOST_SETTLED: Final = 500


class Settlement:
    """The entries of one ACK or NACK frame."""

    __slots__ = ("accepted", "entries", "requeue")

    def __init__(self, entries: list[MessageReference], *, accepted: bool, requeue: bool) -> None:
        """Keep what the frame said; ``requeue`` matters for a NACK only."""
        self.entries = entries
        self.accepted = accepted
        self.requeue = requeue


class Share:
    """What a transaction has acknowledged of one destination."""

    __slots__ = ("messages", "octets", "removals")

    def __init__(self) -> None:
        """Begin with nothing."""
        self.messages = 0
        self.octets = 0
        #: What the store has to do for it.
        self.removals: list[Remove] = []


class Acknowledged:
    """Messages of queues that a transaction has acknowledged, reckoned up before its COMMIT.

    They are gone together, however many they are; the rest of the work on each comes later.
    """

    __slots__ = ("entries", "shares")

    def __init__(self) -> None:
        """Begin with none."""
        self.entries: list[MessageReference] = []
        self.shares: dict[Destination, Share] = {}

    def add(self, entry: MessageReference) -> None:
        """Add a message that the transaction holds."""
        self.entries.append(entry)
        share = self.shares.get(entry.home)
        if share is None:
            share = self.shares[entry.home] = Share()
        share.messages += 1
        share.octets += entry.message.size
        lane = entry.lane
        if lane is not None and lane.number:
            share.removals.append(Remove(lane.number, entry.place))


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
        """Begin; ``config`` has the bounds."""
        self.name = name
        self.messages: list[Message] = []
        self.settlements: list[Settlement] = []
        self.octets = 0
        self.timer: Timer | None = None
        self._config = config
        self._frames = 0
        #: Subscriptions that can take as many more as the transaction has acknowledged for them.
        self._freed: list[tuple[Subscription, int]] = []

    def send(self, message: Message, others: int) -> None:
        """Add a SEND; raises :class:`Refused` past the bounds.

        ``others`` is what the other open transactions of the connection hold, in octets.
        """
        self._count()
        self.octets += message.size
        most = self._config.max_transaction_bytes
        if self.octets + others > most:
            raise Refused(
                f"transaction {self.name[:100]!a} is too large: at most {most} octets in all open"
                " ones of a connection",
                "transaction-too-large",
            )
        self.messages.append(message)

    def settle(self, settlement: Settlement) -> None:
        """Add an ACK or NACK, and keep its entries from being settled otherwise."""
        self._count()
        self.settlements.append(settlement)
        for entry in settlement.entries:
            entry.holder = self

    def free(self, subscription: Subscription, count: int) -> None:
        """Let a subscription take more while the transaction holds what it has acknowledged."""
        if subscription.is_over:
            return
        subscription.room += count
        self._freed.append((subscription, count))

    def split(self) -> tuple[list[Settlement], list[Settlement]]:
        """Return what was acknowledged of queues, if that is very much, and the rest."""
        many: list[Settlement] = []
        rest: list[Settlement] = []
        for each in self.settlements:
            is_one = each.accepted and each.entries and each.entries[0].home.is_queue
            (many if is_one else rest).append(each)
        if sum(len(each.entries) for each in many) <= MOST_SETTLED:
            return [], self.settlements
        return many, rest

    def release(self) -> None:
        """Give the entries up again: they wait for ACK as before (1.2, "ABORT")."""
        for subscription, count in self._freed:
            subscription.room -= count
        self._freed.clear()
        for settlement in self.settlements:
            for entry in settlement.entries:
                entry.holder = None

    def _count(self) -> None:
        self._frames += 1
        if self._frames > self._config.max_transaction_frames:
            raise Refused(
                f"transaction {self.name[:100]!a} has too many frames: at most"
                f" {self._config.max_transaction_frames}",
                "transaction-too-large",
            )
