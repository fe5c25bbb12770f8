"""A test for a flat series: a slope that is robust against outliers, and a bound."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

__all__ = ["SERIES", "Flatness", "Series", "second_half", "slope", "verdict"]

#: Most points that are compared with each other: the work grows with their square.
_POINTS: Final = 600


class Series(NamedTuple):
    """A sampled figure, and its permitted growth in the second half of a run."""

    name: str
    title: str
    most: float
    """Permitted growth in its own unit."""
    share: float = 0.0
    """Permitted growth as a share of its median; the larger of the two counts."""


#: The series that must be flat. A leak of 100 bytes a message exceeds these within minutes.
SERIES: Final = (
    Series("memory_mib", "anonymous memory, MiB", 2.0, 0.03),
    Series("store_mib", "store on the disk, MiB", 2.0, 0.05),
    Series("descriptors", "open files", 3.0, 0.05),
    Series("threads", "threads", 1.0),
    Series("connections", "connections", 3.0, 0.05),
    Series("subscriptions", "subscriptions", 3.0, 0.05),
    Series("durables", "durable subscriptions", 1.0),
    Series("destinations", "destinations", 3.0, 0.05),
    Series("timers", "timers", 5.0, 0.05),
    Series("messages", "messages in the broker", 50.0, 0.1),
)


class Flatness(NamedTuple):
    """The result for one series."""

    series: Series
    middle: float
    """Its median in the second half."""
    slope_per_s: float
    growth: float
    """The slope over all of the second half."""
    allowed: float

    @property
    def is_flat(self) -> bool:
        """True if it grows by no more than permitted."""
        return self.growth <= self.allowed


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the median slope between all pairs of points (Theil and Sen); 0 for fewer than two.

    Up to 29 % of the points may be outliers without much effect: a burst, a garbage collection, a
    machine that was busy with something else.
    """
    step = -(-len(points) // _POINTS) or 1
    chosen = points[::step]
    slopes = [
        (y - earlier_y) / (x - earlier_x)
        for number, (x, y) in enumerate(chosen)
        for earlier_x, earlier_y in chosen[:number]
        if x > earlier_x
    ]
    return median(slopes) if slopes else 0.0


def second_half(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points of the second half of the time; the first is for caches to fill."""
    if not points:
        return []
    middle = (points[0][0] + points[-1][0]) / 2
    return [point for point in points if point[0] >= middle]


def verdict(series: Series, points: Sequence[tuple[float, float]]) -> Flatness:
    """Judge a series by its second half; raise ValueError if that is too short."""
    half = second_half(points)
    if len(half) < 5:
        raise ValueError(f"{len(half)} samples of {series.title} are too few to judge it by")
    middle = median(y for _, y in half)
    slope_per_s = slope(half)
    growth = slope_per_s * (half[-1][0] - half[0][0])
    return Flatness(series, middle, slope_per_s, growth, max(series.most, series.share * middle))
