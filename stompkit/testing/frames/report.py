"""Messages of assertions about frames that fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from stompkit.testing.frames.events import Event, SeenFrame
from stompkit.testing.frames.matching import Match

__all__ = ["not_seen", "timed_lines", "unexpected", "unknown"]

_SHOWN_NEAREST: Final = 3
_SHOWN_LAST: Final = 10


def timed_lines(events: Sequence[Event]) -> list[str]:
    """Return one line for each event, with its time."""
    return [f"{event.at_s:8.3f} s  {event}" for event in events]


def not_seen(
    wanted: Match,
    count: int,
    found: int,
    timeout_s: float,
    frames: Sequence[SeenFrame],
    forgotten: int,
) -> str:
    """Return the message that only ``found`` of ``count`` frames came, with those that did.

    ``frames`` are the inspected frames; ``forgotten`` is the number of events dropped before them.
    """
    if count == 1:
        lines = [f"not seen within {timeout_s:g} s: {wanted}"]
    else:
        lines = [f"seen {found} times within {timeout_s:g} s, wanted {count} times: {wanted}"]
    if forgotten:
        lines.append(f"({forgotten} earlier events have been forgotten)")
    if not frames:
        return "\n".join([*lines, "no frame at all was seen"])
    nearest = _nearest(wanted, frames)
    if nearest:
        lines.append("the nearest that were seen:")
        for seen, differences in nearest:
            lines += [f"  {line}" for line in timed_lines([seen])]
            lines += [f"      {difference}" for difference in differences]
    elif not found:
        commands = Counter(seen.command for seen in frames)
        all_of = ", ".join(f"{name} ({number})" for name, number in commands.items())
        lines.append(f"there is no {wanted.command} among the {len(frames)} frames: {all_of}")
    lines.append("the last frames:")
    lines += [f"  {line}" for line in timed_lines(frames[-_SHOWN_LAST:])]
    return "\n".join(lines)


def unexpected(wanted: Match, found: Sequence[SeenFrame]) -> str:
    """Return the message that forbidden frames were seen."""
    shown = timed_lines(found[:_SHOWN_LAST])
    if len(found) > _SHOWN_LAST:
        shown.append(f"... and {len(found) - _SHOWN_LAST} more")
    return "\n".join([f"seen, but expected not to be: {wanted}", *(f"  {line}" for line in shown)])


def unknown(wanted: Match, possible: Sequence[SeenFrame], *, is_gone: bool) -> str:
    """Return the message that nobody can say whether forbidden frames were seen, and why."""
    lines = [f"whether this was seen cannot be known: {wanted}"]
    if is_gone:
        lines.append("the log was full, and has forgotten such frames: clear() it before this part")
    if possible:
        lines.append("these frames may have matched before secrets or ends of bodies were removed:")
        lines += [f"  {line}" for line in timed_lines(possible[:_SHOWN_LAST])]
    return "\n".join(lines)


def _nearest(wanted: Match, frames: Sequence[SeenFrame]) -> list[tuple[SeenFrame, list[str]]]:
    """Return the frames with the fewest differences, the latest first among equals.

    If a command is wanted, only frames with that command are returned: for the others the command
    is difference enough.
    """
    candidates = [
        (seen, differences)
        for seen in reversed(frames)
        if wanted.command in (None, seen.command)
        and (differences := wanted.differences(seen.direction, seen.connection, seen.frame))
    ]
    return sorted(candidates, key=lambda candidate: len(candidate[1]))[:_SHOWN_NEAREST]
