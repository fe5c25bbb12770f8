"""The application of Celery that the tests have workers for."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tests.kombu.configured import configured

app = configured(os.environ)


@app.task
def add(x: int, y: int) -> int:
    """The sum."""
    return x + y


@app.task
def total(numbers: list[int]) -> int:
    """The sum of many."""
    return sum(numbers)


@app.task(bind=True, autoretry_for=(ValueError,), retry_kwargs={"max_retries": 3, "countdown": 1})
def stubborn(self: Any) -> int:
    """Fail twice; return how often it was tried again."""
    if self.request.retries < 2:
        raise ValueError("not yet")
    return int(self.request.retries)


@app.task
def now() -> float:
    """The time at which it is done."""
    return time.time()


@app.task(bind=True, acks_late=True, reject_on_worker_lost=True)
def gated(self: Any, directory: str) -> str:
    """Say that it has begun, and wait until it may end."""
    folder = Path(directory)
    begun = f"begun-{os.getpid()}"
    (folder / begun).touch()
    while not (folder / "go").exists():
        time.sleep(0.05)
    (folder / f"done-{os.getpid()}").touch()
    return f"{self.request.delivery_info['redelivered']}"
