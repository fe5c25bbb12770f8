"""Replies of a client's session that wait for the store, and what follows the last one."""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from stompkit.frames import Frame
from stompkit.server.domain.broker import Broker
from stompkit.server.domain.session.base import BrokerSession
from stompkit.server.interfaces import Outlet, StoreError, StoreFullError

__all__ = ["ReplyingSession"]


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplyingSession(BrokerSession):
    """A session whose receipts come when the effects of their frames are stored."""

    def __init__(self, broker: Broker, outlet: Outlet, now: float) -> None:
        """Start before any input."""
        super().__init__(broker, outlet, now)
        #: Number of write batches that replies wait for; the pending DISCONNECT follows, if any.
        self._uncommitted = 0
        self._leaving: Frame | None = None
        #: Ends the session with an error, once earlier frames are answered.
        self._refusal: Callable[[], None] | None = None

    def did_part(self) -> None:
        """Delay the reply to a frame until this part of its effect is stored, too."""
        if self.scheduler.commit_queue.cut(self):
            self._uncommitted += 1

    def committed(self, receipt: str | None, error: StoreError | None) -> None:
        """Reply to a frame whose write batch has succeeded or failed."""
        self._uncommitted -= 1
        if error is not None:
            code = "store-full" if isinstance(error, StoreFullError) else "store-failed"
            self.fail(f"the broker cannot keep it: {error}", code, receipt=receipt)
        elif receipt is not None and not self._closing:
            self._send_receipt(receipt)
        if self._refusal is not None:
            self._in_turn(self._refusal)
        elif self._leaving is not None:
            self.leave(self._leaving)

    def leave(self, frame: Frame) -> None:
        """End the session normally; a requested receipt is the last frame."""
        if self._closing:
            return
        self._leaving = frame
        if self._uncommitted:
            return
        self._closing = True
        receipt = frame.headers.get("receipt")
        if receipt is not None:
            self._send_receipt(receipt)
        self._end()

    def _in_turn(self, refusal: Callable[[], None]) -> None:
        """End the session with an error, after the replies to earlier frames.

        Otherwise a client would send again what the store is about to keep.
        """
        if not self._uncommitted or self._closing:
            refusal()
            return
        self._refusal = refusal
        self._suspend()
        self.release()

    def _suspend(self) -> None:
        """Process no more input."""
        raise NotImplementedError

    def _send_receipt(self, receipt: str) -> None:
        raise NotImplementedError
