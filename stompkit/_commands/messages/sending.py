"""Sends messages, for ``stompkit send``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import BinaryIO, Final

from twisted.internet.defer import DeferredSemaphore
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from stompkit._commands.messages.lines import LineReader
from stompkit._commands.shared.broker_options import Broker
from stompkit._commands.shared.message_lines import Outgoing, from_line
from stompkit._commands.shared.progress import Progress
from stompkit._commands.shared.session import InterruptedSessionError, Session, reason_of, run
from stompkit._common.files import describe
from stompkit._common.spelling import amount
from stompkit.client import ClientClosedError, ClientError, Transaction
from stompkit.frames import LocalProtocolError

__all__ = ["send"]

#: Maximum backlog of the rate limiter in seconds, which a later burst can catch up.
_BEHIND_S: Final = 1.0
#: Maximum wait for receipts after a signal, in seconds.
_END_S: Final = 10.0
#: Time without a receipt before the command says that it waits, in seconds.
_SILENCE_S: Final = 5.0


def send(broker: Broker, options: argparse.Namespace) -> int:
    """Send as the options specify; returns the exit status, raises OSError for a file."""
    if options.body:
        return _send(broker, options, None)
    if options.file is None:
        return _send(broker, options, sys.stdin.buffer)
    with open(options.file, "rb") as file:
        return _send(broker, options, file)


def _send(broker: Broker, options: argparse.Namespace, file: BinaryIO | None) -> int:
    bodies = [body.encode("utf-8", "surrogateescape") for body in options.body]
    by_line = options.lines or options.jsonl
    if file is not None and not by_line:
        bodies, file = [file.read()], None
    sender = _Sender(broker, options, bodies, file)
    status = run("send", broker, sender.work)
    sender.end(status)
    return status


class _LineError(Exception):
    """An invalid input line."""


class _Sender:
    """One run of the command."""

    def __init__(
        self,
        broker: Broker,
        options: argparse.Namespace,
        bodies: list[bytes],
        file: BinaryIO | None,
    ) -> None:
        self._broker = broker
        self._options = options
        self._bodies = bodies
        self._file = file
        total = len(bodies) * options.count if file is None else None
        self._progress = Progress("confirmed", total, quiet=options.quiet)
        self._began = time.monotonic()
        self._sent = self._confirmed = 0
        #: Time of the last receipt, or of the last message that was sent when none was awaited.
        self._noted = self._began
        self._error: BaseException | None = None
        self._headers = dict(reversed(options.headers))  # of repeated ones the first counts
        if options.persistent:
            self._headers["persistent"] = "true"

    # Sending.

    async def work(self, session: Session) -> int:
        """Send all messages; returns the exit status."""
        session.on_signal(lambda: self._interrupted(session))
        silence = self._notice_silence(session)
        try:
            if self._options.transaction is not None:
                await self._send_in_transactions(session)
            else:
                await self._send_each(session)
        except _LineError as error:
            print(f"stompkit send: {error}", file=sys.stderr)
            return 1
        finally:
            if silence.running:
                silence.stop()
            self._progress.end()
        if session.signal is not None and isinstance(self._error, ClientClosedError | None):
            raise InterruptedSessionError(session.signal)
        if self._error is not None:
            self._report(self._error)
            return 1
        return 0

    def _notice_silence(self, session: Session) -> LoopingCall:
        """Say once that the command waits for receipts; a full queue can make it wait for ever."""

        def look() -> None:
            waiting = self._sent - self._confirmed
            is_silent = time.monotonic() - self._noted >= _SILENCE_S
            if waiting and is_silent and session.client.is_connected:
                print(
                    f"stompkit send: waiting: {amount(waiting, 'message')} without a receipt. If"
                    " the queue is full and its sender has to wait, `stompkit connections` of the"
                    " broker shows `blocked`",
                    file=sys.stderr,
                )
                looking.stop()

        looking = LoopingCall(look)
        looking.clock = session.reactor
        if self._options.receipts and not self._options.quiet:
            looking.start(1.0, now=False)
        return looking

    def _interrupted(self, session: Session) -> None:
        """Limit the wait for the receipts of sent messages."""
        session.reactor.callLater(_END_S, session.client.disconnect, timeout_s=0.1)

    def _report(self, error: BaseException) -> None:
        reason = reason_of(error, self._broker)
        print(f"stompkit send: {reason}", file=sys.stderr)
        if self._sent > 1:
            summary = f"{self._confirmed:,} of {self._sent:,} messages were confirmed"
            if self._confirmed < self._sent and self._options.receipts:
                summary += "; the others can have arrived, too"
            print(f"stompkit send: {summary}", file=sys.stderr)

    async def _send_each(self, session: Session) -> None:
        window = DeferredSemaphore(self._options.window)

        def confirmed(result: Failure | None) -> None:
            if isinstance(result, Failure):
                self._error = self._error or result.value
            else:
                self._confirmed += 1
                self._noted = time.monotonic()
                self._progress(self._confirmed)
            window.release()

        try:
            async for message in self._messages(session):
                await window.acquire()
                if self._error is not None:
                    window.release()
                    break
                if self._sent == self._confirmed:
                    self._noted = time.monotonic()
                self._sent += 1
                sent = session.client.send(
                    message.destination,
                    message.body,
                    message.headers,
                    receipt=self._options.receipts,
                    wait=True,
                )
                sent.addBoth(confirmed)
        finally:
            for _ in range(self._options.window):
                await window.acquire()

    async def _send_in_transactions(self, session: Session) -> None:
        transaction: Transaction | None = None
        inside = 0
        try:
            async for message in self._messages(session):
                if transaction is None:
                    transaction = session.client.transaction()
                    await transaction.begin()
                transaction.send(message.destination, message.body, message.headers)
                inside += 1
                self._sent += 1
                await session.client.drain()
                if inside == self._options.transaction:
                    committed, transaction = transaction, None
                    await self._commit(committed, inside)
                    inside = 0
            if transaction is not None and session.signal is None:
                committed, transaction = transaction, None
                await self._commit(committed, inside)
        except (ClientError, LocalProtocolError) as error:
            self._error = error
        finally:
            if transaction is not None:
                transaction.abort()

    async def _commit(self, transaction: Transaction, messages: int) -> None:
        await transaction.commit()
        self._confirmed += messages
        self._progress(self._confirmed)

    # Input.

    async def _messages(self, session: Session) -> AsyncIterator[Outgoing]:
        """Yield the messages, at the requested rate, until a signal."""
        wait = _Pace(session, self._options.rate) if self._options.rate else None
        async for each in self._once(session):
            for _ in range(self._options.count):
                if wait is not None:
                    await wait()
                if session.signal is not None or self._error is not None:
                    return
                yield each

    async def _once(self, session: Session) -> AsyncIterator[Outgoing]:
        """Yield each message once."""
        destination, headers = self._options.destination, self._headers
        for body in self._bodies:
            yield Outgoing(destination, headers, body)
        if self._file is None:
            return
        reader = LineReader(session, self._file)
        number = 0
        while lines := await self._lines(reader, number):
            for line in lines:
                number += 1
                if not self._options.jsonl:
                    yield Outgoing(destination, headers, line.removesuffix(b"\r"))
                elif line.strip():
                    yield self._of_json(line, number)

    async def _lines(self, reader: LineReader, number: int) -> list[bytes]:
        try:
            return await reader.take()
        except OSError as error:
            name = self._options.file or "the standard input"
            raise _LineError(
                f"cannot read {name} after line {number}: {describe(error)}. The lines before are"
                " sent"
            ) from None

    def _of_json(self, line: bytes, number: int) -> Outgoing:
        try:
            found = from_line(line)
        except ValueError as error:
            raise _LineError(f"line {number}: {error}") from None
        wanted: str = self._options.destination
        destination = found.destination if wanted == "-" else wanted
        if not destination:
            raise _LineError(f"line {number}: it has no destination, and the command line has -")
        return Outgoing(destination, {**found.headers, **self._headers}, found.body)

    def end(self, status: int) -> None:
        """Print the result; without ``--json`` only a success."""
        self._progress.end()
        took = time.monotonic() - self._began
        if self._options.json:
            summary = {
                "sent": self._sent,
                "confirmed": self._confirmed if self._options.receipts else None,
                "seconds": round(took, 3),
            }
            print(json.dumps(summary))
        elif status == 0 and not self._options.quiet:
            done = "confirmed" if self._options.receipts else "sent, without confirmation"
            print(f"{amount(self._sent, 'message')} {done}")


class _Pace:
    """A rate limiter: waits until the next message may be sent."""

    def __init__(self, session: Session, rate: float) -> None:
        self._session = session
        self._step_s = 1 / rate
        self._next = 0.0

    async def __call__(self) -> None:
        now = time.monotonic()
        self._next = max(self._next, now - _BEHIND_S)
        if self._next > now:
            await self._session.sleep(self._next - now)
        self._next += self._step_s
