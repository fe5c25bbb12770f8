"""Reports of a consumer: errors, problems and status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from stompkit.replication.consumer._sequencer import Gap

__all__ = [
    "ConsumerError",
    "ConsumerStatus",
    "PoisonFrameError",
    "Problem",
    "ProblemKind",
    "Reporter",
    "SequenceGapError",
    "WindowTooSmallError",
]

#: See :class:`Problem`.
ProblemKind = Literal["gap", "skipped", "late", "dead-letter", "retry"]


class ConsumerError(Exception):
    """The consumer cannot continue; ``str()`` gives the reason and the remedy."""


class SequenceGapError(ConsumerError):
    """A changeset is missing; ``gap`` describes it."""

    def __init__(self, gap: Gap, more: str = "") -> None:
        """Store the gap."""
        super().__init__(f"{gap}{more}")
        self.gap = gap


class PoisonFrameError(ConsumerError):
    """A frame is not a valid changeset, and there is no dead-letter destination."""


class WindowTooSmallError(ConsumerError):
    """A changeset has more frames or bytes than may be held until it is complete."""


class Reporter(Protocol):
    """Reports a problem to the user."""

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
    """A problem that the user should know, and that does not end the consumer."""

    kind: ProblemKind
    """Kind: a persistent gap; a skipped gap; a changeset that arrived after it was skipped;
    a dead letter; or a failure of the sink that is retried.
    """
    text: str
    origin: str = ""
    """Origin of the changeset; empty if unknown."""
    sequence: int | None = None
    error: BaseException | None = None


@dataclass(frozen=True, kw_only=True)
class ConsumerStatus:
    """Status of a consumer; the counts start with the consumer."""

    applied: int = 0
    """Number of applied changesets."""
    changes: int = 0
    """Number of applied row changes."""
    repeats: int = 0
    """Number of duplicate frames."""
    dead_letters: int = 0
    """Number of changesets and invalid frames sent to the dead letters."""
    held_back: int = 0
    """Number of frames that currently wait for missing ones."""
    lag_s: float | None = None
    """Age in seconds of the newest changeset when it was applied, from the source's clock to the
    local one; ``None`` before the first.
    """
    last: Mapping[str, int] = field(default_factory=dict)
    """Number of the last applied changeset, by origin."""
