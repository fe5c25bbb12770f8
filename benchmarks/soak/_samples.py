"""Samples of a broker, from the system and from its own admin interface."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from benchmarks._process import MIB, disk_bytes, memory

__all__ = ["Admin", "Sample", "Sampler", "columns"]

_TIMEOUT_S: Final = 600.0


class Admin:
    """A client of a broker's HTTP interface, with a new connection for each request."""

    def __init__(self, url: str) -> None:
        """Set the URL of the admin interface."""
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "", parts.port or 0

    def text(self, path: str) -> str:
        """Return the body of a GET response; raise OSError and http.client.HTTPException."""
        return self._asked("GET", path, None)

    def json(self, path: str) -> Any:
        """Return the body of a GET response as JSON."""
        return json.loads(self.text(f"/api/v1/{path}"))

    def post(self, path: str, **fields: object) -> None:
        """Send a POST request."""
        self._asked("POST", f"/api/v1/{path}", json.dumps(fields))

    def _asked(self, method: str, path: str, body: str | None) -> str:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_TIMEOUT_S)
        try:
            headers = {} if body is None else {"content-type": "application/json"}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= 400:
            raise http.client.HTTPException(f"{method} {path}: {answer.status} {text[:200]}")
        return text

    def gauges(self) -> dict[str, float]:
        """Return the metrics without labels."""
        found = {}
        for line in self.text("/metrics").splitlines():
            if not line.startswith("#") and "{" not in line:
                name, _, value = line.partition(" ")
                found[name] = float(value)
        return found


class Sample(NamedTuple):
    """A sample; ``s`` is seconds since the load began."""

    s: float
    memory_mib: float
    store_mib: float
    descriptors: float
    threads: float
    connections: float
    subscriptions: float
    durables: float
    destinations: float
    timers: float
    messages: float
    received: float
    delivered: float
    settled: float


class Sampler:
    """Samples a broker periodically, in a separate thread."""

    def __init__(self, pid: int, data: Path, admin: Admin, interval_s: float) -> None:
        """Start without samples."""
        self._pid = pid
        self._data = data
        self._admin = admin
        self._interval_s = interval_s
        self._began = time.monotonic()
        self._end = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self.samples: list[Sample] = []
        self.trouble: str | None = None

    def start(self) -> None:
        """Start sampling; times count from here."""
        self._began = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Take the last sample."""
        self._end.set()
        self._thread.join()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the load began."""
        return time.monotonic() - self._began

    def summary(self) -> str:
        """Return the last sample as text."""
        if not self.samples:
            return "no sample yet"
        last = self.samples[-1]
        return f"{last.memory_mib:.1f} MiB, {last.delivered:,.0f} deliveries"

    def look(self) -> Sample:
        """Return a sample of the current state."""
        status = Path(f"/proc/{self._pid}/status").read_text(encoding="ascii")
        threads = next(line for line in status.splitlines() if line.startswith("Threads:"))
        descriptors = len(os.listdir(f"/proc/{self._pid}/fd"))
        anonymous, _ = memory(self._pid)
        gauges, overview = self._admin.gauges(), self._admin.json("overview")
        totals = overview["totals"]
        return Sample(
            s=self.elapsed_s,
            memory_mib=anonymous / MIB,
            store_mib=disk_bytes(self._data) / MIB,
            descriptors=descriptors,
            threads=int(threads.split()[1]),
            connections=gauges["stompkit_connections"],
            subscriptions=gauges["stompkit_subscriptions"],
            durables=gauges["stompkit_durable_subscriptions"],
            destinations=gauges["stompkit_destinations"],
            timers=gauges["stompkit_timers"],
            messages=overview["ready"] + overview["in_flight"] + overview["delayed"],
            received=totals["received"],
            delivered=totals["delivered"],
            settled=totals["settled"],
        )

    def _run(self) -> None:
        while not self._end.wait(self._interval_s):
            try:
                self.samples.append(self.look())
            except (OSError, ValueError, http.client.HTTPException) as error:
                self.trouble = f"the broker cannot be looked at: {error!r}"
                return


def columns(samples: Sequence[Sample]) -> dict[str, list[float]]:
    """Return the series, each a list, with the deliveries per second between two samples."""
    made = {name: [getattr(each, name) for each in samples] for name in Sample._fields}
    rates = [(now.delivered - then.delivered) / (now.s - then.s) for then, now in pairwise(samples)]
    made["delivered_per_s"] = rates[:1] + rates
    return made
