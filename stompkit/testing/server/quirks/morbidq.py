"""An emulator of MorbidQ 0.8.7.3, a broker of 2009 in Python 2.

Useless faults of MorbidQ are not emulated: a frame to ``/pubsub/...`` breaks the whole process, and
the process ends if its HTTP service fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure

from stompkit.frames import Frame
from stompkit.server import (
    Action,
    BrokerConfig,
    BrokerFactory,
    Credentials,
    Decision,
    Request,
    User,
)
from stompkit.server.interfaces import StoreError
from stompkit.testing.server.quirks._morbidq_frames import BadFrameError, MorbidQFraming
from stompkit.testing.server.quirks._morbidq_places import Places
from stompkit.testing.server.quirks._rules.rule import Quirks

__all__ = ["MorbidQFactory", "MorbidQProtocol"]

_DENIED: Final = {
    Action.CREATE: ("CREATE error", "Not authorized to create queue"),
    Action.READ: ("READ error", "Not authorized to read queue"),
    Action.WRITE: ("WRITE error", "Not authorized to write to queue"),
}
_BAD_LOGIN: Final = "Invalid ID or password"
_FANOUT: Final = "/fanout/"


class MorbidQProtocol(Protocol):
    """The connection of one client."""

    def __init__(self, factory: MorbidQFactory, peer: str, number: int) -> None:
        """Wait for CONNECT; ``number`` is that of the session."""
        self._factory = factory
        self._peer = peer
        self._number = number
        self._quirks = factory.quirks
        self._framing = MorbidQFraming(factory.quirks)
        self._user = User()
        self._is_connected = False
        self._is_over = False
        #: Ids of subscriptions by destination, if the rules distinguish them.
        self._ids: dict[str, str] = {}

    # Called by Twisted.

    def dataReceived(self, data: bytes) -> None:
        """Process the frames that are complete with this data."""
        self._framing.feed(data)
        while not self._is_over:
            try:
                frame = self._framing.next()
                if frame is None:
                    return
                self._take(frame)
            except BadFrameError as error:
                self._error(str(error), str(error))

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Remove the client."""
        self._is_over = True
        self._factory.gone(self)

    # Frames.

    def _take(self, frame: Frame) -> None:
        if not self._is_connected:
            if frame.command == "CONNECT":
                self._connect(frame)
            else:
                self._drop("the first frame must be CONNECT")
            return
        match frame.command:
            case "SEND":
                self._at(frame, Action.WRITE, self._send)
            case "SUBSCRIBE":
                self._at(frame, Action.READ, self._subscribe)
            case "UNSUBSCRIBE":
                if "destination" in frame.headers:
                    name = frame.headers["destination"]
                    self._factory.places.unsubscribe(name, self)
                self._receipt(frame)
            case "DISCONNECT":
                self._receipt(frame)
                self.close()
            case _:
                self._drop(f"there is nothing to do for {frame.command}")

    def _drop(self, why: str) -> None:
        """Close the connection, as the real one does after an error."""
        if "Q3" in self._quirks:
            self.close()
        else:
            self._error(why, why)

    def _connect(self, frame: Frame) -> None:
        headers = frame.headers
        authenticator = self._factory.broker.authenticator
        if authenticator is None or "Q12" not in self._quirks:
            self._let_in(frame, User())
            return
        credentials = Credentials(
            headers.get("login"), headers.get("passcode"), headers.get("host", ""), self._peer
        )
        authenticator.authenticate(credentials, lambda user: self._let_in(frame, user))

    def _let_in(self, frame: Frame, user: User | None) -> None:
        if user is None:
            self._error(_BAD_LOGIN, _BAD_LOGIN)
            if "Q11" in self._quirks:
                self.close()
            return
        self._user = user
        self._is_connected = True
        headers = {"session": str(self._number)}
        if "Q1" not in self._quirks:
            headers |= {"version": "1.0", "heart-beat": "0,0"}
        self._write(Frame("CONNECTED", headers))

    def _at(self, frame: Frame, action: Action, then: Callable[[str, Frame], None]) -> None:
        """Continue with a destination if the client is authorised for the action."""
        name = frame.headers.get("destination")
        if name is None:
            if "Q11" not in self._quirks:
                self._error("missing destination", f"{frame.command} needs a destination")
            return
        if "Q7" not in self._quirks and not name.startswith(("/queue/", "/topic/")):
            self._error("unknown destination", f"{name[:100]!a} is neither a queue nor a topic")
            return

        def allowed(decision: Decision) -> None:
            if decision.body is not None:
                frame.body = decision.body
            then(name, frame)

        def created(_: Decision) -> None:
            self._ask(frame, action, name, allowed)

        if name in self._factory.places:
            created(Decision(allowed=True))
        else:
            self._ask(frame, Action.CREATE, name, created)

    def _ask(
        self, frame: Frame, action: Action, name: str, then: Callable[[Decision], None]
    ) -> None:
        authoriser = self._factory.broker.authoriser
        if authoriser is None or "Q12" not in self._quirks:
            then(Decision(allowed=True))
            return

        def decided(decision: Decision) -> None:
            if decision.allowed:
                then(decision)
                return
            self._error(*_DENIED[action])
            if "Q11" not in self._quirks:
                self.close()

        authoriser.authorise(
            Request(self._user, "", action, name, frame.headers, frame.body), decided
        )

    def _send(self, name: str, frame: Frame) -> None:
        headers = dict(frame.headers)
        if "Q4" not in self._quirks:
            headers.pop("receipt", None)
        if "Q6" not in self._quirks and frame.body:
            headers.setdefault("content-length", str(len(frame.body)))
        self._factory.places.send(name, Frame("SEND", headers, frame.body))
        self._receipt(frame)

    def _subscribe(self, name: str, frame: Frame) -> None:
        if "Q5" not in self._quirks:
            asked = {name for name in ("ack", "selector") if name in frame.headers}
            if asked and frame.headers.get("ack") != "auto":
                self._error("not supported", f"{' and '.join(sorted(asked))} cannot be had")
                return
        self._ids[name] = frame.headers.get("id", "0")
        self._factory.places.subscribe(name, self)
        self._receipt(frame)

    # Outgoing frames.

    def deliver(self, frame: Frame, destination: str) -> None:
        """Write a MESSAGE frame of a destination."""
        if "Q6" not in self._quirks:
            frame.headers["subscription"] = self._ids[destination]
        self._write(frame)

    def _receipt(self, frame: Frame) -> None:
        if "Q4" not in self._quirks and "receipt" in frame.headers:
            self._write(Frame("RECEIPT", {"receipt-id": frame.headers["receipt"]}))

    def _error(self, message: str, text: str) -> None:
        self._write(Frame("ERROR", {"message": message}, text.encode()))

    def _write(self, frame: Frame) -> None:
        if not self._is_over and self.transport is not None:
            self.transport.write(self._framing.encoded(frame))

    def close(self) -> None:
        """Close the connection; later data is ignored."""
        if not self._is_over and self.transport is not None:
            self._is_over = True
            self.transport.loseConnection()
        self._factory.places.leave(self)


class MorbidQFactory(BrokerFactory):
    """Creates a :class:`MorbidQProtocol` for each client; the broker behind it stays empty."""

    def __init__(
        self, quirks: Quirks, config: BrokerConfig, clock: IReactorTime, **rest: Any
    ) -> None:
        """Create a broker; the arguments are those of :class:`BrokerFactory`."""
        super().__init__(config, clock, **rest)
        self.quirks = quirks
        children = {
            each.name.removeprefix(_FANOUT): each.children
            for each in config.destinations
            if each.name.startswith(_FANOUT)
        }
        self.places = Places(children)
        self._clients: dict[MorbidQProtocol, None] = {}
        self._last_number = 0

    def buildProtocol(self, addr: IAddress | None) -> MorbidQProtocol:
        """Create the protocol of one client."""
        self._last_number += 1
        made = MorbidQProtocol(self, getattr(addr, "host", ""), self._last_number)
        made.factory = self
        self._clients[made] = None
        return made

    def gone(self, client: MorbidQProtocol) -> None:
        """Remove a client."""
        self.places.leave(client)
        self._clients.pop(client, None)

    def disconnect_all(self, message: str, code: str) -> None:
        """Close all connections, without an ERROR."""
        for client in list(self._clients):
            client.close()

    def reset(self, done: Callable[[StoreError | None], None] | None = None) -> None:
        """Reset all state, except for the session counter."""
        self.disconnect_all("the broker was reset", "reset")
        self.places.clear()
        super().reset(done)
