"""Distribution of keys to the backlogs of workers, by topic."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Final

from stompkit.replication.model.events import Changeset
from stompkit.replication.model.signals import row_signals
from stompkit.replication.workers._backlog import Completion, Item
from stompkit.replication.workers._handlers import Handler
from stompkit.replication.workers._subqueue import SubQueue
from stompkit.replication.workers._types import ReplicatorStoppedError, Unfinished
from stompkit.replication.workers.messages import (
    Key,
    KeysMessage,
    MessageError,
    decode_parts,
    key_octets,
)

__all__ = ["Intake"]

_log: Final = logging.getLogger(__name__)

#: Maximum number of unknown topics to remember, so that each is logged once.
_MAX_UNKNOWN: Final = 1000


class Intake:
    """The callbacks of each topic; thread-safe once it has begun."""

    def __init__(self, name: str) -> None:
        """Start without callbacks; ``name`` is that of the replicator."""
        self.received = self.unknown = self.corrupt = 0
        #: Keys received over ZeroMQ and refused because of the shutdown.
        self.refused: list[Unfinished] = []
        self._name = name
        self._handlers: list[Handler] = []
        self._by_topic: dict[str, list[Handler]] = {}
        self._unknown_topics: set[str] = set()
        self._lock = threading.Lock()
        self._has_begun = False

    @property
    def topics(self) -> Collection[str]:
        """Topics with callbacks."""
        return self._by_topic.keys()

    def add_handler(self, topics: Sequence[str], make: Callable[[str], Sequence[SubQueue]]) -> None:
        """Add a callback, whose workers ``make`` creates."""
        handler = Handler(make)
        self._handlers.append(handler)
        for topic in dict.fromkeys(topics):
            self._by_topic.setdefault(topic, []).append(handler)

    def begin(self) -> None:
        """Create the workers; raises ``ValueError`` for a callback that cannot be imported."""
        for number, handler in enumerate(self._handlers):
            handler.begin(f"{self._name}.{number}")
        self._has_begun = True

    def subqueues(self) -> list[SubQueue]:
        """Return all workers."""
        return [subqueue for handler in self._handlers for subqueue in handler.subqueues.values()]

    def put(self, events: Sequence[tuple[str, Key]], completion: Completion | None = None) -> None:
        """Queue topics with a key each for the workers; blocks while a backlog is full.

        Raises :class:`ReplicatorStoppedError`, RuntimeError before :meth:`begin`, and
        :class:`~stompkit.replication.model.values.InvalidValueError` for an invalid key.
        """
        if not self._has_begun:
            raise RuntimeError("the replicator has to be started before it takes keys")
        completions = [] if completion is None else [completion]
        for topic, key, octets in [(topic, key, key_octets(key)) for topic, key in events]:
            handlers = self._by_topic.get(topic)
            if handlers is None:
                self._note_unknown(topic)
                continue
            identity = topic.encode() + b"\0" + octets
            for handler in handlers:
                handler.subqueue(octets).add(Item(topic, key, identity, list(completions)))
            with self._lock:
                self.received += len(handlers)

    def submit(self, events: Sequence[tuple[str, Key]]) -> Future[None]:
        """Queue keys as :meth:`put` does; return a future that is done when all keys are."""
        completion = Completion(sum(len(self._by_topic.get(topic, ())) for topic, _ in events))
        self.put(events, completion)
        return completion.future

    def submit_changeset(self, changeset: Changeset) -> Future[None]:
        """Submit the changes of a changeset that have callbacks."""
        events: list[tuple[str, Key]] = []
        for change in changeset.changes:
            for name, key in row_signals(change):
                names = (name, f"{change.schema}.{name}") if change.schema else (name,)
                events.extend((each, key) for each in names if each in self._by_topic)
        return self.submit(events)

    def submit_message(self, message: KeysMessage) -> Future[None]:
        """Submit the keys of a message."""
        return self.submit([(message.topic, key) for key in message.keys])

    def take_parts(self, parts: Sequence[bytes]) -> None:
        """Handle a message of ZeroMQ, valid or not."""
        try:
            message = decode_parts(parts)
        except MessageError as problem:
            self.note_corrupt(f"a message over ZeroMQ: {problem}")
            return
        for key in message.keys:
            try:
                self.put([(message.topic, key)])
            except ReplicatorStoppedError as stopped:
                self.refused.append(
                    Unfinished(topic=message.topic, key=key, tries=0, reason=str(stopped))
                )

    def note_corrupt(self, problem: str) -> None:
        """Count and log an invalid message."""
        with self._lock:
            self.corrupt += 1
        _log.error("%s: %s", self._name, problem)

    def _note_unknown(self, topic: str) -> None:
        with self._lock:
            self.unknown += 1
            if topic in self._unknown_topics or len(self._unknown_topics) >= _MAX_UNKNOWN:
                return
            self._unknown_topics.add(topic)
        _log.warning("%s: no callback is for topic %s", self._name, topic)
