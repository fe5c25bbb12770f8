"""``QueueReplicator``: callbacks in separate processes, with keys in order in each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from stompkit.replication.workers._backlog import Backlog
from stompkit.replication.workers._base import Replicator
from stompkit.replication.workers._handlers import check_settings
from stompkit.replication.workers._runners import ProcessRunner, StartMethod
from stompkit.replication.workers._subqueue import SubQueue
from stompkit.replication.workers._types import DeadLetter, RetryPolicy

__all__ = ["QueueReplicator"]

_Callback = TypeVar("_Callback", bound=Callable[[Any], Any])


class QueueReplicator(Replicator):
    """Runs callbacks in processes, each key always in the same one.

    ::

        replicator = QueueReplicator("tcp://publisher:6000")

        @replicator.event("users_write", "users_update", workers=4)
        def refresh(key):
            ...
            return True

        if __name__ == "__main__":
            replicator.run()

    A key stays in the backlog of its worker, in this process, until the callback has returned true.
    Keys of a worker that dies are processed again by its replacement. A callback may therefore be
    called several times for one change, and must read the current state.
    """

    def __init__(
        self,
        listen: str | Sequence[str] | None = None,
        *,
        name: str = "stompkit.replicator",
        start_method: StartMethod = "spawn",
        grace_s: float = 5.0,
        reconnect_s: float = 600.0,
        hwm: int = 10_000,
    ) -> None:
        """Configure; nothing runs or is connected before it is started.

        ``listen`` has addresses of publishers over ZeroMQ (``tcp://HOST:PORT``). A publisher that
        is silent for ``reconnect_s`` seconds is reconnected, and ``hwm`` bounds the messages that
        wait in ZeroMQ. ``grace_s`` is the maximum time in seconds of the current call when its
        worker ends.
        """
        super().__init__(listen, name=name, reconnect_s=reconnect_s, hwm=hwm)
        self._start_method: Final[StartMethod] = start_method
        self._grace_s = grace_s

    def event(
        self,
        *topics: str,
        workers: int = 1,
        multi: bool = False,
        queue_limit: int = 10_000,
        max_batch: int = 256,
        max_retries: int | None = 10,
        retry_s: float = 1.0,
        max_retry_s: float = 60.0,
        dead_letter: Callable[[DeadLetter], object] | None = None,
    ) -> Callable[[_Callback], _Callback]:
        """Decorate a callback for topics; it is returned unchanged.

        It is called with a key, or with ``multi`` with a list of up to ``max_batch`` keys, in their
        order of arrival. It returns True or False; with ``multi`` it may return a list of these,
        one for each key. Anything else, and an exception, is a failure, with ``multi`` of all keys
        of the call. Keys are assigned to one of ``workers`` processes by consistent hashing.

        A failed key is retried after ``retry_s`` seconds, doubling up to ``max_retry_s``, and at
        most ``max_retries`` times (``None``: forever); other keys are processed meanwhile. Keys of
        a call that has failed as a whole are retried in smaller and smaller calls, and alone the
        last time. Then ``dead_letter`` is called, in this process, in a thread. If it raises, the
        error is logged, and it is called again later. Without ``dead_letter``, the loss is logged.

        At most ``queue_limit`` keys wait for each worker. At the limit, a key that already waits is
        not added again, and adding any other key blocks.

        Raises ``ValueError``; also for nested functions, which other processes cannot import.
        """
        check_settings(
            topics,
            workers=workers,
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
            path = getattr(callback, "__qualname__", "")
            if "<" in path:
                raise ValueError(
                    f"{path} runs in processes of its own, which have to import it: it has to be "
                    "a function at the top level of a module"
                )

            def make(prefix: str) -> list[SubQueue]:
                subqueues = []
                for number in range(workers):
                    name = f"{prefix}.{number}"
                    runner = ProcessRunner(
                        name,
                        callback,
                        multi=multi,
                        method=self._start_method,
                        grace_s=self._grace_s,
                    )
                    backlog = Backlog(limit=queue_limit, max_batch=max_batch)
                    subqueues.append(SubQueue(name, runner, backlog, policy))
                return subqueues

            self._add_handler(topics, make)
            return callback

        return decorate
