"""The condition of a broker: what tests and their fixtures have changed about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from stompkit.testing.launching.running import CLOCK_MOVED, RunningBroker

__all__ = ["Condition"]

#: The operation that causes each defect of ``RunningBroker.defects``, in the order to cause them.
_CAUSES: Final[dict[str, Callable[[RunningBroker], None]]] = {
    "without room on its disk": RunningBroker.fill_disk,
    "paused": RunningBroker.pause,
    "cut off": RunningBroker.cut_off,
    "killed": RunningBroker.kill,
    "stopped": RunningBroker.stop,
}


@dataclass(frozen=True)
class Condition:
    """The defects of a broker, and the offset of its clock; by default, as it was launched."""

    defects: frozenset[str] = frozenset()
    """The defects, as ``RunningBroker.defects`` names them."""
    offset_s: float = 0.0
    """Time in seconds by which the clock was advanced; 0 if the broker does not run."""

    @classmethod
    def of(cls, broker: RunningBroker) -> Self:
        """Return the present condition of a broker."""
        defects = frozenset(broker.defects)
        return cls(defects, broker.clock.offset_s if CLOCK_MOVED in defects else 0.0)

    def after(self, before: Condition, after: Condition) -> Condition:
        """Return this condition with the change that led from one condition to another."""
        defects = self.defects - (before.defects - after.defects) | (after.defects - before.defects)
        return Condition(defects, self.offset_s + after.offset_s - before.offset_s)

    def restore(self, broker: RunningBroker) -> None:
        """Bring a broker into this condition; raises BrokerError and OSError."""
        broker.repair()
        if self.offset_s:
            broker.clock.advance(self.offset_s)
        for defect, cause in _CAUSES.items():
            if defect in self.defects:
                cause(broker)
