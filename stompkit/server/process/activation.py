"""The right of a broker to be the active one on its data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from stompkit.server.interfaces import LaneState, MessageStore, StoreError, StoreRunner

if TYPE_CHECKING:
    from stompkit.server.lease.keeper import LeaseStatus

__all__ = ["Activation", "AlwaysActive", "Opened", "Owner", "StartError"]


class StartError(Exception):
    """An error that prevents the start of a broker."""


class Opened(NamedTuple):
    """A store that is open, its runner, and its content without the messages."""

    store: MessageStore
    runner: StoreRunner
    lanes: list[LaneState]
    records: dict[str, bytes]


class Owner(Protocol):
    """The broker that competes for the right; all calls come from its thread."""

    def begin(self, opened: Opened | None = None) -> None:
        """Begin to work: with an open store, or else open the own one. Raises StartError."""

    def stand_by(self, reason: str) -> None:
        """End all sessions at once: another broker may have taken over."""

    def hand_over(self) -> None:
        """End all sessions in good order, and call :meth:`Activation.leave` then."""

    def end(self, reason: object) -> None:
        """End the process, with an error."""

    def status(self, text: str) -> None:
        """Report in one line for whom this broker stands by."""


class Activation(ABC):
    """Competes for the right from :meth:`start` to :meth:`stop`."""

    @abstractmethod
    def start(self, owner: Owner) -> None:
        """Compete; the owner is called at once or later. Raises :class:`StartError`."""

    @property
    @abstractmethod
    def is_active(self) -> bool:
        """True if this broker has the right, and may work."""

    @property
    @abstractmethod
    def trouble(self) -> str:
        """The reason why this broker does not work."""

    @abstractmethod
    def leave(self) -> None:
        """Release the right, for another broker."""

    @abstractmethod
    def stop(self) -> None:
        """Release the right if this broker has it, and stop competing."""

    def ask_to_leave(self, successor: str, done: Callable[[StoreError | None], object]) -> None:
        """Ask the active broker, also if it is another one, to hand over to the successor.

        ``done`` is called in the broker's thread when the request is stored, or with an error.
        """
        done(StoreError("this broker shares no store by a lease"))

    @property
    def has_files(self) -> bool:
        """True if it uses files, which must belong to the right user."""
        return False

    @property
    def rival(self) -> str:
        """The active broker, if another one is active and known; otherwise empty."""
        return ""

    @property
    def lease(self) -> LeaseStatus | None:
        """The state of the lease, if there is one."""
        return None


class AlwaysActive(Activation):
    """The right of a broker whose data nobody else uses."""

    def start(self, owner: Owner) -> None:
        """Begin."""
        owner.begin()

    @property
    def is_active(self) -> bool:
        """True."""
        return True

    @property
    def trouble(self) -> str:
        """The reason why this broker does not work."""
        return "it does not listen yet"

    def leave(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""
