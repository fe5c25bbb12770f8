"""Measures a broker, for ``stompkit bench``."""

from __future__ import annotations

import argparse
import json
import struct
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final
from uuid import uuid4

from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.python.failure import Failure

from stompkit._commands.shared.broker_options import Broker
from stompkit._commands.shared.progress import Progress
from stompkit._commands.shared.session import InterruptedSessionError, Session, run
from stompkit._commands.shared.text import aligned
from stompkit.client import Client, ClientError, Subscription, SubscriptionEndedError

__all__ = ["bench"]

#: Header of a body: producer, message number, and time of sending in ns.
_HEAD: Final = struct.Struct("!IIQ")
#: Time in seconds without messages, after which the missing ones count as lost.
_LOST_S: Final = 10.0
_TAKEN: Final = 100
_TAKEN_BYTES: Final = 1024 * 1024
_SHARES: Final = (0.5, 0.9, 0.99, 0.999)


def bench(broker: Broker, options: argparse.Namespace) -> int:
    """Measure a broker and print the results; returns the exit status."""
    work = _Bench(broker, options)
    status = run("bench", broker, work.all)
    return status


class _Bench:
    """One measurement."""

    def __init__(self, broker: Broker, options: argparse.Namespace) -> None:
        self._broker = broker
        self._options = options
        self._destination = options.destination or f"/queue/stompkit-bench-{uuid4().hex}"
        self._progress = Progress("received", options.count, quiet=options.quiet)
        self._seen: Counter[tuple[int, int]] = Counter()
        self._latencies: list[int] = []
        self._disordered = 0
        self._last = 0.0
        self._confirmed_s = 0.0
        self._over: Deferred[None] = Deferred()

    async def all(self, session: Session) -> int:
        """Run the measurement; returns the exit status."""
        session.on_signal(self._end)
        options = self._options
        clients: list[Client] = []
        began = time.monotonic()
        try:
            for _ in range(options.consumers):
                clients.append(await self._client(session))
                subscription = await clients[-1].subscribe(
                    self._destination,
                    ack=options.ack,
                    prefetch=options.prefetch if options.ack != "auto" else None,
                )
                self._begin(self._receive(subscription))
            producers = [await self._client(session) for _ in range(options.producers)]
            clients += producers
            began = self._last = time.monotonic()
            for number, client in enumerate(producers):
                self._begin(self._send(number, client, began))
            self._look(session)
            await self._over
        finally:
            self._progress.end()
            for client in clients:
                # ACKs are in transit: DISCONNECT follows them.
                await client.disconnect()
        if session.signal is not None:
            raise InterruptedSessionError(session.signal)
        return self._report(self._last - began)

    async def _client(self, session: Session) -> Client:
        client = self._broker.client(session.reactor)
        await client.connect()
        return client

    def _begin(self, work: Any) -> None:
        Deferred.fromCoroutine(work).addErrback(lambda failure: self._end(failure.value))

    async def _send(self, producer: int, client: Client, began: float) -> None:
        options = self._options
        share, more = divmod(options.count, options.producers)
        rest = b"x" * max(options.size - _HEAD.size, 0)
        headers = {"persistent": "true"} if options.persistent else {}
        window = DeferredSemaphore(options.window)

        def confirmed(result: object) -> None:
            if isinstance(result, Failure):
                self._end(result.value)
            window.release()

        for number in range(share + (producer < more)):
            await window.acquire()
            if self._over.called:
                return
            body = _HEAD.pack(producer, number, time.monotonic_ns()) + rest
            client.send(
                self._destination, body, headers, receipt=options.receipts, wait=True
            ).addBoth(confirmed)
        for _ in range(options.window):
            await window.acquire()
        self._confirmed_s = max(self._confirmed_s, time.monotonic() - began)

    async def _receive(self, subscription: Subscription) -> None:
        last: dict[int, int] = {}
        while not self._over.called:
            try:
                first = await subscription.get()
            except SubscriptionEndedError as ended:
                if ended.reason is None:
                    return
                raise ended.reason from None
            messages = [first, *subscription.take(_TAKEN, _TAKEN_BYTES)]
            now = time.monotonic_ns()
            for message in messages:
                if len(message.body) < _HEAD.size:
                    raise ClientError(f"{self._destination} has messages of somebody else in it")
                producer, number, sent = _HEAD.unpack_from(message.body)
                self._seen[producer, number] += 1
                self._latencies.append(now - sent)
                self._disordered += number < last.get(producer, -1)
                last[producer] = number
            subscription.ack_all(messages)
            self._last = time.monotonic()
            self._progress(len(self._latencies))
            if len(self._seen) == self._options.count:
                self._end()

    def _look(self, session: Session) -> None:
        """End if nothing has arrived for too long."""
        left_s = self._last + _LOST_S - time.monotonic()
        if left_s <= 0:
            self._end()
        if not self._over.called:
            session.reactor.callLater(left_s, self._look, session)

    def _end(self, reason: BaseException | None = None) -> None:
        if self._over.called:
            return
        if reason is None:
            self._over.callback(None)
        else:
            self._over.errback(reason)

    def _report(self, seconds: float) -> int:
        count = self._options.count
        received = len(self._latencies)
        missing, repeated = count - len(self._seen), received - len(self._seen)
        latencies = sorted(self._latencies)
        found = {
            "messages": count,
            "seconds": round(seconds, 3),
            "received_per_s": round(len(self._seen) / seconds, 1) if seconds > 0 else None,
            "confirmed_per_s": (
                round(count / self._confirmed_s, 1)
                if self._confirmed_s and self._options.receipts
                else None
            ),
            "latency_ms": {
                **{f"p{share * 100:g}": _share(latencies, share) for share in _SHARES},
                "max": _share(latencies, 1.0),
            },
            "missing": missing,
            "repeated": repeated,
            "out_of_order": self._disordered,
        }
        print(json.dumps(found) if self._options.json else "\n".join(_table(found)))
        # Several consumers may each return messages, which another one receives late.
        is_disordered = self._disordered and self._options.consumers == 1
        return 1 if missing or repeated or is_disordered else 0


def _share(ordered: Sequence[int], share: float) -> float | None:
    """Return a quantile of sorted latencies in ns, as ms; ``None`` if there are none."""
    if not ordered:
        return None
    index = min(int(share * len(ordered)), len(ordered) - 1)
    return round(ordered[index] / 1e6, 3)


def _table(found: dict[str, Any]) -> list[str]:
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:,.0f}"

    rows = [
        ("messages", number(found["messages"]), ""),
        ("time", f"{found['seconds']:,.2f}", "s"),
        ("received", number(found["received_per_s"]), "messages/s"),
        ("confirmed", number(found["confirmed_per_s"]), "messages/s"),
    ]
    for name, value in found["latency_ms"].items():
        rows.append((f"latency {name}", "-" if value is None else f"{value:,.1f}", "ms"))
    rows += [(name.replace("_", " "), number(found[name]), "") for name in _FAULTS]
    return aligned(rows, right=(1,))


_FAULTS: Final = ("missing", "repeated", "out_of_order")
