"""Keys from a broker: messages are acknowledged when a worker has processed their keys."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final, Protocol

from stompkit.replication.model.events import Changeset, EventError, decode
from stompkit.replication.model.frames import CONTENT_TYPE as CHANGESET_TYPE
from stompkit.replication.workers._types import ReplicatorStoppedError
from stompkit.replication.workers.messages import KeysMessage, MessageError, decode_keys

__all__ = ["BrokerMessage", "BrokerSource", "Poison", "Pump"]

_log: Final = logging.getLogger(__name__)

#: Interval in seconds at which an idle pump checks for a stop.
_LOOK_S: Final = 0.2


class BrokerMessage(Protocol):
    """A message, such as :class:`stompkit.client.blocking.Delivery`."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the message."""

    @property
    def body(self) -> bytes:
        """Body of the message."""

    @property
    def is_stale(self) -> bool:
        """True if it will be redelivered, because its connection is lost."""

    def ack(self) -> None:
        """Acknowledge it."""


class BrokerSource(Protocol):
    """A source of messages, such as :class:`stompkit.client.blocking.Inbox`."""

    def get(self, timeout_s: float | None = None) -> BrokerMessage | None:
        """Return the next message; ``None`` if none arrives within that many seconds."""


#: Function called with an invalid message and the reason; it is acknowledged afterwards.
Poison = Callable[[BrokerMessage, str], object]


class Pump:
    """Receives messages from a broker, changesets or keys, in its own thread."""

    def __init__(
        self,
        source: BrokerSource,
        *,
        submit_changeset: Callable[[Changeset], Future[None]],
        submit_keys: Callable[[KeysMessage], Future[None]],
        poison: Poison,
        ended: Callable[[], None],
    ) -> None:
        """Start; ``ended`` is called at the end, in the pump's thread.

        Each ``submit`` function returns a future that is done when a worker is done.
        """
        #: Exception of the source or of ``poison``.
        self.problem: Exception | None = None
        self._source = source
        self._submit_changeset = submit_changeset
        self._submit_keys = submit_keys
        self._poison = poison
        self._ended = ended
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stompkit-pump", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop receiving; returns when the pump has stopped."""
        self._is_stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_stopping.is_set():
                message = self._source.get(_LOOK_S)
                if message is not None and not message.is_stale:
                    self._take(message)
        except ReplicatorStoppedError:
            pass  # refused messages are not acknowledged
        except Exception as error:
            self.problem = error
        finally:
            self._ended()

    def _take(self, message: BrokerMessage) -> None:
        try:
            if message.headers.get("content-type") == CHANGESET_TYPE:
                # Keys are looked up in the database, so each part is work of its own. All parts
                # may not come here: others may be damaged, or be received by another worker.
                done = self._submit_changeset(decode(message.body))
            else:
                done = self._submit_keys(decode_keys(message.body))
        except (EventError, MessageError) as problem:
            self._poison(message, str(problem))
            message.ack()
        else:
            _acknowledge_after(done, message)


def _acknowledge_after(future: Future[None], message: BrokerMessage) -> None:
    def acknowledge(done: Future[None]) -> None:
        # An interrupted message is redelivered.
        if done.exception() is None:
            message.ack()

    future.add_done_callback(acknowledge)
