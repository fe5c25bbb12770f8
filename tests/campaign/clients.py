"""Clients: producers, and consumers that acknowledge.

Each has its own generator of random numbers, which chooses among the usual actions: windows of
receipts, transactions that are committed and aborted, acknowledgements with and without receipt, in
time or late, and disconnects, graceful or not. A client that has lost its connection reconnects.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from stompkit.frames import Frame
from tests.campaign.recorder import Recorder, body_of
from tests.campaign.wire import Address, Wire

__all__ = ["Client", "Consumer", "Habits", "Producer", "World"]

#: Longest time in seconds that a client waits for an answer before it drops the connection.
_PATIENCE_S: Final = 1.5
#: Longest time in seconds that a client waits before it reconnects.
_LONGEST_PAUSE_S: Final = 0.05
_BYE: Final = "bye"


class World(Protocol):
    """The environment of clients."""

    recorder: Recorder

    def address(self) -> Address:
        """Return an address on which a broker may listen."""

    def life(self, address: Address, session: str) -> int:
        """Return the life of the broker that has accepted this session at this address."""

    def wants_more(self) -> bool:
        """Return True if more messages are to be sent."""

    def watch(self, client: Client) -> None:
        """Start to poll the client's connection for input."""

    def unwatch(self, client: Client) -> None:
        """Stop polling the client's connection."""


class Client:
    """The common part of all clients: connect, send, receive receipts, disconnect and reconnect."""

    #: The place from which it consumes in the mode auto.
    auto = ""

    def __init__(self, world: World, name: str, chance: random.Random) -> None:
        """Start without a connection."""
        self.name = name
        self.chance = chance
        self.wire: Wire | None = None
        #: The number of the connection; 0 until the broker has answered CONNECTED.
        self.connection = 0
        self.is_leaving = False
        self.has_ended = False
        self._world = world
        self._recorder = world.recorder
        self._address: Address = ("", 0)
        self._asked: dict[str, int] = {}
        self._last_receipt = 0
        self._next_try = 0.0
        self._heard = 0.0
        self._headers: dict[str, str] = {}

    # Hooks of the subclasses.

    def let_in(self) -> None:
        """Run the first actions on a new connection."""

    def act(self) -> None:
        """Run the actions that are due."""

    def message(self, frame: Frame) -> None:
        """Process a message."""

    def forget(self) -> None:
        """Discard the state that ends with the connection."""

    # The connection.

    def work(self, now: float) -> None:
        """Do everything that is possible now without blocking."""
        if self.wire is None:
            if not self.has_ended and now >= self._next_try:
                self._connect(now)
            return
        self.hear(now)
        if self.wire is not None:
            self._go_on(now)

    def _go_on(self, now: float) -> None:
        assert self.wire is not None
        if not (self._asked or self.is_leaving) and self.connection:
            self._heard = now
        elif now - self._heard > _PATIENCE_S:
            self.lose(now)
            return
        if self.connection and not self.is_leaving:
            self.act()
        if self.wire is not None:
            self.wire.write()

    def hear(self, now: float) -> None:
        """Process the frames that have been received."""
        for frame in self.wire.take() if self.wire is not None else ():
            self._heard = now
            self._take(frame, now)
            if self.wire is None:
                return
        if self.wire is not None and self.wire.is_over:
            self.lose(now)

    def _connect(self, now: float) -> None:
        self._heard = now
        self._address = self._world.address()
        self.wire = Wire(self._address, self._headers)
        self._world.watch(self)
        self.wire.write()

    def _take(self, frame: Frame, now: float) -> None:
        if frame.command == "MESSAGE":
            self.message(frame)
        elif frame.command == "RECEIPT":
            self._receipt(frame.headers["receipt-id"], now)
        elif frame.command == "CONNECTED":
            life = self._world.life(self._address, frame.headers["session"])
            self.connection = self._recorder.opened(self.name, life, self.auto)
            self.let_in()
        elif frame.command == "ERROR":
            asked = self._asked.pop(frame.headers.get("receipt-id", ""), None)
            code = frame.headers.get("stompkit-code", "")
            if asked is not None:
                self._recorder.was_refused(asked, code)
                self.refused(asked, code)
            self.lose(now)

    def _receipt(self, receipt: str, now: float) -> None:
        if receipt == _BYE:
            self._over(now, is_clean=True)
            return
        asked = self._asked.pop(receipt)
        self._recorder.done(asked)
        self.done(asked)

    def done(self, operation: int) -> None:
        """Handle the receipt of an operation."""

    def refused(self, operation: int, code: str) -> None:
        """Handle the ERROR for an operation."""

    def receipt_for(self, operation: int) -> dict[str, str]:
        """Return the header that asks for a receipt."""
        self._last_receipt += 1
        receipt = str(self._last_receipt)
        self._asked[receipt] = operation
        return {"receipt": receipt}

    def send(self, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        """Send a frame."""
        assert self.wire is not None
        self.wire.send(command, headers, body)

    @property
    def open_requests(self) -> int:
        """Number of receipts that are awaited."""
        return len(self._asked)

    def leave(self) -> None:
        """Disconnect gracefully."""
        if self.connection and not self.is_leaving:
            self.is_leaving = True
            self.send("DISCONNECT", {"receipt": _BYE})

    def lose(self, now: float, *, reset: bool = False) -> None:
        """Drop the connection with all operations in progress."""
        if self.wire is not None:
            self._over(now, is_clean=False, reset=reset)

    def _over(self, now: float, *, is_clean: bool, reset: bool = False) -> None:
        assert self.wire is not None
        self._world.unwatch(self)
        self.wire.close(reset=reset)
        self.wire = None
        if self.connection:
            self._recorder.closed(self.connection, is_clean=is_clean)
        self.connection = 0
        self.is_leaving = False
        self._asked.clear()
        self._next_try = now + self.chance.random() * _LONGEST_PAUSE_S
        self.forget()

    def may_go(self, probability: float) -> None:
        """Disconnect now and then, gracefully or not."""
        if self.chance.random() < probability:
            if self.chance.random() < 0.5:
                self.leave()
            else:
                self.lose(self._heard, reset=self.chance.random() < 0.5)


class Producer(Client):
    """Sends numbered messages, with a receipt for each message or transaction."""

    def __init__(
        self,
        world: World,
        name: str,
        chance: random.Random,
        *,
        window: int,
        targets: Sequence[str],
        lasting: Sequence[str],
    ) -> None:
        """Send to ``targets``; transactions send to ``lasting`` ones."""
        super().__init__(world, name, chance)
        self._window = window
        self._targets = targets
        self._lasting = lasting
        self._last_transaction = 0

    def act(self) -> None:
        """Send as much as the window allows."""
        while (
            self.open_requests < self._window
            and self._world.wants_more()
            and self.connection
            and not self.is_leaving
        ):
            draw = self.chance.random()
            if draw < 0.06:
                self._send_several()
            else:
                self._send_one()
            self.may_go(0.001)

    def _send_one(self) -> None:
        message = self._recorder.new_message()
        destination = self.chance.choice(self._targets)
        asked = self._recorder.asked(self.connection, sends=[(message, destination)])
        headers = {"destination": destination, **self.receipt_for(asked)}
        self.send("SEND", headers, body_of(message))

    def _send_several(self) -> None:
        self._last_transaction += 1
        named = {"transaction": str(self._last_transaction)}
        count = self.chance.randint(2, 5)
        sends = [
            (self._recorder.new_message(), self.chance.choice(self._lasting)) for _ in range(count)
        ]
        self._recorder.staged(self.connection, [message for message, _ in sends])
        self.send("BEGIN", named)
        for message, destination in sends:
            self.send("SEND", {"destination": destination, **named}, body_of(message))
        draw = self.chance.random()
        if draw < 0.75:
            asked = self._recorder.asked(self.connection, sends=sends, is_transaction=True)
            self.send("COMMIT", {**named, **self.receipt_for(asked)})
        elif draw < 0.95:
            self.send("ABORT", named)
        # Otherwise it stays open until the connection ends.


@dataclass(frozen=True, kw_only=True)
class Habits:
    """The behaviour of a consumer."""

    mode: str
    prefetch: int
    #: Number of acknowledgements in one transaction; 0 for none.
    batch: int = 0
    #: Destination of the messages that these transactions send, one for each acknowledged message.
    answers: str = ""
    #: Probabilities: of acknowledging with a receipt, of NACK, of delaying an acknowledgement, and
    #: of disconnecting after one.
    confirms: float = 0.7
    rejects: float = 0.0
    holds: float = 0.1
    leaves: float = 0.005


class Consumer(Client):
    """Consumes from one place, and acknowledges the messages."""

    def __init__(
        self,
        world: World,
        name: str,
        chance: random.Random,
        habits: Habits,
        place: str,
        *,
        topic: str = "",
        gives_up: bool = False,
    ) -> None:
        """Read a queue, or a durable subscription of ``topic`` by the client's name.

        With ``gives_up`` it does not repeat a refused subscription.
        """
        super().__init__(world, name, chance)
        self._habits = habits
        self._place = place
        self._topic = topic
        self._gives_up = gives_up
        self._held: list[tuple[int, str]] = []
        self._fresh = 0
        self._last_transaction = 0
        if habits.mode == "auto":
            self.auto = place
        if topic:
            self._headers = {"client-id": name}

    def let_in(self) -> None:
        """Subscribe."""
        habits = self._habits
        headers = {"id": "0", "destination": self._topic or self._place, "ack": habits.mode}
        headers["prefetch-count"] = str(habits.prefetch)
        if self._topic:
            asked = self._recorder.asked(self.connection, durable=self._place)
            headers |= {"activemq.subscriptionName": "campaign", **self.receipt_for(asked)}
        self.send("SUBSCRIBE", headers)

    def refused(self, operation: int, code: str) -> None:
        """Stop for good if ``gives_up`` is set."""
        self.has_ended = self.has_ended or self._gives_up

    def forget(self) -> None:
        """Forget the unacknowledged messages, which the broker redelivers."""
        self._held.clear()
        self._fresh = 0

    def message(self, frame: Frame) -> None:
        """Record a message."""
        delivery = self._recorder.delivered(
            self.connection, self._place, frame, is_auto=bool(self.auto)
        )
        if not self.auto:
            self._held.append((delivery, frame.headers["ack"]))
            self._fresh += 1

    def act(self) -> None:
        """Acknowledge the messages that are due."""
        fresh, self._fresh = self._fresh, 0
        if self.auto:
            self.may_go(self._habits.leaves / 10)
        elif self._habits.batch:
            while len(self._held) >= self._habits.batch and self.connection:
                self._settle_batch()
        elif self._habits.mode == "client":
            self._settle_up_to()
        else:
            # Each delayed message gets a new chance whenever a message arrives.
            for delivery, name in list(self._held) if fresh else ():
                if self.connection and not self.is_leaving:
                    self._answer(delivery, name)

    def _answer(self, delivery: int, name: str) -> None:
        habits = self._habits
        if self.chance.random() < habits.holds:
            return
        self._held.remove((delivery, name))
        if self.chance.random() < habits.rejects:
            self._ask("NACK", name, rejects=[delivery])
        else:
            self._ask("ACK", name, settles=[delivery])
        self.may_go(habits.leaves)

    def _settle_up_to(self) -> None:
        """Acknowledge the older part of the deliveries, by the last of that part."""
        if not self._held or self.chance.random() < self._habits.holds:
            return
        count = self.chance.randint(1, len(self._held))
        done, self._held = self._held[:count], self._held[count:]
        self._ask("ACK", done[-1][1], settles=[delivery for delivery, _ in done])
        self.may_go(self._habits.leaves)

    def _ask(
        self, command: str, name: str, *, settles: Sequence[int] = (), rejects: Sequence[int] = ()
    ) -> None:
        asked = self._recorder.asked(self.connection, settles=settles, rejects=rejects)
        confirms = self.chance.random() < self._habits.confirms
        self.send(command, {"id": name, **(self.receipt_for(asked) if confirms else {})})

    def _settle_batch(self) -> None:
        """Acknowledge several messages in a transaction that sends one message for each."""
        habits = self._habits
        self._last_transaction += 1
        named = {"transaction": str(self._last_transaction)}
        batch, rest = self._held[: habits.batch], self._held[habits.batch :]
        sends = [(self._recorder.new_message(), habits.answers) for _ in batch if habits.answers]
        self.send("BEGIN", named)
        if sends:
            self._recorder.staged(self.connection, [message for message, _ in sends])
        for message, destination in sends:
            self.send("SEND", {"destination": destination, **named}, body_of(message))
        for _, name in batch:
            self.send("ACK", {"id": name, **named})
        if self.chance.random() < 0.85:
            asked = self._recorder.asked(
                self.connection,
                sends=sends,
                settles=[delivery for delivery, _ in batch],
                is_transaction=True,
            )
            self.send("COMMIT", {**named, **self.receipt_for(asked)})
            self._held = rest
        else:
            # After the abort they are unacknowledged again.
            self.send("ABORT", named)
        self.may_go(habits.leaves)
