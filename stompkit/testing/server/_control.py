"""The socket by which tests have a say in a broker that they have launched.

A request is one line with a JSON object, and so is its answer; requests are answered in order,
those of several connections one after the other::

    {"do": "reset"}                         {"ok": true}
    {"do": "advance", "seconds": 30.0}      {"ok": true, "now": 1700000030.0}
    {"do": "realtime"}                      {"ok": true}
    {"do": "now"}                           {"ok": true, "now": 1700000030.0, "offset": 30.0}
    {"do": "destinations"}                  {"ok": true, "destinations": [{"name": ...}, ...]}
    {"do": "connections"}                   {"ok": true, "connections": [{"peer": ...}, ...]}
    {"do": "dance"}                         {"error": "..."}

Times are seconds, ``now`` since the epoch. What is listed has the fields that
:mod:`stompkit.server.inspection` names. All that a request brings about has happened in the
broker when it is answered, and is on its way to the clients; what a client has sent before may
still be on its way to the broker, unless a receipt has come for it. To move the clock is to have
clients say nothing meanwhile: those that have promised heart-beats break their promise.
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
    """What a test asks for."""


class Reset(_Request, frozen=True):
    """Be as new: no clients, no messages, and the real time."""


class Advance(_Request, frozen=True):
    """Let time pass."""

    seconds: Annotated[float, msgspec.Meta(ge=0)]


class RealTime(_Request, frozen=True):
    """Go back to the real time, and be as before otherwise."""


class Now(_Request, frozen=True):
    """Tell the time."""


class Destinations(_Request, frozen=True):
    """List the destinations."""


class Connections(_Request, frozen=True):
    """List the clients."""


_DECODER: Final = msgspec.json.Decoder(
    Reset | Advance | RealTime | Now | Destinations | Connections
)


class Control:
    """Does what tests ask for, one thing after the other."""

    def __init__(
        self, factory: BrokerFactory, clock: ShiftedClock, runner: IdleRunner | None
    ) -> None:
        """Take a broker that goes by ``clock``, and what runs the calls of its store, if any."""
        self._factory = factory
        self._clock = clock
        self._runner = runner
        self._lock = DeferredLock()

    def ask(self, line: bytes) -> Deferred[bytes]:
        """Do what a line asks for; fires with the line to answer by."""

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
        """Wait for the store, so that nothing of what happened is still under way."""
        if self._runner is not None:
            await self._runner.settle()


class _Protocol(LineOnlyReceiver):
    """One connection of a test."""

    delimiter = b"\n"

    def __init__(self, ask: Callable[[bytes], Deferred[bytes]]) -> None:
        """Have requests answered by ``ask``."""
        self._ask = ask

    def lineReceived(self, line: bytes) -> None:
        """Answer a request, once those before it have been."""
        self._ask(line).addCallback(self.sendLine)


class ControlFactory(Factory):
    """Takes the connections of tests."""

    noisy = False

    def __init__(self, control: Control) -> None:
        """Have requests answered by ``control``."""
        self._control = control

    def buildProtocol(self, addr: IAddress | None) -> _Protocol:
        """Make the protocol of one connection."""
        return _Protocol(self._control.ask)
