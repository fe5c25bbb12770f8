"""Dead letters: frames that can't be applied, on their way to where people look at them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from stompkit.link import Link
from stompkit.replication.consumer._copies import Arrival
from stompkit.replication.consumer._reports import PoisonFrame, Teller
from stompkit.replication.consumer._retry_policy import LOOK_S, Stopped, Stopping
from stompkit.replication.events import Changeset, RowChange
from stompkit.replication.frames import Packet, packets
from stompkit.replication.sinks import ApplyProblem, Refused

__all__ = ["DeadLetters", "Kind"]

#: ``frame``: it is no changeset, or no part of one. ``apply``: the sink can't apply it.
Kind = Literal["frame", "apply"]

#: What a broker says about a delivery, or would take for an order; the rest is the sender's.
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
#: Brokers bound the size of a header, ActiveMQ to 10,240 octets.
_MOST_CHARACTERS: Final = 1000


class DeadLetters:
    """Sends what can't be applied to a destination, if there is one."""

    def __init__(self, link: Link, destination: str | None, original: str, tell: Teller) -> None:
        """Send to ``destination`` what comes from ``original``."""
        self._link = link
        self._destination = destination
        self._original = original
        self._tell = tell
        #: How many changesets, and frames that were none.
        self.count = 0

    def bury(
        self,
        arrivals: Sequence[Arrival],
        kind: Kind,
        reason: str,
        error: Exception | None,
        stopping: Stopping,
        changeset: Changeset | None = None,
    ) -> None:
        """Send the frames, of ``changeset`` if they are of any, and wait until a broker has them.

        Raises the error, or :class:`PoisonFrame` for it, where there is no destination;
        :class:`Stopped`; and what sending fails with.
        """
        if self._destination is None:
            if isinstance(error, ApplyProblem):
                raise error
            raise PoisonFrame(
                f"a frame from {self._original} is no changeset, and there is no destination for "
                f"dead letters: {reason}"
            ) from error
        self._send(_letters(arrivals, self._original, reason, kind), stopping)
        self.count += 1
        origin, sequence = (changeset.origin, changeset.sequence) if changeset else ("", None)
        what = f"changeset {sequence} of {origin}" if changeset else "a frame"
        text = f"{what} went to {self._destination}: {reason}"
        self._tell("dead-letter", text, origin, sequence, error)

    def bury_changes(
        self,
        arrivals: Sequence[Arrival],
        refused: Sequence[Refused],
        stopping: Stopping,
        changeset: Changeset,
    ) -> None:
        """Send a frame for each change that is refused, and wait until a broker has them.

        It is the changeset with this change alone, under the same id and number. Raises
        :class:`~stompkit.replication.sinks.ApplyProblem` where there is no destination,
        :class:`Stopped`, and what sending fails with.
        """
        if self._destination is None:
            raise ApplyProblem(refused[0].reason)
        letters = [
            letter
            for each in refused
            for letter in _letters(
                _alone(changeset, each.change, arrivals), self._original, each.reason, "apply"
            )
        ]
        self._send(letters, stopping)
        for each in refused:
            self.count += 1
            text = f"a change of changeset {changeset.sequence} of {changeset.origin} went to"
            self._tell(
                "dead-letter",
                f"{text} {self._destination}: {each.reason}",
                changeset.origin,
                changeset.sequence,
                None,
            )

    @property
    def has_destination(self) -> bool:
        """Whether there is somewhere to send them."""
        return self._destination is not None

    def _send(self, frames: Iterable[Packet], stopping: Stopping) -> None:
        assert self._destination is not None
        sent = self._link.send(self._destination, frames)
        while True:
            try:
                sent.result(LOOK_S)
                return
            except FutureTimeout:
                if stopping.is_set:
                    raise Stopped from None


@dataclass(frozen=True)
class _Made:
    """A frame that is made of a part of those that have arrived; an :class:`Arrival`."""

    headers: Mapping[str, str]
    body: bytes
    is_stale: bool = False


def _alone(
    changeset: Changeset, change: RowChange, arrivals: Sequence[Arrival]
) -> Iterator[Arrival]:
    """A changeset with one of its changes, with the headers that its first frame has come with."""
    came = dict(arrivals[0].headers) if arrivals else {}
    one = msgspec.structs.replace(changeset, changes=(change,))
    for packet in packets(one):
        yield _Made({**came, **packet.headers}, packet.body)


def _letters(
    arrivals: Iterable[Arrival], destination: str, reason: str, kind: Kind
) -> Iterator[Packet]:
    """The frames with their own headers, and with those that say why they are here.

    These are ``dead-letter-reason``, ``dead-letter-kind``, ``original-destination`` and, where the
    broker has said it, ``original-message-id``.
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


def _in_a_line(reason: str) -> str:
    """Text that STOMP 1.0 can carry, too, which has no escapes."""
    words = "".join(each if each.isprintable() else " " for each in reason).split()
    return " ".join(words)[:_MOST_CHARACTERS] or "no reason was given"
