"""What becomes of gaps that last, and of what can't be held until it is whole."""

from __future__ import annotations

from typing import Any, Literal, get_args

from stompkit.replication.consumer._reports import SequenceGap, Teller, WindowTooSmall
from stompkit.replication.consumer._sequencer import Gap, Sequencer

__all__ = ["GapPolicy", "GapWatch"]

#: What becomes of a gap that lasts: go on waiting, stop with an error, or go on behind it.
GapPolicy = Literal["wait", "stop", "skip"]


class GapWatch:
    """Looks at the gaps of a line, and does what the policy says."""

    def __init__(self, policy: GapPolicy, timeout_s: float, tell: Teller) -> None:
        """A gap lasts when it is ``timeout_s`` seconds old; raises ``ValueError``."""
        if policy not in get_args(GapPolicy):
            raise ValueError(f"gap is wait, stop or skip, not {policy!r}")
        self._policy = policy
        self._timeout_s = timeout_s
        self._tell = tell
        #: What was told last of an origin, and when.
        self._told: dict[str, tuple[int, float]] = {}

    def look(self, line: Sequencer[Any], now: float, *, is_stuck: bool) -> None:
        """Deal with the gaps there are; ``is_stuck`` says that no more can come while they last.

        Raises :class:`SequenceGap` and :class:`WindowTooSmall`.
        """
        gaps = line.gaps(now)
        if is_stuck and all(gap.found is None for gap in gaps):
            raise WindowTooSmall(
                f"{line.frames} frames with {line.size} octets are held, which is all that prefetch"
                ", hold_back and max_bytes allow, and no changeset is whole: "
                + "; ".join(map(str, gaps))
            )
        for gap in gaps:
            is_over = gap.waited_s >= self._timeout_s
            if gap.found is None:
                # Its publisher may be away; nothing waits for it.
                if is_over:
                    self._remind(gap, now)
            elif (is_over or is_stuck) and self._policy == "skip":
                line.skip(gap, now)
                self._tell("skipped", f"{gap}; it is passed over", gap.origin, gap.missing)
            elif is_stuck:
                raise SequenceGap(gap, "; no more can be held")
            elif is_over and self._policy == "stop":
                raise SequenceGap(gap)
            elif is_over:
                self._remind(gap, now)

    def _remind(self, gap: Gap, now: float) -> None:
        """Tell of a gap, but not all the time."""
        missing, told_at = self._told.get(gap.origin, (None, now))
        if missing != gap.missing or now - told_at >= self._timeout_s:
            self._told[gap.origin] = (gap.missing, now)
            self._tell("gap", str(gap), gap.origin, gap.missing)
