"""A chain from a database to others, each part of which is killed in turn."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from sqlalchemy import Engine, text
from sqlalchemy.exc import DatabaseError

from stompkit.testing import RunningBroker
from stompkit.testing.launching.polling import wait_until
from tests.effort import effort
from tests.integration.replication.processes import Running, replicating
from tests.integration.replication.workload import Contents, Workload, contents

__all__ = [
    "CHANGES",
    "SEED",
    "Chain",
    "check",
    "check_contents",
    "started",
    "tables_of",
    "url_of",
]

#: A test shows its number; a failing round can be repeated with it.
SEED: Final = 6
CHANGES: Final = effort(4_000, 100_000)
#: Number of parts of the workload, after each of which something is killed.
_PARTS: Final = 16
_LONG_S: Final = 600.0


def url_of(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


def tables_of(source: Engine) -> tuple[str, ...]:
    """Return the options that select the workload's tables, and not those of other tests."""
    has_schemas = source.dialect.name == "postgresql"
    schema = "public" if has_schemas else source.url.database
    return ("--tables", f"{schema}.orders", "--tables", f"{schema}.items")


def check(source: Engine, target: Engine) -> None:
    """Compare a source with a target, row by row."""
    # A cheap check before the expensive comparison.
    assert _has_ended(target)
    check_contents(contents(source), contents(target))


def check_contents(wanted: Contents, found: Contents) -> None:
    """Compare the contents of a source with those of a target."""
    wrong = []
    for table, rows in wanted.items():
        missing, extra = set(rows) - set(found[table]), set(found[table]) - set(rows)
        for what, those in (("missing", missing), ("wrong", extra)):
            if those:
                shown = sorted(those)[:10]
                wrong.append(f"{len(those)} of {len(rows)} rows of {table} are {what}: {shown}")
    assert not wrong, "\n".join(wrong)
    for table, rows in wanted.items():
        assert len(rows) == len(found[table])


def _has_ended(engine: Engine) -> bool:
    """Return True if the last row has arrived."""
    try:
        with engine.connect() as connection:
            found = connection.execute(text("SELECT COUNT(*) FROM items WHERE id = -1"))
            return bool(found.scalar_one())
    except DatabaseError:  # there is no table yet
        return False


class Chain:
    """A publisher, a broker and consumers, each of which is killed in turn."""

    def __init__(
        self,
        workload: Workload,
        broker: RunningBroker,
        publisher: Running,
        *consumers: Running,
        others: Sequence[Callable[[], None]] = (),
        seed: int = SEED,
    ) -> None:
        """Set the running processes, and the functions that kill ``others``."""
        self._workload = workload
        self._processes = [publisher, *consumers]
        self._seed = seed
        kills = [process.kill for process in self._processes]
        self._kills: list[Callable[[], None]] = [*kills, partial(broker.restart, kill=True)]
        self._kills += others
        #: Number of kills of each.
        self._killed = [0] * len(self._kills)

    def run(self, changes: int, *, parts: int = _PARTS) -> None:
        """Work, kill something, work, kill something else; in each round each process once."""
        chance = random.Random(self._seed)
        round_: list[int] = []
        for part in range(parts):
            self._workload.run(changes // parts)
            if part == parts // 2:
                self._workload.alter()
            if not round_:
                round_ = chance.sample(range(len(self._kills)), len(self._kills))
            number = round_.pop()
            self._kills[number]()
            self._killed[number] += 1
        self._workload.finish()
        for number, process in enumerate(self._processes):
            process.kill()
            self._killed[number] += 1

    def wait(self, check: Callable[[], None], *, changes: int = CHANGES, kills: int = 3) -> None:
        """Wait until ``check`` passes; each process was killed at least ``kills`` times.

        The last row may arrive much earlier: an interrupted snapshot contains it, and then the log
        is read from the start of the snapshot.
        """
        wrong: list[AssertionError] = []

        def is_right() -> bool:
            for process in self._processes:
                process.check()
            try:
                check()
            except AssertionError as error:
                wrong[:] = [error]
                return False
            return True

        if not wait_until(is_right, _LONG_S, interval_s=0.5):
            logs = [process.log for process in self._processes]
            raise AssertionError("\n".join([str(wrong[0]), *logs]))
        assert min(self._killed) >= kills
        assert self._workload.changes >= changes
        assert self._workload.taken_back > changes // 100

    def stop(self) -> None:
        """Stop all processes gracefully."""
        for process in reversed(self._processes):
            assert process.stop() == 0, process.log


def started(directory: Path, stack: ExitStack, name: str, *arguments: str) -> Running:
    return stack.enter_context(replicating(name, directory, *arguments))
