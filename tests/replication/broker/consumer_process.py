"""A consumer in a child process, which kills itself at a certain point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from stompkit.client.blocking import BrokerUrl
from stompkit.replication.consumer import Consumer
from stompkit.replication.model.events import Changeset
from tests.replication.broker.sqlite_sink import SqliteSink

__all__ = ["Order", "run"]

_TIMEOUT_S = 60.0
_ROOT = Path(__file__).parents[3]


class Order(msgspec.Struct, kw_only=True):
    """The parameters of the process."""

    url: str
    store: str
    die_at: int
    """The number of the changeset at which it dies."""
    where: Literal["before the commit", "behind the commit", "behind the acknowledgement"]


def run(order: Order) -> None:
    """Run a process until it has killed itself."""
    command = [sys.executable, "-m", __name__]
    done = subprocess.run(
        command,
        input=msgspec.json.encode(order),
        stderr=subprocess.PIPE,
        cwd=_ROOT,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class _Mortal(SqliteSink):
    """Dies in the middle of a transaction."""

    def __init__(self, order: Order) -> None:
        super().__init__(Path(order.store))
        self._order = order

    def _note(self, changeset: Changeset) -> None:
        super()._note(changeset)
        if self._order.where == "before the commit" and changeset.sequence == self._order.die_at:
            _die()

    def apply(self, changesets: Sequence[Changeset]) -> None:
        """Die at the given changeset, when the ones applied before have been acknowledged."""
        is_behind = changesets[0].sequence > self._order.die_at
        if is_behind and self._order.where == "behind the acknowledgement":
            _die()
        super().apply(changesets)


def _main() -> None:
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    url = BrokerUrl.parse(order.url)

    def applied(changesets: Sequence[Changeset]) -> None:
        if order.where == "behind the commit" and changesets[-1].sequence >= order.die_at:
            _die()

    with url.link() as link:
        sink = _Mortal(order)
        Consumer(link, url.destination, sink, batch=5, prefetch=100, on_applied=applied).run()


if __name__ == "__main__":
    _main()
