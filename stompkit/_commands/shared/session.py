"""A session with a broker for the duration of a command."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.error import (
    ConnectionDone,
    ConnectionLost,
    ConnectionRefusedError,
    DNSLookupError,
    TCPTimedOutError,
    TimeoutError,
)
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

from stompkit._commands.shared.broker_options import Broker
from stompkit._commands.shared.signals import handling_signals
from stompkit._commands.shared.text import remedy_of
from stompkit._common.text import shown, text_of
from stompkit._common.twisted.private_reactor import private_reactor
from stompkit._common.twisted.stopping import stop_reactor
from stompkit.client import BrokerError, Client, ClientClosedError, ClientError, LoginRefusedError
from stompkit.frames import LocalProtocolError

__all__ = ["InterruptedSessionError", "Session", "reason_of", "run"]

_T = TypeVar("_T")
#: Maximum duration of the shutdown in seconds.
_END_S: Final = 10.0
_MOST_OF_BODY: Final = 300


class InterruptedSessionError(Exception):
    """A signal has ended the work; ``status`` is the exit status."""

    def __init__(self, number: int) -> None:
        """Store the signal's number."""
        super().__init__(number)
        self.status = 128 + number


class Session:
    """A connected client, and the reactor of the command."""

    def __init__(self, broker: Broker, connect_headers: Mapping[str, str] | None) -> None:
        """Start disconnected."""
        self.reactor: Final = private_reactor()
        self.client: Final[Client] = broker.client(self.reactor, connect_headers)
        #: Signal that has stopped the command, if any.
        self.signal: int | None = None
        self._on_signal: list[Callable[[], object]] = []
        self._sleeping: set[Deferred[None]] = set()

    def on_signal(self, function: Callable[[], object]) -> None:
        """Call a function in the reactor's thread when a signal stops the command."""
        self._on_signal.append(function)

    async def sleep(self, seconds: float) -> None:
        """Sleep for a while, or until a signal."""
        done: Deferred[None] = Deferred()
        timer = self.reactor.callLater(seconds, done.callback, None)
        self._sleeping.add(done)
        try:
            await done
        finally:
            self._sleeping.discard(done)
            if timer.active():
                timer.cancel()

    def in_thread(self, function: Callable[[], _T]) -> Deferred[_T]:
        """Call a blocking function in a thread."""
        pool = self.reactor.getThreadPool()
        done: Deferred[_T] = deferToThreadPool(self.reactor, pool, function)
        return done

    def signalled(self, number: int) -> None:
        """Notify the work of a signal; a second signal ends it immediately."""
        if self.signal is not None:
            stop_reactor(self.reactor)
            return
        self.signal = number
        for sleeping in [*self._sleeping]:
            sleeping.callback(None)
        if self._on_signal:
            for each in self._on_signal:
                each()
        else:
            self.client.disconnect(timeout_s=_END_S)


def run(
    command: str,
    broker: Broker,
    work: Callable[[Session], Coroutine[Any, Any, int]],
    *,
    connect_headers: Mapping[str, str] | None = None,
) -> int:
    """Connect, do the work, disconnect; returns the exit status of ``work``.

    Broker errors are reported, and the status is then 1. ``command`` is the name of the command for
    messages. SIGINT and SIGTERM are passed to the work. The status is 128 plus the signal's number
    if the work raises :class:`InterruptedSessionError`, or has not begun. Other exceptions of
    ``work`` are raised.
    """
    try:
        session = Session(broker, connect_headers)
    except ValueError as problem:
        print(f"stompkit {command}: --mq: {problem}", file=sys.stderr)
        return 2
    outcome: list[int | Failure] = []

    async def session_long() -> int:
        try:
            await session.client.connect()
            return await work(session)
        finally:
            # DISCONNECT has a receipt, which confirms everything sent before.
            with suppress(ClientError):
                await session.client.disconnect(timeout_s=_END_S)

    def begin() -> None:
        done = Deferred.fromCoroutine(session_long())
        done.addBoth(outcome.append)
        done.addBoth(lambda _: stop_reactor(session.reactor))

    session.reactor.callWhenRunning(begin)

    def signalled(number: int) -> None:
        session.reactor.callFromThread(session.signalled, number)

    with handling_signals(signalled):
        session.reactor.run(installSignalHandlers=False)
    interrupted = 128 + (session.signal or signal.SIGINT)
    if not outcome:
        return interrupted
    [result] = outcome
    if not isinstance(result, Failure):
        return result
    error = result.value
    assert error is not None  # a failure has an exception
    if isinstance(error, InterruptedSessionError):
        return error.status
    if isinstance(error, ClientClosedError) and session.signal is not None:
        return interrupted
    if isinstance(error, (ClientError, LocalProtocolError)):
        print(f"stompkit {command}: {reason_of(error, broker)}", file=sys.stderr)
        return 1
    raise error


def reason_of(error: BaseException, broker: Broker | None = None) -> str:
    """Return the cause of an error for messages; of an ERROR frame, its contents."""
    reason = getattr(error, "reason", None)
    if isinstance(error, ClientClosedError) and isinstance(reason, Exception):
        return reason_of(reason, broker)
    if isinstance(error, BrokerError):
        of_broker = f" of {broker.label}" if broker is not None else ""
        parts = [f"the broker{of_broker} " + _does(error), shown(error.message)]
        code = error.headers.get("stompkit-code")
        if code is not None:
            parts[-1] += f" ({shown(code)})"
        body = error.body.decode("utf-8", "replace").strip()
        if body and body != error.message:
            parts.append(shown(body[:_MOST_OF_BODY]))
        advice = ""
        if broker is not None and _is_login(error) and code in (None, "not-authenticated"):
            advice = f". {_login_advice(broker)}"
        return ": ".join(parts) + remedy_of(code) + advice
    if isinstance(reason, BrokerError):
        return reason_of(reason, broker)
    if isinstance(reason, Exception) and broker is not None:
        return f"cannot connect to {broker.label}: {_cause(reason)}"
    return shown(text_of(error))


def _cause(error: Exception) -> str:
    """Return the cause of a failed connection, with advice."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused. Is the broker running there? --mq names another one."
    if isinstance(error, DNSLookupError):
        return "there is no host of this name. Check the address of --mq."
    if isinstance(error, TimeoutError | TCPTimedOutError):
        return "no answer in time. Is a firewall in between?"
    if isinstance(error, ConnectionDone | ConnectionLost):
        return (
            "it closed the connection before CONNECTED. Is it a STOMP broker, or a proxy of one?"
            " Write stomps:// if the port expects TLS."
        )
    return shown(str(error))


def _does(error: BrokerError) -> str:
    return "refuses the login" if _is_login(error) else "answers with ERROR"


def _is_login(error: BrokerError) -> bool:
    # A client that reconnects to a broker that stops or is passive has no wrong login.
    return isinstance(error, LoginRefusedError) and not error.is_temporary


def _login_advice(broker: Broker) -> str:
    """Return what was sent as login, and how to send another one."""
    url = broker.url
    if not url.login:
        return (
            "No login was sent: write --login NAME --passcode-file FILE, or stomp://NAME@HOST:PORT"
            " in --mq with the passcode in STOMPKIT_PASSCODE"
        )
    if not url.passcode:
        return (
            f"No passcode was sent for {shown(url.login)}: write --passcode-file FILE, or set"
            " STOMPKIT_PASSCODE"
        )
    return f"The login was {shown(url.login)}: --login and --passcode-file name others"
