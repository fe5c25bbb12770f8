"""The socket by which tests control a broker that they have launched.

A request is one line with a JSON object, and so is its answer; requests are answered in order,
those of several connections one after the other::

    {"do": "reset"}                         {"ok": true}
    {"do": "advance", "seconds": 30.0}      {"ok": true, "now": 1700000030.0}
    {"do": "realtime"}                      {"ok": true}
    {"do": "now"}                           {"ok": true, "now": 1700000030.0, "offset": 30.0}
    {"do": "destinations"}                  {"ok": true, "destinations": [{"name": ...}, ...]}
    {"do": "connections"}                   {"ok": true, "connections": [{"peer": ...}, ...]}
    {"do": "dance"}                         {"error": "..."}

Times are in seconds, ``now`` since the epoch. The listed objects have the fields of
:mod:`stompkit.server.inspection`. When a request is answered, all its effects are complete in the
broker, and on their way to the clients. Frames that a client sent before may still be on their way
to the broker, unless a receipt has come for them. A move of the clock counts as silence of all
clients: those with heart-beats miss them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import msgspec
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.protocols.basic import LineOnlyReceiver

from stompkit.server import BrokerFactory
from stompkit.server.inspection import connections, destinations
from stompkit.server.interfaces import StoreError
from stompkit.testing.server._clock import ShiftedClock
from stompkit.testing.server._idle import IdleRunner

__all__ = ["Control", "ControlFactory"]

_log: Final = Logger()

Answer = dict[str, object]


class _Request(
    msgspec.Struct,
    frozen=True,
    tag_field="do",
    tag=str.lower,
    forbid_unknown_fields=True,
):
    """A request of a test."""


class Reset(_Request, frozen=True):
    """Reset the broker: no clients, no messages, and the real time."""


class Advance(_Request, frozen=True):
    """Advance the clock."""

    seconds: Annotated[float, msgspec.Meta(ge=0)]


class RealTime(_Request, frozen=True):
    """Return to the real time, and keep everything else."""


class Now(_Request, frozen=True):
    """Return the time."""


class Destinations(_Request, frozen=True):
    """List the destinations."""


class Connections(_Request, frozen=True):
    """List the clients."""


_DECODER: Final = msgspec.json.Decoder(
    Reset | Advance | RealTime | Now | Destinations | Connections
)


class Control:
    """Executes the requests of tests, one after the other."""

    def __init__(
        self, factory: BrokerFactory, clock: ShiftedClock, runner: IdleRunner | None
    ) -> None:
        """Control a broker that uses ``clock``; *runner* runs the calls of its store, if any."""
        self._factory = factory
        self._clock = clock
        self._runner = runner
        self._lock = DeferredLock()

    def ask(self, line: bytes) -> Deferred[bytes]:
        """Execute the request in a line; the Deferred fires with the line of the answer."""

        def start() -> Deferred[bytes]:
            return Deferred.fromCoroutine(self._answer(line))

        return self._lock.run(start)

    async def _answer(self, line: bytes) -> bytes:
        answer: Answer
        try:
            answer = {"ok": True, **await self._do(_DECODER.decode(line))}
        except (msgspec.DecodeError, StoreError) as error:
            answer = {"error": str(error)}
        except Exception as error:
            _log.failure("a request of a test failed")
            answer = {"error": f"unexpected {type(error).__name__}: {error}"}
        return msgspec.json.encode(answer)

    async def _do(self, request: _Request) -> Answer:
        broker = self._factory.broker
        match request:
            case Reset():
                self._clock.reset()
                await self._reset()
            case Advance(seconds):
                await self._clock.advance(seconds, self._settled)
                return {"now": self._clock.seconds()}
            case RealTime():
                self._clock.reset()
            case Now():
                return {"now": self._clock.seconds(), "offset": self._clock.offset_s}
            case Destinations():
                await self._settled()
                return {"destinations": [each._asdict() for each in destinations(broker)]}
            case Connections():
                return {"connections": [each._asdict() for each in connections(broker)]}
        return {}

    def _reset(self) -> Deferred[None]:
        reset: Deferred[None] = Deferred()

        def done(error: StoreError | None) -> None:
            if error is None:
                reset.callback(None)
            else:
                reset.errback(error)

        self._factory.reset(done)
        return reset

    async def _settled(self) -> None:
        """Wait for the store, so that all effects of a request are complete."""
        if self._runner is not None:
            await self._runner.settle()


class _Protocol(LineOnlyReceiver):
    """One connection of a test."""

    delimiter = b"\n"

    def __init__(self, ask: Callable[[bytes], Deferred[bytes]]) -> None:
        """Answer requests by ``ask``."""
        self._ask = ask

    def lineReceived(self, line: bytes) -> None:
        """Answer a request, after all earlier ones."""
        self._ask(line).addCallback(self.sendLine)


class ControlFactory(Factory):
    """Accepts the connections of tests."""

    noisy = False

    def __init__(self, control: Control) -> None:
        """Answer requests by ``control``."""
        self._control = control

    def buildProtocol(self, addr: IAddress | None) -> _Protocol:
        """Create the protocol of one connection."""
        return _Protocol(self._control.ask)
