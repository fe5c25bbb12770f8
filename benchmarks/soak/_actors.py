"""The lasting clients: producers, and consumers that come and go."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from http.client import HTTPException
from threading import Event, Thread
from typing import Final, NamedTuple

from benchmarks._client import RefusedError, number_of
from benchmarks.soak._ledger import Lane, Mistakes
from benchmarks.soak._samples import Admin
from benchmarks.soak._sessions import Session
from stompkit.frames import Frame

__all__ = ["Actor", "Consumer", "Mover", "Pace", "Producer", "Rejecter", "Service", "World"]

#: SENDs without their receipt at a time.
_WINDOW: Final = 100
#: A schedule that is late by more than this many seconds restarts, so that there is no burst.
_BEHIND_S: Final = 1.0
_BODY_BYTES: Final = 200


class World:
    """The broker, and the common state of the run."""

    def __init__(self, port: int, admin: Admin, websocket_port: int, beanstalk_port: int) -> None:
        """Set the ports; 0 for those that do not exist."""
        self.port = port
        self.admin = admin
        self.websocket_port = websocket_port
        self.beanstalk_port = beanstalk_port
        self.mistakes = Mistakes()
        #: Set when no new message is to be sent.
        self.is_closing = Event()
        #: Set when consumers are to stop.
        self.is_over = Event()


class Actor(Thread):
    """A user of the broker; an error of it ends the run."""

    def __init__(self, world: World, name: str) -> None:
        """Prepare; nothing runs before :meth:`start`."""
        super().__init__(name=name, daemon=True)
        self.world = world
        self.random = random.Random(name)
        self.sessions = 0

    def run(self) -> None:
        """Act, and record an error that ends it."""
        try:
            self.act()
        except (RefusedError, OSError, HTTPException, ValueError, KeyError) as error:
            self.world.mistakes.add("broken", f"{self.name}: {error!r:.300}")
            self.world.is_closing.set()

    def act(self) -> None:
        """Run its actions."""
        raise NotImplementedError


class Pace:
    """Paces an action at an average rate with random intervals."""

    def __init__(self, per_s: float) -> None:
        """Start now."""
        self._interval_s = 1 / per_s
        self._due = time.monotonic()

    def wait(self, end: Event) -> bool:
        """Wait for the next time; return False once *end* is set."""
        now = time.monotonic()
        self._due = max(self._due + self._interval_s, now - _BEHIND_S)
        return not end.wait(max(0.0, self._due - now))


class Producer(Actor):
    """Sends numbered messages at a steady rate, each with a receipt, or in transactions."""

    def __init__(
        self,
        world: World,
        destination: str,
        lanes: Sequence[Lane],
        per_s: float,
        *,
        headers: Callable[[int], dict[str, str]] = lambda _: {},
        in_transactions: bool = False,
    ) -> None:
        """Prepare; each message has to arrive on all ``lanes``, whose numbers are the same."""
        super().__init__(world, f"producer of {destination}")
        self._destination = destination
        self._lanes = lanes
        self._per_s = per_s
        self._headers = headers
        self._in_transactions = in_transactions

    def act(self) -> None:
        """Send until the run is closing, with a new connection now and then."""
        while not self.world.is_closing.is_set():
            self.sessions += 1
            stay = self.random.randint(200, 2_000)
            with Session(self.world.port) as session:
                if self._in_transactions:
                    self._send_in_transactions(session, max(1, stay // 20))
                else:
                    self._send(session, stay)

    def _next(self) -> int:
        first, *others = (lane.next() for lane in self._lanes)
        assert all(number == first for number in others)
        return first

    def _frame(self, session: Session, number: int, **more: str) -> None:
        headers = {"destination": self._destination, **self._headers(number), **more}
        receipt = "" if "transaction" in more else str(number)
        body = (b"%08d" % number).ljust(_BODY_BYTES, b"x")
        session.send_frame("SEND", headers, body, receipt=receipt)

    def _note(self, numbers: Sequence[int]) -> None:
        for lane in self._lanes:
            for number in numbers:
                lane.is_kept(number)

    def _send(self, session: Session, stay: int) -> None:
        pace = Pace(self._per_s)
        for _ in range(stay):
            if not pace.wait(self.world.is_closing):
                break
            self._frame(session, self._next())
            session.poll(0.0)
            session.confirm(_WINDOW)
            self._note([int(receipt) for receipt in session.receipts()])
        session.confirm()
        self._note([int(receipt) for receipt in session.receipts()])
        session.disconnect()

    def _send_in_transactions(self, session: Session, stay: int) -> None:
        """Send five messages in each transaction; some are aborted, or end with the connection."""
        pace = Pace(self._per_s / 5)
        for each in range(stay):
            if not pace.wait(self.world.is_closing):
                break
            name, numbers = f"t{each}", [self._next() for _ in range(5)]
            session.send_frame("BEGIN", {"transaction": name})
            ending = self.random.random()
            if ending < 0.2:
                # Before the first SEND: an uncommitted message must never arrive, not even for a
                # moment.
                for lane in self._lanes:
                    for number in numbers:
                        lane.is_void(number)
            for number in numbers:
                self._frame(session, number, transaction=name)
            if ending < 0.1:
                return
            if ending < 0.2:
                session.call("ABORT", {"transaction": name})
            else:
                session.call("COMMIT", {"transaction": name})
                self._note(numbers)
        session.disconnect()


class Visit(NamedTuple):
    """The state of a consumer during one connection."""

    session: Session
    held: deque[Frame]
    """Its unacknowledged messages."""


class Consumer(Actor):
    """Consumes messages, comes and goes, and leaves some unacknowledged for redelivery."""

    def __init__(
        self,
        world: World,
        source: str,
        lane: Lane,
        *,
        ack: str = "client-individual",
        pause_s: float = 0.0,
        rejects: bool = False,
        leaves: bool = True,
        subscribe: dict[str, str] | None = None,
        check: Callable[[int, Frame], str | None] = lambda *_: None,
        number: int = 1,
    ) -> None:
        """Prepare; ``check`` describes a fault of a message, if any; ``pause_s`` is work."""
        super().__init__(world, f"consumer {number} of {source}")
        self._lane = lane
        self._ack = ack
        self._pause_s = pause_s
        self._rejects = rejects
        self._leaves = leaves
        self._subscribe = {"id": "1", "destination": source, "ack": ack} | (subscribe or {})
        self._check = check
        #: Set after the first subscription.
        self.is_there = Event()

    def act(self) -> None:
        """Come and go until the run is over."""
        while not self.world.is_over.is_set():
            self.sessions += 1
            with Session(self.world.port) as session:
                session.call("SUBSCRIBE", self._subscribe)
                self.is_there.set()
                if self._ack == "auto":
                    self._take_auto(session)
                else:
                    self._take(session)
                self._leave(session)

    def _seen(self, frame: Frame) -> int:
        number, is_redelivered = number_of(frame), frame.headers.get("redelivered") == "true"
        self._lane.has_come(number, is_redelivered=is_redelivered)
        wrong = self._check(number, frame)
        if wrong is not None:
            self.world.mistakes.add("strays", f"{self._lane.name}: {number} {wrong}")
        return number

    def _take_auto(self, session: Session) -> None:
        """Consume in the mode auto; a consumer that leaves loses its unread messages."""
        while not self.world.is_over.is_set():
            frame = session.message()
            if frame is not None:
                self._lane.is_settled(self._seen(frame))

    def _take(self, session: Session) -> None:
        stay = self.random.randint(50, 500) if self._leaves else None
        keeps = self.random.randint(0, 5) if self._leaves else 0
        held: list[tuple[int, Frame]] = []
        while not self.world.is_over.is_set() and (stay is None or stay > 0):
            frame = session.message()
            self._settle(session)
            if frame is None:
                if self.world.is_closing.is_set() and stay is not None:
                    stay -= 5  # other consumers' unacknowledged messages must return, too
                continue
            number = self._seen(frame)
            stay = None if stay is None else stay - 1
            if self._pause_s:
                self.world.is_over.wait(self._pause_s)
            is_first = "delivery-count" not in frame.headers
            if self._rejects and is_first and number % 50 == 7:
                session.send_frame("NACK", {"id": frame.headers["ack"]})
                continue
            held.append((number, frame))
            if self._ack == "client" and len(held) < 10 and session.messages:
                continue
            if stay is not None and stay <= keeps and not self.world.is_closing.is_set():
                continue
            self._acknowledge(session, held)
        if self.world.is_closing.is_set():
            self._acknowledge(session, held)
        session.confirm()
        self._settle(session)

    def _acknowledge(self, session: Session, held: list[tuple[int, Frame]]) -> None:
        """Acknowledge all held messages; the receipt header contains their numbers."""
        if self._ack == "client" and held:
            numbers = ",".join(str(number) for number, _ in held)
            session.send_frame("ACK", {"id": held[-1][1].headers["ack"]}, receipt=numbers)
        elif held:
            for number, frame in held:
                session.send_frame("ACK", {"id": frame.headers["ack"]}, receipt=str(number))
        held.clear()

    def _settle(self, session: Session) -> None:
        for receipt in session.receipts():
            if not receipt.startswith("call-"):
                for number in receipt.split(","):
                    self._lane.is_settled(int(number))

    def _leave(self, session: Session) -> None:
        """Disconnect in a random way; each returns the held messages to the queue."""
        way = self.random.randrange(3)
        if way == 0:
            session.call("UNSUBSCRIBE", {"id": "1"})
        if way < 2:
            session.disconnect()


class Mover(Actor):
    """Moves messages from a queue to another, in transactions; each has to arrive once."""

    def __init__(self, world: World, source: str, target: str, lanes: tuple[Lane, Lane]) -> None:
        """Prepare; ``lanes`` are those of the source and of the target, with the same numbers."""
        super().__init__(world, f"mover from {source} to {target}")
        self._source = source
        self._target = target
        self._from, self._to = lanes

    def act(self) -> None:
        """Move until the run is over."""
        while not self.world.is_over.is_set():
            self.sessions += 1
            with Session(self.world.port) as session:
                headers = {"id": "1", "destination": self._source, "ack": "client-individual"}
                session.call("SUBSCRIBE", headers | {"prefetch-count": "20"})
                for each in range(self.random.randint(20, 200)):
                    if self.world.is_over.is_set() or not self._move(session, f"t{each}"):
                        break

    def _move(self, session: Session, name: str) -> bool:
        """Move up to five messages; return False if the connection was cut in the middle."""
        frames = [frame for _ in range(5) if (frame := session.message()) is not None]
        numbers = [number_of(frame) for frame in frames]
        for number, frame in zip(numbers, frames, strict=True):
            is_redelivered = frame.headers.get("redelivered") == "true"
            self._from.has_come(number, is_redelivered=is_redelivered)
        if not frames:
            return True
        ending = 1.0 if self.world.is_closing.is_set() else self.random.random()
        if ending < 0.1:
            self._fill(session, f"aborted-{name}", numbers, frames)
            session.call("ABORT", {"transaction": f"aborted-{name}"})
        elif ending < 0.2:
            self._fill(session, name, numbers, frames)
            return False
        for number in numbers:
            self._to.is_sent(number)
        self._fill(session, name, numbers, frames)
        session.call("COMMIT", {"transaction": name})
        for number in numbers:
            self._to.is_kept(number)
            self._from.is_settled(number)
        return True

    def _fill(
        self, session: Session, name: str, numbers: Sequence[int], frames: Sequence[Frame]
    ) -> None:
        """Send the frames of a transaction except the last."""
        session.send_frame("BEGIN", {"transaction": name})
        for number, frame in zip(numbers, frames, strict=True):
            session.send_frame("ACK", {"id": frame.headers["ack"], "transaction": name})
            headers = {"destination": self._target, "transaction": name}
            session.send_frame("SEND", headers, b"%08d" % number)


class Rejecter(Actor):
    """Rejects every message of a queue repeatedly, and counts the deliveries."""

    def __init__(self, world: World, source: str) -> None:
        """Start without rejections."""
        super().__init__(world, f"rejecter of {source}")
        self._source = source

    def act(self) -> None:
        """Reject until the run is over."""
        deliveries: dict[int, int] = {}
        self.sessions = 1
        with Session(self.world.port) as session:
            headers = {"id": "1", "destination": self._source, "ack": "client-individual"}
            session.call("SUBSCRIBE", headers)
            while not self.world.is_over.is_set():
                frame = session.message()
                if frame is None:
                    continue
                number = number_of(frame)
                counted = deliveries.get(number, 0) + 1
                if int(frame.headers.get("delivery-count", "1")) != counted:
                    text = f"{self._source}: {number} has another count than {counted}"
                    self.world.mistakes.add("doubled", text)
                deliveries[number] = counted
                if counted == 3:
                    del deliveries[number]
                session.send_frame("NACK", {"id": frame.headers["ack"]})


class Service(Actor):
    """Answers requests at their reply destination."""

    def __init__(self, world: World, source: str) -> None:
        """Start without requests."""
        super().__init__(world, f"service at {source}")
        self._source = source
        self.is_there = Event()

    def act(self) -> None:
        """Answer until the run is over."""
        self.sessions = 1
        with Session(self.world.port) as session:
            session.call("SUBSCRIBE", {"id": "1", "destination": self._source})
            self.is_there.set()
            while not self.world.is_over.is_set():
                frame = session.message()
                if frame is not None:
                    headers = {"destination": frame.headers["reply-to"]}
                    session.send_frame("SEND", headers, frame.body)
