"""Policies for persistent gaps, and for changesets too large to be held."""

from __future__ import annotations

from typing import Any, Literal, get_args

from stompkit.replication.consumer._reports import Reporter, SequenceGapError, WindowTooSmallError
from stompkit.replication.consumer._sequencer import Gap, Sequencer

__all__ = ["GapPolicy", "GapWatch"]

#: Policy for a persistent gap: keep waiting, stop with an error, or skip the gap.
GapPolicy = Literal["wait", "stop", "skip"]


class GapWatch:
    """Checks the gaps of a sequencer, and applies the policy."""

    def __init__(self, policy: GapPolicy, timeout_s: float, report: Reporter) -> None:
        """Report gaps that are ``timeout_s`` seconds old; raises ``ValueError``."""
        if policy not in get_args(GapPolicy):
            raise ValueError(f"gap is wait, stop or skip, not {policy!r}")
        self._policy = policy
        self._timeout_s = timeout_s
        self._report = report
        #: Last reported gap of each origin, and the time of the report.
        self._reported: dict[str, tuple[int, float]] = {}

    def check(self, sequencer: Sequencer[Any], now: float, *, is_stuck: bool) -> None:
        """Handle the current gaps; ``is_stuck`` means that no more frames can arrive until then.

        Raises :class:`SequenceGapError` and :class:`WindowTooSmallError`.
        """
        gaps = sequencer.gaps(now)
        if is_stuck and all(gap.found is None for gap in gaps):
            raise WindowTooSmallError(
                f"{sequencer.frames} frames with {sequencer.size} octets are held, which is all"
                " that prefetch, hold_back and max_bytes allow, and no changeset is whole: "
                + "; ".join(map(str, gaps))
            )
        for gap in gaps:
            is_over = gap.waited_s >= self._timeout_s
            if gap.found is None:
                # Its publisher may be offline; no other changeset waits for it.
                if is_over:
                    self._remind(gap, now)
            elif (is_over or is_stuck) and self._policy == "skip":
                sequencer.skip(gap, now)
                self._report("skipped", f"{gap}; it is passed over", gap.origin, gap.missing)
            elif is_stuck:
                raise SequenceGapError(gap, "; no more can be held")
            elif is_over and self._policy == "stop":
                raise SequenceGapError(gap)
            elif is_over:
                self._remind(gap, now)

    def _remind(self, gap: Gap, now: float) -> None:
        """Report a gap, at most once in each timeout."""
        missing, reported_at = self._reported.get(gap.origin, (None, now))
        if missing != gap.missing or now - reported_at >= self._timeout_s:
            self._reported[gap.origin] = (gap.missing, now)
            self._report("gap", str(gap), gap.origin, gap.missing)
