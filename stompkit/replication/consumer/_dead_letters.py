"""Dead letters: frames that cannot be applied, sent to a separate destination."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from stompkit.client.blocking import Link
from stompkit.replication.consumer._copies import Arrival
from stompkit.replication.consumer._reports import PoisonFrameError, Reporter
from stompkit.replication.consumer.retry_policy import LOOK_S, ConsumerStoppedError, Stopping
from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.frames import Packet, packets
from stompkit.replication.sinks import ApplyError, Refused

__all__ = ["DeadLetters", "Kind"]

#: ``frame``: not a changeset, nor a part of one. ``apply``: the sink cannot apply it.
Kind = Literal["frame", "apply"]

#: Headers that describe the delivery or instruct the broker; the others are the sender's.
_OF_THE_DELIVERY: Final = frozenset(
    {
        "ack",
        "content-length",
        "destination",
        "expiration",
        "expires",
        "message-id",
        "receipt",
        "redelivered",
        "subscription",
        "transaction",
    }
)
#: Separates the id of the changeset or frame from the rest of a dead letter's ``event-id``.
_MARK: Final = ".dead."
_DIGEST_OCTETS: Final = 16
#: Brokers limit the size of a header; ActiveMQ to 10,240 bytes.
_MOST_CHARACTERS: Final = 1000


class DeadLetters:
    """Sends frames that cannot be applied to the dead-letter destination, if there is one."""

    def __init__(
        self, link: Link, destination: str | None, original: str, report: Reporter
    ) -> None:
        """Send frames received from ``original`` to ``destination``."""
        self._link = link
        self._destination = destination
        self._original = original
        self._report = report
        #: Number of changesets and invalid frames sent.
        self.count = 0

    def send(
        self,
        arrivals: Sequence[Arrival],
        kind: Kind,
        reason: str,
        error: Exception | None,
        stopping: Stopping,
        changeset: Changeset | None = None,
    ) -> None:
        """Send the frames, of ``changeset`` if valid, and wait for the broker's confirmation.

        If there is no destination, raises the error, or :class:`PoisonFrameError` for it. Also
        raises :class:`ConsumerStoppedError`, and errors of sending.
        """
        if self._destination is None:
            if isinstance(error, ApplyError):
                raise error
            raise PoisonFrameError(
                f"a frame from {self._original} is no changeset, and there is no destination for "
                f"dead letters: {reason}"
            ) from error
        self._send(_dead_letters(arrivals, self._original, reason, kind), stopping)
        self.count += 1
        origin, sequence = (changeset.origin, changeset.sequence) if changeset else ("", None)
        what = f"changeset {sequence} of {origin}" if changeset else "a frame"
        text = f"{what} went to {self._destination}: {reason}"
        self._report("dead-letter", text, origin, sequence, error)

    def send_changes(
        self,
        arrivals: Sequence[Arrival],
        refused: Sequence[Refused],
        stopping: Stopping,
        changeset: Changeset,
    ) -> None:
        """Send a frame for each refused change, and wait for the broker's confirmation.

        Each frame is the changeset with this change only, with the same id and number. Raises
        :class:`~stompkit.replication.sinks.ApplyError` if there is no destination,
        :class:`ConsumerStoppedError`, and errors of sending.
        """
        if self._destination is None:
            raise ApplyError(refused[0].reason)
        frames = [
            frame
            for each in refused
            for frame in _dead_letters(
                _alone(changeset, each.change, arrivals), self._original, each.reason, "apply"
            )
        ]
        self._send(frames, stopping)
        for each in refused:
            self.count += 1
            text = f"a change of changeset {changeset.sequence} of {changeset.origin} went to"
            self._report(
                "dead-letter",
                f"{text} {self._destination}: {each.reason}",
                changeset.origin,
                changeset.sequence,
                None,
            )

    @property
    def has_destination(self) -> bool:
        """True if there is a dead-letter destination."""
        return self._destination is not None

    def _send(self, frames: Iterable[Packet], stopping: Stopping) -> None:
        assert self._destination is not None
        sent = self._link.send(self._destination, _identified(frames))
        while True:
            try:
                sent.result(LOOK_S)
                return
            except FutureTimeout:
                if stopping.is_set:
                    raise ConsumerStoppedError from None


@dataclass(frozen=True)
class _Made:
    """A frame made from a part of the received frames; an :class:`Arrival`."""

    headers: Mapping[str, str]
    body: bytes
    is_stale: bool = False


def _alone(
    changeset: Changeset, change: RowChange, arrivals: Sequence[Arrival]
) -> Iterator[Arrival]:
    """Yield a changeset with one of its changes, with the headers of its first frame."""
    first = dict(arrivals[0].headers) if arrivals else {}
    one = msgspec.structs.replace(changeset, changes=(change,))
    for packet in packets(one):
        # The received frame's id is kept for _identified(), which makes one for each dead letter.
        headers = {**first, **packet.headers}
        yield _Made(
            {**headers, "event-id": first.get("event-id", headers["event-id"])}, packet.body
        )


def _dead_letters(
    arrivals: Iterable[Arrival], destination: str, reason: str, kind: Kind
) -> Iterator[Packet]:
    """Yield the frames with their own headers, and with headers that give the reason.

    These are ``dead-letter-reason``, ``dead-letter-kind``, ``original-destination`` and, if the
    broker has sent one, ``original-message-id``.
    """
    for arrival in arrivals:
        kept = {
            name: value
            for name, value in arrival.headers.items()
            if name.lower() not in _OF_THE_DELIVERY
        }
        more = {
            "dead-letter-reason": _in_a_line(reason),
            "dead-letter-kind": kind,
            "original-destination": arrival.headers.get("destination", destination),
            "persistent": "true",
        }
        number = arrival.headers.get("message-id")
        if number is not None:
            more["original-message-id"] = number
        yield Packet({**kept, **more}, arrival.body)


def _identified(frames: Iterable[Packet]) -> Iterator[Packet]:
    """Yield the frames with an ``event-id`` for each, if the received frame had one.

    Spools and bridges drop a message whose id they have seen. A redelivered frame has the same ids
    again. A dead letter that was sent back and failed again has others.
    """
    seen: Counter[tuple[str, bytes]] = Counter()
    for frame in frames:
        received = frame.headers.get("event-id", "")
        if not received:
            yield frame
            continue
        content = hashlib.sha256(frame.body).digest()
        number = seen[received, content]
        seen[received, content] += 1
        digest = hashlib.sha256(f"{received}\n{number}\n".encode() + content).digest()
        name = f"{received.partition(_MARK)[0]}{_MARK}{digest[:_DIGEST_OCTETS].hex()}"
        yield Packet({**frame.headers, "event-id": name}, frame.body)


def _in_a_line(reason: str) -> str:
    """Return the text in one line, because STOMP 1.0 has no escapes."""
    words = "".join(each if each.isprintable() else " " for each in reason).split()
    return " ".join(words)[:_MOST_CHARACTERS] or "no reason was given"
