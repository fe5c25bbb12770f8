"""The Celery application that the workers of the tests run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tests.kombu.configured import configured

app = configured(os.environ)


@app.task
def add(x: int, y: int) -> int:
    """Return the sum of two numbers."""
    return x + y


@app.task
def total(numbers: list[int]) -> int:
    """Return the sum of many numbers."""
    return sum(numbers)


@app.task(bind=True, autoretry_for=(ValueError,), retry_kwargs={"max_retries": 3, "countdown": 1})
def stubborn(self: Any) -> int:
    """Fail twice; return the number of retries."""
    if self.request.retries < 2:
        raise ValueError("not yet")
    return int(self.request.retries)


@app.task
def now() -> float:
    """Return the time of execution."""
    return time.time()


@app.task(bind=True, acks_late=True, reject_on_worker_lost=True)
def gated(self: Any, directory: str) -> str:
    """Report the start, and wait for permission to end."""
    folder = Path(directory)
    begun = f"begun-{os.getpid()}"
    (folder / begun).touch()
    while not (folder / "go").exists():
        time.sleep(0.05)
    (folder / f"done-{os.getpid()}").touch()
    return f"{self.request.delivery_info['redelivered']}"
