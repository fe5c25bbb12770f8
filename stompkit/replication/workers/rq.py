"""``RqReplicator``: keys become jobs of RQ, or of any other queue that a callback uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from stompkit.replication.workers._backlog import Backlog
from stompkit.replication.workers._base import Replicator
from stompkit.replication.workers._handlers import check_settings
from stompkit.replication.workers._runners import InlineRunner
from stompkit.replication.workers._subqueue import SubQueue
from stompkit.replication.workers._types import DeadLetter, RetryPolicy

__all__ = ["RqReplicator"]

_Callback = TypeVar("_Callback", bound=Callable[[list[Any]], Any])


class RqReplicator(Replicator):
    """Runs callbacks with lists of keys, in a thread each, to put them into a job queue.

    ::

        replicator = RqReplicator("tcp://publisher:6000")
        queue = rq.Queue("refresh", connection=Redis())

        @replicator.event("users_write", "users_update")
        def enqueue(keys):
            for key in keys:
                queue.enqueue("tasks.refresh", key)
            return True

    While the queue is unreachable, keys wait here, up to the limit, and are retried periodically.
    """

    def __init__(
        self,
        listen: str | Sequence[str] | None = None,
        *,
        name: str = "stompkit.rq",
        reconnect_s: float = 600.0,
        hwm: int = 10_000,
    ) -> None:
        """Configure as :class:`~stompkit.replication.workers.QueueReplicator` does."""
        super().__init__(listen, name=name, reconnect_s=reconnect_s, hwm=hwm)

    def event(
        self,
        *topics: str,
        queue_limit: int = 10_000,
        max_batch: int = 256,
        max_retries: int | None = None,
        retry_s: float = 1.0,
        max_retry_s: float = 60.0,
        dead_letter: Callable[[DeadLetter], object] | None = None,
    ) -> Callable[[_Callback], _Callback]:
        """Decorate a callback for topics; it is returned unchanged.

        It is called with a list of keys, also in retries, and returns True, False, or a list of
        these. The arguments are those of
        :meth:`~stompkit.replication.workers.QueueReplicator.event`; by default no key is given
        up. Raises ``ValueError``.
        """
        check_settings(
            topics,
            queue_limit=queue_limit,
            max_batch=max_batch,
            max_retries=max_retries or 0,
            retry_s=retry_s,
            max_retry_s=max_retry_s,
        )
        policy = RetryPolicy(
            max_retries=max_retries,
            retry_s=retry_s,
            max_retry_s=max_retry_s,
            dead_letter=dead_letter,
        )

        def decorate(callback: _Callback) -> _Callback:
            def make(prefix: str) -> list[SubQueue]:
                backlog = Backlog(limit=queue_limit, max_batch=max_batch)
                return [SubQueue(prefix, InlineRunner(callback, multi=True), backlog, policy)]

            self._add_handler(topics, make)
            return callback

        return decorate
