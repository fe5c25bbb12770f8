"""Servers with limits that break the rule about them."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from tests.conformance.proxy import NEW, Fault, in_versions
from tests.conformance.raw import Raw

_MOST_HEADERS = 500


class Limited(Fault):
    """Refuses frames with many headers; subclasses break a rule in doing so."""

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if len(frame.lines) > _MOST_HEADERS:
            self.refuse()
        else:
            yield frame

    @abstractmethod
    def refuse(self) -> None:
        """Reply to a frame with too many headers."""


class LimitWithoutError(Limited):
    """Closes without ERROR after a frame with too many headers."""

    found_by = in_versions(NEW, "limits/exceeded-error-and-close")

    def refuse(self) -> None:
        self.line.close()


class OpenBeyondLimit(Limited):
    """Does not close after a frame with too many headers."""

    found_by = in_versions(NEW, "limits/exceeded-error-and-close")

    def refuse(self) -> None:
        self.to_client(Raw(b"ERROR", [b"message:too many headers"]))
