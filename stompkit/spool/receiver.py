"""Receiving messages from a broker into a spool: written to disk first, then acknowledged.

A broker redelivers a message if the acknowledgement was lost, or the process was killed before it.
The receiver recognises such a message by the header ``event-id`` if the producer has set one,
otherwise by the broker's ``message-id``, and does not write it twice. So a message is in the spool
exactly once, as long as the broker keeps it and its id stays the same.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol, get_args

from stompkit._common.retry import Backoff
from stompkit.client import AckMode, ClientClosedError
from stompkit.client.blocking import (
    BrokerUrl,
    Delivery,
    Inbox,
    Link,
    LinkClosedError,
    durable_subscription,
)
from stompkit.spool._receiving import ReceiverStatus
from stompkit.spool.segments.records import Record

__all__ = ["Appending", "Receiver", "ReceiverStatus", "subscription_name"]

_log: Final = logging.getLogger(__name__)
#: Time in seconds between two checks of a wait's stop condition.
_LOOK_S: Final = 0.1
#: Number of checks for a complete group within the time of a group.
_SLICES: Final = 4
#: Default number of groups that a broker sends ahead of their acknowledgements.
_GROUPS_AHEAD: Final = 4
#: Back-off in seconds after a disk error: initial and maximum.
_BACKOFF_S: Final = 0.1
_MAX_BACKOFF_S: Final = 5.0
_ACK_MODES: Final = get_args(AckMode)

#: Messages that are written together.
_Group = dict[Inbox, list[Delivery]]


class Appending(Protocol):
    """The interface that the receiver needs from :class:`stompkit.spool.SpoolWriter`."""

    def append(self, records: Sequence[Record]) -> int:
        """Write messages durably; return the number of new ones."""


class Receiver:
    """Receives messages of some destinations into a spool, in the caller's thread or its own.

    It reconnects after a lost connection, to the next of several brokers. While the disk cannot be
    written it acknowledges no message, and retries. The broker keeps the messages meanwhile, and
    sends at most ``prefetch`` ahead.
    """

    def __init__(
        self,
        source: BrokerUrl,
        destinations: Sequence[str],
        writer: Appending,
        *,
        ack: AckMode = "client-individual",
        receipts: bool = True,
        selector: str = "",
        durable: str = "",
        group_messages: int = 500,
        group_s: float = 0.02,
        prefetch: int | None = None,
        headers: Mapping[str, str] | None = None,
        on_group: Callable[[int, int], object] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create a receiver that is not connected yet.

        ``source`` names the brokers; its destination is ignored. ``destinations`` are spelled as
        the broker requires, wildcards included. Messages are written and then acknowledged in
        groups of ``group_messages``, or of the messages received within ``group_s`` seconds.

        In the mode ``client`` one acknowledgement covers a whole group, as STOMP specifies, which
        costs less than one per message. The mode ``auto`` is for brokers without acknowledgements:
        received messages that are not written yet are lost if the process is killed. Without
        ``receipts``, for brokers that do not support them, the receiver does not wait for the
        answer to SUBSCRIBE.

        ``selector`` filters messages. ``durable`` makes brokers keep the messages of topics while
        the receiver is disconnected: see :func:`subscription_name`. ``prefetch`` is the maximum
        number of received, unacknowledged messages of one destination; by default four groups.
        ``headers`` are additional headers of SUBSCRIBE. ``on_group`` is called for each group on
        disk, in the receiving thread, with the number of messages and the number of new ones.
        ``clock`` returns seconds since 1970. Raises ``ValueError`` for invalid arguments.
        """
        if ack not in _ACK_MODES:
            raise ValueError(f"ack is one of {', '.join(_ACK_MODES)}, not {ack!a}")
        if not destinations or not all(destinations):
            raise ValueError("a receiver needs a destination, such as /queue/orders")
        if len(set(destinations)) < len(destinations):
            raise ValueError("each destination is named once")
        if group_messages < 1 or group_s < 0 or (prefetch is not None and prefetch < 1):
            raise ValueError("group_messages and prefetch are at least 1, group_s is at least 0")
        self._source = source
        self._destinations = tuple(destinations)
        self._writer = writer
        self._ack: AckMode = ack
        self._receipts = receipts
        self._durable = durable
        self._selector = selector
        self._headers = dict(headers or {})
        self._prefetch = prefetch or group_messages * _GROUPS_AHEAD
        # The receiver would wait in vain for a group that the broker never sends as a whole.
        self._most = min(group_messages, max(1, self._prefetch // 2))
        self._group_s = group_s
        self._on_group = on_group
        self._clock = clock
        self._stop = threading.Event()
        self._arrived = threading.Event()
        self._thread: threading.Thread | None = None
        self._link: Link | None = None
        self._inboxes: tuple[Inbox, ...] = ()
        self._in_hand = 0
        self._received = self._duplicates = self._groups = 0
        self._last = (0, 0.0)
        self._disk_problem = self._link_problem = ""
        self._failure: Exception | None = None

    # Public methods.

    def status(self) -> ReceiverStatus:
        """Return the status of the receiver; from any thread."""
        link = self._link
        messages, seconds = self._last
        return ReceiverStatus(
            connected=link is not None and link.is_connected,
            received=self._received,
            duplicates=self._duplicates,
            waiting=self._in_hand + sum(inbox.count for inbox in self._inboxes),
            groups=self._groups,
            last_group_messages=messages,
            last_group_s=seconds,
            problem=self._disk_problem or self._link_problem,
            failure=self._failure,
        )

    def run(self, stop: threading.Event | None = None) -> None:
        """Receive until ``stop`` is set or :meth:`stop` is called.

        Raises :class:`stompkit.client.blocking.LinkClosedError` if the login is refused or a
        subscription ends,
        :class:`stompkit.client.BrokerError` if a subscription is refused, and the writer's errors
        other than OSError. The status contains these errors, too.
        """
        try:
            self._run(lambda: self._stop.is_set() or (stop is not None and stop.is_set()))
        except Exception as error:
            self._failure = error
            raise

    def start(self) -> None:
        """Receive in a new daemon thread."""
        self._thread = threading.Thread(target=self._main, name="stompkit-receiver", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the group that is being written; returns at once, from any thread."""
        self._stop.set()
        self._arrived.set()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the thread to end; raises the error that ended it, and TimeoutError."""
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                raise TimeoutError("the receiver has not ended in time")
        if self._failure is not None:
            raise self._failure

    # Internal.

    def _main(self) -> None:
        try:
            self.run()
        except Exception as error:
            _log.info("receiving has ended: %s", error)

    def _run(self, is_over: Callable[[], bool]) -> None:
        with self._source.link(
            receipts=self._receipts,
            # ActiveMQ and Artemis identify a durable subscriber by its client id.
            connect_headers={"client-id": self._durable} if self._durable else None,
            on_connected=self._connected,
            on_disconnected=self._disconnected,
        ) as link:
            self._link = link
            try:
                inboxes = [self._subscribe(link, each, is_over) for each in self._destinations]
            except TimeoutError:
                return  # the receiver was stopped
            self._inboxes = tuple(inboxes)
            while not is_over():
                # The inboxes take turns as the first, so that a busy one does not starve the
                # others.
                inboxes.append(inboxes.pop(0))
                if group := self._collect(inboxes, is_over):
                    self._store(group, is_over)
            if self._ack == "auto":
                self._take_rest(inboxes)

    def _connected(self) -> None:
        self._link_problem = ""

    def _disconnected(self, reason: Exception) -> None:
        if not isinstance(reason, ClientClosedError):
            self._link_problem = f"no connection to a broker: {reason}"

    def _subscribe(self, link: Link, destination: str, is_over: Callable[[], bool]) -> Inbox:
        headers = {"selector": self._selector} if self._selector else {}
        if self._durable:
            headers |= durable_subscription(subscription_name(self._durable, destination))
        return link.subscribe(
            destination,
            ack=self._ack,
            prefetch=self._prefetch,
            headers=headers | self._headers,
            on_arrival=self._arrived.set,
            timeout_s=None,
            stop=is_over,
        )

    def _collect(self, inboxes: Sequence[Inbox], is_over: Callable[[], bool]) -> _Group:
        """Return the messages to write together; empty if none arrive for a while."""
        group: _Group = {}
        count = 0
        deadline = 0.0
        while True:
            self._arrived.clear()
            try:
                for inbox in inboxes:
                    if count < self._most and (taken := inbox.take(self._most - count)):
                        group.setdefault(inbox, []).extend(taken)
                        count += len(taken)
            except LinkClosedError:
                if group:  # the next call raises it again
                    return group
                raise
            self._in_hand = count
            if not group:
                if is_over() or not self._arrived.wait(_LOOK_S):
                    return group
                continue
            now = time.monotonic()
            deadline = deadline or now + self._group_s
            if count >= self._most or now >= deadline or is_over():
                return group
            # Do not wake up for the next message: two alternating threads have a low throughput.
            time.sleep(min(self._group_s / _SLICES, deadline - now, _LOOK_S))

    def _store(self, group: _Group, is_over: Callable[[], bool]) -> None:
        """Write messages and acknowledge them; retry until the receiver is stopped."""
        backoff = Backoff(_BACKOFF_S, _MAX_BACKOFF_S)
        while True:
            # The broker redelivers messages that can no longer be acknowledged, some with another
            # id.
            live = {
                inbox: [each for each in deliveries if not each.is_stale]
                for inbox, deliveries in group.items()
            }
            records = self._records(live)
            begun = time.monotonic()
            try:
                new = self._writer.append(records) if records else 0
                break
            except OSError as error:
                if not self._disk_problem:
                    _log.warning("the spool cannot be written, which is tried again: %s", error)
                self._disk_problem = f"the spool cannot be written: {error}"
            if self._has_ended(is_over, begun + backoff.fail()):
                return
        self._disk_problem = ""
        for inbox, deliveries in live.items():
            inbox.ack(deliveries)
        self._in_hand = 0
        if records:
            self._count(len(records), new, time.monotonic() - begun)

    def _records(self, group: _Group) -> list[Record]:
        received_us = int(self._clock() * 1_000_000)
        return [
            Record(
                received_us,
                (get := delivery.headers.get)("destination", ""),
                get("message-id", ""),
                get("event-id", ""),
                get("content-type", ""),
                tuple(delivery.headers.items()),
                delivery.body,
            )
            for deliveries in group.values()
            for delivery in deliveries
        ]

    def _count(self, messages: int, new: int, seconds: float) -> None:
        self._last = (messages, seconds)
        self._groups += 1
        self._received += new
        self._duplicates += messages - new
        if self._on_group is not None:
            self._on_group(messages, new)

    def _has_ended(self, is_over: Callable[[], bool], until: float) -> bool:
        """Wait until a monotonic time; return True if the receiver is stopped before."""
        while not is_over():
            left = until - time.monotonic()
            if left <= 0:
                return False
            self._stop.wait(min(left, _LOOK_S))
        return True

    def _take_rest(self, inboxes: Sequence[Inbox]) -> None:
        """Store the messages that have already arrived and would not be redelivered."""
        for inbox in inboxes:
            inbox.close()
            with suppress(LinkClosedError):
                while taken := inbox.take(self._most, _LOOK_S):
                    self._store({inbox: taken}, lambda: True)


def subscription_name(durable: str, destination: str) -> str:
    """Return the name of a durable subscription at the broker, one for each destination."""
    return f"{durable}-{re.sub(r'[^A-Za-z0-9_.]+', '-', destination).strip('-')}"
