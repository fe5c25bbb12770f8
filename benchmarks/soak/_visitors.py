"""Short connections of every kind, and observers."""

from __future__ import annotations

import socket
from collections.abc import Callable
from itertools import count
from typing import Final

from benchmarks._client import RefusedError, number_of
from benchmarks.soak._actors import Actor, Pace, World
from benchmarks.soak._sessions import PATIENCE_TICKS, BeanstalkSession, Session, WebSocketSession

__all__ = ["Listener", "Operator", "Visitor"]

_TRASH: Final = "/queue/soak.trash"
_BODY: Final = b"x" * 500


class Listener(Actor):
    """Subscribes to a pattern of topics for a while: all messages meanwhile arrive, in order."""

    def __init__(self, world: World, pattern: str) -> None:
        """Prepare; all matching messages are those of one producer."""
        super().__init__(world, f"listener to {pattern}")
        self._pattern = pattern

    def act(self) -> None:
        """Come and go until the run is closing."""
        while not self.world.is_closing.is_set():
            self.sessions += 1
            expected: int | None = None
            with Session(self.world.port) as session:
                session.call("SUBSCRIBE", {"id": "1", "destination": self._pattern})
                for _ in range(self.random.randint(10, 200)):
                    frame = session.message()
                    if self.world.is_closing.is_set():
                        break
                    if frame is None:
                        continue
                    number = number_of(frame)
                    if expected is not None and number != expected:
                        kind = "lost" if number > expected else "doubled"
                        text = f"{self._pattern}: {number} came, not {expected}"
                        self.world.mistakes.add(kind, text)
                    expected = number + 1


class Operator(Actor):
    """Uses the admin interface, and purges a queue without consumers."""

    def act(self) -> None:
        """Use it until the run is closing."""
        admin, pace = self.world.admin, Pace(2)
        while pace.wait(self.world.is_closing):
            self.sessions += 1
            admin.json("destinations?sort=ready&order=desc")
            admin.json("connections")
            with Session(self.world.port) as session:
                headers = {"destination": _TRASH}
                for _ in range(self.random.randint(1, 50)):
                    session.send_frame("SEND", headers, _BODY)
                session.call("SEND", headers, _BODY)
                session.disconnect()
            admin.json(f"messages?name={_TRASH}&limit=5")
            admin.post("purge", name=_TRASH)


class Visitor(Actor):
    """Opens short connections, each for one action."""

    def __init__(self, world: World, number: int, per_s: float) -> None:
        """Prepare for this many visits per second."""
        super().__init__(world, f"visitor {number}")
        self._per_s = per_s
        self._names = (f"{number}.{each}" for each in count(1))
        self._visits: list[Callable[[], None]] = [
            self._pass_by,
            self._be_refused,
            self._leave_in_the_middle,
            self._use_a_queue,
            self._ask,
            self._look,
            self._subscribe_durably,
        ]
        if world.websocket_port:
            self._visits.append(self._use_a_websocket)
        if world.beanstalk_port:
            self._visits.append(self._do_a_job)

    def act(self) -> None:
        """Come and go until the run is closing."""
        pace = Pace(self._per_s)
        while pace.wait(self.world.is_closing):
            self.sessions += 1
            self.random.choice(self._visits)()

    def _pass_by(self) -> None:
        """Connect, and close before sending anything."""
        socket.create_connection(("127.0.0.1", self.world.port)).close()

    def _be_refused(self) -> None:
        """Send bytes that are not STOMP."""
        with Session(self.world.port) as session:
            session.write(b"NONSENSE\n\n\0")
            try:
                for _ in range(PATIENCE_TICKS):
                    session.poll()
            except RefusedError:
                return
        raise TimeoutError("the ERROR never came")

    def _leave_in_the_middle(self) -> None:
        """Cut a connection with a transaction, a subscription and a temporary queue."""
        with Session(self.world.port) as session:
            queue = f"/queue/soak.middle.{next(self._names)}"
            session.call("SUBSCRIBE", {"id": "1", "destination": queue, "ack": "client"})
            session.call("SUBSCRIBE", {"id": "2", "destination": "/temp-queue/mine"})
            session.send_frame("BEGIN", {"transaction": "t"})
            session.send_frame("SEND", {"destination": queue, "transaction": "t"}, _BODY)

    def _use_a_queue(self) -> None:
        """Send to a separate queue, and consume from it."""
        with Session(self.world.port) as session:
            self._use(session)

    def _use_a_websocket(self) -> None:
        """Do the same over WebSocket; the message returns unchanged."""
        with WebSocketSession(self.world.websocket_port) as session:
            self._use(session)

    def _use(self, session: Session) -> None:
        name = next(self._names)
        headers = {"destination": f"/queue/soak.once.{name}"}
        session.call("SEND", headers, name.encode())
        session.call("SUBSCRIBE", {**headers, "id": "1", "ack": "client-individual"})
        self._expect(name.encode(), session.due_message().body)
        # It must be redelivered, in its old position, with its content unchanged.
        session.call("UNSUBSCRIBE", {"id": "1"})
        with Session(self.world.port) as other:
            other.call("SUBSCRIBE", {**headers, "id": "1", "ack": "client-individual"})
            session.close()
            frame = other.due_message()
            self._expect(name.encode(), frame.body)
            if frame.headers.get("redelivered") != "true":
                self.world.mistakes.add("doubled", f"{name} came again, not as redelivered")
            other.call("ACK", {"id": frame.headers["ack"]})

    def _expect(self, wanted: bytes, came: bytes) -> None:
        if came != wanted:
            self.world.mistakes.add("strays", f"{came!r:.100} came, not {wanted!r:.100}")

    def _ask(self) -> None:
        """Send a request with a temporary reply queue; now and then leave before the answer."""
        with Session(self.world.port) as session:
            name = next(self._names).encode()
            session.call("SUBSCRIBE", {"id": "1", "destination": "/temp-queue/answers"})
            headers = {"destination": "/queue/soak.service", "reply-to": "/temp-queue/answers"}
            session.call("SEND", headers, name)
            if self.random.random() < 0.8:
                self._expect(name, session.due_message().body)

    def _look(self) -> None:
        """Browse a queue to its end."""
        with Session(self.world.port) as session:
            headers = {"id": "1", "destination": _TRASH, "browser": "true"}
            session.call("SUBSCRIBE", headers)
            while "browser" not in session.due_message().headers:
                pass
            session.disconnect()

    def _subscribe_durably(self) -> None:
        """Create a durable subscription, disconnect, consume the collected messages, remove it."""
        name = next(self._names)
        topic = f"/topic/soak.durable.{name}"
        headers = {"id": "1", "destination": topic, "ack": "client", "x-queue-name": name}
        headers |= {"durable": "true", "auto-delete": "false"}
        with Session(self.world.port) as session:
            session.call("SUBSCRIBE", headers)
        with Session(self.world.port) as session:
            session.call("SEND", {"destination": topic}, name.encode())
            session.call("SUBSCRIBE", headers)
            frame = session.due_message()
            self._expect(name.encode(), frame.body)
            session.call("ACK", {"id": frame.headers["ack"]})
            session.call("UNSUBSCRIBE", headers)
            session.disconnect()

    def _do_a_job(self) -> None:
        """Put a job into a tube, release it once, and delete it."""
        name = next(self._names)
        with BeanstalkSession(self.world.beanstalk_port) as session:
            session.ask(f"use soak.{name}")
            session.ask(f"watch soak.{name}")
            session.ask("ignore default")
            session.put(name.encode())
            job, octets = session.reserve()
            self._expect(name.encode(), octets)
            session.ask(f"release {job} 65536 0")
            again, octets = session.reserve()
            self._expect(name.encode(), octets)
            if again != job or session.ask(f"delete {job}") != ["DELETED"]:
                raise RefusedError(f"the job {job} could not be deleted")
