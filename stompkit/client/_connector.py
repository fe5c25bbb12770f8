"""Connecting and reconnecting to a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime
from twisted.internet.protocol import Factory
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

from stompkit._common import Clock, PeerDeadline
from stompkit._common.certificates import refusal
from stompkit.client._errors import AttemptTimeoutError, ConnectFailedError, LoginRefusedError
from stompkit.client._hosts import Host
from stompkit.client._protocol import ClientProtocol, Owner
from stompkit.client._settings import ReconnectPolicy
from stompkit.frames import Frame

__all__ = ["Connector", "Keeper"]

_log: Final = Logger()

#: Minimum time in seconds between two warnings that no host is reachable.
_WARNING_INTERVAL_S: Final = 60.0
#: Part of ActiveMQ's refusal of a ``client-id`` that another connection has.
_ID_IN_USE: Final = " already connected from "


class Keeper(Protocol):
    """Receiver of connection events; there is one connection at a time."""

    def connected(self, wire: ClientProtocol, headers: dict[str, str]) -> None:
        """Handle a connection that has logged in."""

    def received(self, frame: Frame) -> None:
        """Handle a frame received on the connection."""

    def writable(self) -> None:
        """Handle a transport that has room again."""

    def lost(self, reason: Exception) -> None:
        """Handle the end of the connection; an attempt follows unless the connector is stopped."""

    def gave_up(self, error: Exception) -> None:
        """Handle the end of all attempts; no connection follows."""


class Connector:
    """Keeps a connection to one of several hosts until it is stopped."""

    def __init__(
        self,
        hosts: Sequence[Host],
        policy: ReconnectPolicy,
        clock: IReactorTime,
        random: Callable[[], float],
        make_protocol: Callable[[Host, Owner], ClientProtocol],
        keeper: Keeper,
    ) -> None:
        """Start idle."""
        self._hosts = hosts
        self._policy = policy
        self._clock = clock
        self._random = random
        self._make_protocol = make_protocol
        self._keeper = keeper
        self._turn = 0
        self._failures = 0
        #: Number of consecutive attempts without a session; ``_failures`` also counts short ones.
        self._misses = 0
        self._warned_at: float | None = None
        self._has_logged_in = False
        #: First refusal since the last login, and the attempt that it answered.
        self._refusal: LoginRefusedError | None = None
        self._refused_turn = 0
        self._is_wanted = False
        #: Timer of the next attempt, or of the end of this one.
        self._timer: IDelayedCall | PeerDeadline | None = None
        self._connecting: Deferred[object] | None = None
        self._protocol: ClientProtocol | None = None  # of this attempt, or of the connection
        self._up_since: float | None = None
        # Called for every frame, hence without a method in between.
        self.received = keeper.received
        self.writable = keeper.writable

    # Called by the keeper.

    def start(self) -> None:
        """Start the first attempt immediately."""
        self._is_wanted = True
        self._failures = 0
        self._refusal = None
        self._attempt()

    def retire(self) -> None:
        """Do not reconnect when this connection ends."""
        self._is_wanted = False

    def close(self) -> None:
        """Close the connection once all written data has been sent."""
        if self._protocol is not None:
            self._protocol.close()

    def stop(self, reason: Exception) -> None:
        """End the connection or attempt at once; the keeper is notified of a lost connection."""
        self._is_wanted = False
        self._cancel_timer()
        self._end_attempt(reason)

    # One attempt.

    def _attempt(self) -> None:
        self._timer = None
        host = self._hosts[self._turn % len(self._hosts)]
        self._turn += 1
        _log.debug("connecting to {host}", host=host.label)
        self._protocol = protocol = self._make_protocol(host, self)
        self._timer = deadline = PeerDeadline(
            cast("Clock", self._clock), lambda: protocol.has_unread, lambda: self._time_out(host)
        )
        deadline.start(self._policy.attempt_timeout_s)
        connecting: Deferred[object] = maybeDeferred(host.endpoint.connect, _OneProtocol(protocol))
        self._connecting = connecting
        connecting.addBoth(self._endpoint_answered, protocol)

    def _endpoint_answered(self, result: object, protocol: ClientProtocol) -> None:
        self._connecting = None
        if isinstance(result, Failure):
            self.ended(protocol, _exception_of(result))

    def _time_out(self, host: Host) -> None:
        self._timer = None
        seconds = self._policy.attempt_timeout_s
        self._end_attempt(
            AttemptTimeoutError(f"no session with {host.label} within {seconds:g} seconds")
        )

    def _end_attempt(self, reason: Exception) -> None:
        connecting, self._connecting = self._connecting, None
        protocol = self._protocol
        if protocol is None:
            return
        protocol.abort(reason)  # calls ended
        if connecting is not None:
            connecting.cancel()

    def logged_in(self, protocol: ClientProtocol, headers: dict[str, str]) -> None:
        """Pass a connection to the keeper."""
        self._cancel_timer()
        self._up_since = self._clock.seconds()
        self._misses = 0
        self._has_logged_in = True
        self._refusal = None
        self._keeper.connected(protocol, headers)

    def ended(self, protocol: ClientProtocol, reason: Exception) -> None:
        """Record the end of an attempt or a connection, and schedule the next attempt."""
        if protocol is not self._protocol:
            return
        self._protocol = None
        self._cancel_timer()
        refused = refusal(reason)
        if refused is not None:
            reason = ConnectionError(refused)
        up_since, self._up_since = self._up_since, None
        if up_since is not None and self._clock.seconds() - up_since >= self._policy.settle_s:
            self._failures = 0
        else:
            self._failures += 1
        wanted = self._is_wanted
        final = self._final_error(reason)
        if wanted and final is None:
            delay_s = self._policy.delay_s(self._failures, self._random)
            self._timer = self._clock.callLater(delay_s, self._attempt)
            self._log_end(reason, delay_s, was_connected=up_since is not None)
        if up_since is not None:
            self._keeper.lost(reason)
        if wanted and self._is_wanted and final is not None:
            self._is_wanted = False
            self._keeper.gave_up(final)

    def _log_end(self, reason: Exception, delay_s: float, *, was_connected: bool) -> None:
        """Log the end of an attempt or a connection; warn if no host is reachable."""
        host = self._hosts[(self._turn - 1) % len(self._hosts)]
        next_host = self._hosts[self._turn % len(self._hosts)]
        _log.emit(
            LogLevel.info if was_connected or not self._is_warning_due() else LogLevel.warn,
            "{what} {host}: {reason}; connecting to {next_host} in {delay:.2f} s",
            what="lost the connection to" if was_connected else "no connection to",
            host=host.label,
            reason=reason,
            next_host=next_host.label,
            delay=delay_s,
        )

    def _is_warning_due(self) -> bool:
        """Return True after a failed attempt at every host, at most once in the interval."""
        self._misses += 1
        now = self._clock.seconds()
        is_early = self._warned_at is not None and now - self._warned_at < _WARNING_INTERVAL_S
        if self._misses < len(self._hosts) or is_early:
            return False
        self._warned_at = now
        return True

    def _final_error(self, reason: Exception) -> Exception | None:
        """Return the error to give up with, or None if another attempt follows."""
        if isinstance(reason, LoginRefusedError) and not self._is_temporary(reason):
            if "stompkit-code" in reason.headers:
                return reason
            # Without a code it may be about this broker only: the other hosts are tried once.
            if self._refusal is None:
                self._refusal, self._refused_turn = reason, self._turn
        if self._refusal is not None and self._turn - self._refused_turn >= len(self._hosts) - 1:
            return self._refusal
        most = self._policy.max_attempts
        if most is not None and self._failures >= most:
            return ConnectFailedError(self._failures, reason)
        return None

    def _is_temporary(self, refusal: LoginRefusedError) -> bool:
        # A broker that has not noticed a lost connection reserves the client-id for it.
        return refusal.is_temporary or (self._has_logged_in and _ID_IN_USE in refusal.message)

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()


class _OneProtocol(Factory):
    """A factory that returns one existing protocol."""

    noisy = False

    def __init__(self, protocol: ClientProtocol) -> None:
        self._protocol = protocol

    def buildProtocol(self, addr: IAddress | None) -> ClientProtocol:
        return self._protocol


def _exception_of(failure: Failure) -> Exception:
    error = failure.value
    return error if isinstance(error, Exception) else ConnectionError(str(error))
