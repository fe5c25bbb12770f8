"""A chain from a database to others, of which everything is killed in its turn."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from sqlalchemy import Engine, text
from sqlalchemy.exc import DatabaseError

from stompkit.testing import RunningBroker
from stompkit.testing._launching.polling import wait_until
from tests.integration.replication.processes import Replicating
from tests.integration.replication.workload import Contents, Workload

__all__ = ["CHANGES", "SEED", "TABLES", "Chain", "check", "has_ended", "started", "url_of"]

#: A failing round is run again with the number that its test shows.
SEED: Final = 6
CHANGES: Final = 100_000
#: After each of so many parts of the workload something is killed.
_PARTS: Final = 16
_LONG_S: Final = 600.0
TABLES: Final = ("--tables", "*.orders", "--tables", "*.items")


def url_of(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


def has_ended(engine: Engine) -> bool:
    """Whether the last row has come."""
    try:
        with engine.connect() as connection:
            found = connection.execute(text("SELECT COUNT(*) FROM items WHERE id = -1"))
            return bool(found.scalar_one())
    except DatabaseError:  # there is no table yet
        return False


def check(wanted: Contents, found: Contents) -> None:
    """Compare a source with a target, row by row."""
    for table, rows in wanted.items():
        missing, extra = set(rows) - set(found[table]), set(found[table]) - set(rows)
        assert not missing, f"{len(missing)} rows of {table} are missing: {list(missing)[:3]}"
        assert not extra, f"{len(extra)} rows of {table} are wrong: {list(extra)[:3]}"
        assert len(rows) == len(found[table])


class Chain:
    """A publisher, a broker and consumers, each of which is killed in its turn."""

    def __init__(
        self,
        workload: Workload,
        broker: RunningBroker,
        publisher: Replicating,
        *consumers: Replicating,
    ) -> None:
        """Take what is running."""
        self._workload = workload
        self._broker = broker
        self._processes = [publisher, *consumers]
        self._broker_kills = 0

    def run(self, changes: int) -> None:
        """Work, kill something, work, kill the next."""
        chance = random.Random(SEED)
        for part in range(_PARTS):
            self._workload.run(changes // _PARTS)
            if part == _PARTS // 2:
                self._workload.alter()
            number = (part + chance.randint(0, 1)) % (len(self._processes) + 1)
            if number < len(self._processes):
                self._processes[number].kill()
            else:
                self._broker.restart(kill=True)
                self._broker_kills += 1
        self._workload.finish()
        for process in self._processes:
            process.kill()

    def wait(self, is_over: Callable[[], bool]) -> None:
        """Wait for the end, while all processes run."""

        def look() -> bool:
            for process in self._processes:
                process.check()
            return is_over()

        logs = [process.log for process in self._processes]
        assert wait_until(look, _LONG_S), "\n".join(logs)
        assert min(self._broker_kills, *(process.kills for process in self._processes)) >= 3
        assert self._workload.changes >= CHANGES
        assert self._workload.taken_back > CHANGES // 100

    def stop(self) -> None:
        """End all of it in order."""
        for process in reversed(self._processes):
            assert process.stop() == 0, process.log


def started(directory: Path, stack: ExitStack, name: str, *arguments: str) -> Replicating:
    return stack.enter_context(Replicating(name, directory, *arguments))
