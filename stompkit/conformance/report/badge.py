"""The result in two words, as JSON that shields.io makes a badge of."""

from __future__ import annotations

from typing import Final

import msgspec

from stompkit.conformance.report.report import Report
from stompkit.conformance.verdict import Verdict

__all__ = ["to_badge"]

#: Colours of shields.io by the least share of cases that did not fail.
_COLOURS: Final = ((1.0, "green"), (0.95, "yellowgreen"), (0.9, "yellow"), (0.75, "orange"))


def to_badge(report: Report, *, strict: bool = False) -> bytes:
    """Make the file, of the format https://shields.io/badges/endpoint-badge.

    It counts the cases that did not fail among those about something that the target has, known
    deviations or not. NON-STRICT is a failure only with ``strict``.
    """
    counts = report.count()
    total = counts.total() - counts[Verdict.UNSUPPORTED]
    failed = counts[Verdict.FAILED] + (counts[Verdict.NON_STRICT] if strict else 0)
    badge: dict[str, object] = {"schemaVersion": 1, "label": "STOMP conformance"}
    if report.complete and not report.errors and not report.shortcomings() and total:
        badge["message"] = f"{total - failed} of {total}"
        badge["color"] = _colour((total - failed) / total, spotless=not counts[Verdict.NON_STRICT])
    else:
        badge["message"] = "no result"
        badge["color"] = "lightgrey"
        badge["isError"] = True
    return b"%b\n" % msgspec.json.encode(badge)


def _colour(share: float, *, spotless: bool) -> str:
    if share == 1.0 and spotless:
        return "brightgreen"
    return next((colour for least, colour in _COLOURS if share >= least), "red")
