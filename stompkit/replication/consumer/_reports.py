"""What a consumer reports: why it has ended, what people should know, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from stompkit.replication.consumer._sequencer import Gap

__all__ = [
    "ConsumerProblem",
    "ConsumerStatus",
    "PoisonFrame",
    "Problem",
    "ProblemKind",
    "SequenceGap",
    "Teller",
    "WindowTooSmall",
]

#: See :class:`Problem`.
ProblemKind = Literal["gap", "skipped", "late", "dead-letter", "retry"]


class ConsumerProblem(Exception):
    """The consumer can't go on; ``str()`` says why, and what to do."""


class SequenceGap(ConsumerProblem):
    """A changeset is missing; ``gap`` says which."""

    def __init__(self, gap: Gap, more: str = "") -> None:
        """Keep what is missing."""
        super().__init__(f"{gap}{more}")
        self.gap = gap


class PoisonFrame(ConsumerProblem):
    """A frame is no changeset, and there is no destination for dead letters."""


class WindowTooSmall(ConsumerProblem):
    """A changeset has more frames, or octets, than may be held until it is whole."""


class Teller(Protocol):
    """Tells people of a problem."""

    def __call__(
        self,
        kind: ProblemKind,
        text: str,
        origin: str = "",
        sequence: int | None = None,
        error: BaseException | None = None,
    ) -> None:
        """See :class:`Problem`."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something that people should know, and that does not end the consumer."""

    kind: ProblemKind
    """A gap that lasts; one that was passed over; a changeset that came when its turn was over;
    one that went to the dead letters; or a failure of the sink, which is tried again."""
    text: str
    origin: str = ""
    """Of the changeset; empty where that is not known."""
    sequence: int | None = None
    error: BaseException | None = None


@dataclass(frozen=True, kw_only=True)
class ConsumerStatus:
    """How far a consumer is; numbers count from its beginning."""

    applied: int = 0
    """Changesets."""
    changes: int = 0
    """Changes of rows."""
    repeats: int = 0
    """Frames that had come before."""
    dead_letters: int = 0
    """Changesets, and frames that were none."""
    held_back: int = 0
    """Frames that wait, now, for others that are missing."""
    lag_s: float | None = None
    """The age of the newest changeset when it had been applied, in seconds, by the source's clock
    and ours; ``None`` before the first."""
    last: Mapping[str, int] = field(default_factory=dict)
    """The number of the last changeset that was applied, by origin."""
