"""Callbacks for worker processes, which import this module and record their calls in files."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stompkit.testing.launching.polling import wait_until

__all__ = [
    "Fails",
    "Gated",
    "Kills",
    "Notes",
    "Passes",
    "Reads",
    "Record",
    "Returns",
    "by_name",
    "wait_for",
]

#: Timeout of any wait, in seconds.
PATIENCE_S = 60.0


def wait_for(condition: Any) -> Any:
    """Wait until a condition holds, and return its value."""
    value = wait_until(condition, PATIENCE_S, interval_s=0.005)
    assert value, "it has not come about in time"
    return value


@dataclass(frozen=True)
class Record:
    """A file to which many processes append whole lines."""

    path: Path

    def note(self, key: Any) -> None:
        """Append a line: this process, and a key."""
        line = json.dumps([os.getpid(), key]) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def lines(self) -> list[tuple[int, Any]]:
        """Return all processes and keys."""
        if not self.path.exists():
            return []
        return [tuple(json.loads(line)) for line in self.path.read_text().splitlines()]

    def keys(self) -> list[Any]:
        """Return all keys."""
        return [key for _, key in self.lines()]

    def workers(self) -> dict[Any, set[int]]:
        """Return the processes that have processed each key."""
        found: dict[Any, set[int]] = {}
        for pid, key in self.lines():
            found.setdefault(key, set()).add(pid)
        return found


@dataclass(frozen=True)
class Notes:
    """Records each key, and succeeds."""

    record: Record

    def __call__(self, key: Any) -> bool:
        """Record a key."""
        self.record.note(key)
        return True


@dataclass(frozen=True)
class Returns:
    """Records each key, waits until a file exists, and always returns the same value."""

    record: Record
    gate: Path
    given: Any

    def __call__(self, key: Any) -> Any:
        """Record a key, or a list of them."""
        self.record.note(key)
        wait_for(self.gate.exists)
        return self.given


@dataclass(frozen=True)
class Fails:
    """Records each attempt; the first ``times`` of a key that is in ``keys`` raise."""

    record: Record
    keys: Sequence[Any]
    times: int
    multi: bool = False

    def __call__(self, given: Any) -> bool:
        """Record a key, or a list of them."""
        self.record.note(given)
        tries = self.record.keys()
        for key in given if self.multi else [given]:
            before = sum((key in each) if self.multi else (key == each) for each in tries)
            if key in self.keys and before <= self.times:
                raise LookupError(f"no {key}")
        return True


@dataclass(frozen=True)
class Gated:
    """Records each key, and waits until a file exists."""

    record: Record
    gate: Path
    multi: bool = False

    def __call__(self, key: Any) -> bool:
        """Record a key, or a list of them."""
        self.record.note(key)
        wait_for(self.gate.exists)
        return True


@dataclass(frozen=True)
class Passes:
    """Records each key, and waits for a file named after one of them."""

    record: Record
    gate: Path
    slow: Any

    def __call__(self, key: Any) -> bool:
        """Record a key."""
        self.record.note(key)
        if key == self.slow:
            wait_for(self.gate.exists)
        return True


@dataclass(frozen=True)
class Kills:
    """Kills its process for one key, the first ``times``; records each attempt."""

    record: Record
    key: Any
    times: int

    def __call__(self, given: Any) -> bool:
        """Record a key, or a list of them."""
        self.record.note(given)
        keys = given if isinstance(given, list) else [given]
        tries = sum(self.key == each or self.key in _listed(each) for each in self.record.keys())
        if self.key in keys and tries <= self.times:
            os._exit(9)
        return True


@dataclass(frozen=True)
class Reads:
    """Records the contents of the key's file; now and then it fails, or kills its process."""

    record: Record
    directory: Path
    fail_every: int
    die_every: int

    def __call__(self, key: Any) -> bool:
        """Record a key."""
        version = (self.directory / str(key)).read_text()
        number = len(self.record.lines())
        self.record.note([key, version])
        if number % self.die_every == self.die_every - 1:
            os._exit(1)
        return number % self.fail_every != self.fail_every - 1


def _listed(key: Any) -> list[Any]:
    return key if isinstance(key, list) else []


def by_name(key: Any) -> bool:
    """Record a key in the file that the environment names."""
    return Notes(Record(Path(os.environ["STOMPKIT_TEST_RECORD"])))(key)
