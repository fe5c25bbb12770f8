"""Receives messages, for ``stompkit receive``."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred

from stompkit._commands.shared.broker_options import Broker
from stompkit._commands.shared.message_lines import to_line
from stompkit._commands.shared.progress import Progress
from stompkit._commands.shared.session import InterruptedSessionError, Session, run
from stompkit._common.spelling import amount
from stompkit._common.style import Style
from stompkit._common.text import shown
from stompkit.client import AckMode, Message, Subscription, SubscriptionEndedError
from stompkit.client.blocking import durable_subscription
from stompkit.frames import LocalProtocolError, parse_number

__all__ = ["receive"]

_FAILED: Final = 1
_NOTHING: Final = 3
#: Time in seconds without messages that ends the command without --count.
_QUIET_S: Final = 2.0
_PREFETCH: Final = 100
_BROWSED: Final = 1000
_TAKEN_BYTES: Final = 1024 * 1024
#: Maximum length of a number in a header.
_DIGITS: Final = 19
_NO_NAME: Final = re.compile(r"[^A-Z0-9]+")


def receive(broker: Broker, options: argparse.Namespace) -> int:
    """Receive as the options specify; returns the exit status, raises BrokenPipeError."""
    headers = {"client-id": options.durable} if options.durable else None
    receiver = _Receiver(options)
    return run("receive", broker, receiver.work, connect_headers=headers)


class _Receiver:
    """One run of the command."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._write = _writer(options)
        self._wanted: int | None = options.count
        self._timeout_s: float | None = options.timeout
        if not options.follow and options.count is None and options.timeout is None:
            self._timeout_s = _QUIET_S
        self._begun = self._done = self._failed = self._running = 0
        self._last = 0.0
        usual = _BROWSED if options.browse else _PREFETCH
        self._prefetch: int = options.prefetch or min(usual, options.count or usual)
        #: Browsed queues that may have more messages than were shown.
        self._cut: set[Subscription] = set()
        #: Number of messages that a stompkit broker has, and did not show.
        self._remaining = 0
        is_printing = sys.stdout.isatty() and not options.command
        self._progress = Progress("received", options.count, quiet=options.quiet or is_printing)
        self._over: Deferred[None] = Deferred()
        self._open = 0

    async def work(self, session: Session) -> int:
        """Receive until there is a reason to end; returns the exit status."""
        self._session = session
        session.on_signal(self._end)
        self._last = time.monotonic()
        try:
            for destination in self._options.destinations:
                subscription = await self._subscribe(session, destination)
                self._open += 1
                taking = Deferred.fromCoroutine(self._take(subscription))
                taking.addErrback(lambda failure: self._end(failure.value))
            if self._timeout_s is not None:
                self._look()
            await self._over
        finally:
            self._progress.end()
        if session.signal is not None and not self._options.follow:
            raise InterruptedSessionError(session.signal)
        if self._cut and self._done != self._wanted:
            print(
                f"stompkit receive: {amount(self._done, 'message')} shown; there may be more. The"
                f" broker sends at most {self._prefetch:,} to a browser: raise --prefetch",
                file=sys.stderr,
            )
        if self._remaining and self._done != self._wanted:
            print(
                f"stompkit receive: {amount(self._done, 'message')} shown,"
                f" {amount(self._remaining, 'message')} not: they are behind the window of the"
                " queue. `stompkit peek` shows all",
                file=sys.stderr,
            )
        if self._failed:
            print(
                f"stompkit receive: {amount(self._failed, 'command')} of {self._done:,} failed",
                file=sys.stderr,
            )
            return _FAILED
        if self._options.follow or (self._options.browse and not self._open):
            return 0
        return 0 if self._done >= (self._wanted or 1) else _NOTHING

    def _subscribe(self, session: Session, destination: str) -> Deferred[Subscription]:
        options = self._options
        headers: dict[str, str] = dict(reversed(options.headers))
        if options.selector is not None:
            headers["selector"] = options.selector
        if options.durable is not None:
            headers = {**durable_subscription(options.durable), **headers}
        if options.browse:
            headers["browser"] = "true"
        mode: AckMode = options.ack
        return session.client.subscribe(
            destination,
            ack=mode,
            headers=headers,
            prefetch=self._prefetch if mode != "auto" else None,
        )

    # Receiving.

    async def _take(self, subscription: Subscription) -> None:
        """Process the messages of a subscription."""
        taken = 0
        while True:
            try:
                first = await subscription.get()
            except SubscriptionEndedError as ended:
                if ended.reason is None:
                    return
                raise ended.reason from None
            for each in [first, *subscription.take(_PREFETCH, _TAKEN_BYTES)]:
                if self._over.called:
                    return
                if self._options.browse and each.headers.get("browser") == "end":
                    self._open -= 1
                    self._cut.discard(subscription)
                    remaining = each.headers.get("browser-remaining", "")
                    self._remaining += parse_number(remaining, _DIGITS) or 0
                    if not self._open:
                        self._end()
                    return
                if self._begun == self._wanted:
                    return
                self._begun += 1
                taken += 1
                if self._options.browse and taken == self._prefetch:
                    # Some brokers send no more, since nothing is acknowledged.
                    self._cut.add(subscription)
                await self._deal(each)

    async def _deal(self, message: Message) -> None:
        """Print a message or pass it to the command, and settle it."""
        self._running += 1
        self._last = time.monotonic()
        try:
            if self._options.command:
                await self._execute(message)
            else:
                self._write(message)
                sys.stdout.flush()
                if not self._options.browse:
                    await message.ack()
        finally:
            self._running -= 1
            self._last = time.monotonic()
        self._done += 1
        self._progress(self._done)
        if self._done == self._wanted:
            self._end()

    async def _execute(self, message: Message) -> None:
        status = await self._session.in_thread(lambda: _execute(self._options.command, message))
        if status == 0:
            await message.ack()
            return
        self._failed += 1
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with {status}"
        named = shown(message.headers.get("message-id", "?"))
        print(f"stompkit receive: the command ended {how} for {named}", file=sys.stderr)
        try:
            await message.nack()
        except LocalProtocolError:
            pass  # STOMP 1.0 has no NACK: the broker takes it back at disconnect

    # Ending.

    def _look(self) -> None:
        """End after the timeout without messages, or check again later."""
        assert self._timeout_s is not None
        left_s = self._last + self._timeout_s - time.monotonic()
        if self._running:
            left_s = self._timeout_s
        if left_s <= 0:
            self._end()
        if not self._over.called:
            self._session.reactor.callLater(left_s, self._look)

    def _end(self, reason: BaseException | None = None) -> None:
        if self._over.called:
            return
        if reason is None:
            self._over.callback(None)
        else:
            self._over.errback(reason)


def _writer(options: argparse.Namespace) -> Callable[[Message], None]:
    """Return the function that prints a message."""
    output = sys.stdout
    style = Style(output)

    def write_json(message: Message) -> None:
        print(to_line(message.headers, message.body))

    def write_raw(message: Message) -> None:
        output.flush()
        output.buffer.write(message.body)
        output.buffer.flush()

    def write_text(message: Message) -> None:
        if options.shows:
            for name, value in message.headers.items():
                print(f"{style(shown(name), 'cyan')}:{shown(value)}")
            print()
        print(_text(message.body, is_for_people=output.isatty()))
        if options.shows:
            print()

    return write_json if options.json else write_raw if options.raw else write_text


def _text(body: bytes, *, is_for_people: bool) -> str:
    """Return a body as text, without control sequences for a terminal."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return f"({amount(len(body), 'octet')}) {body.hex(' ')}"
    if not is_for_people:
        return text
    return "\n".join(shown(line.replace("\t", "    ")) for line in text.split("\n"))


def _execute(command: str, message: Message) -> int:
    """Run the command; returns its exit status, negative for a signal."""
    variables = {
        f"STOMP_{_NO_NAME.sub('_', name.upper())}": value
        for name, value in message.headers.items()
        if "\0" not in value
    }
    done = subprocess.run(
        command, shell=True, input=message.body, env={**os.environ, **variables}, check=False
    )
    return done.returncode
