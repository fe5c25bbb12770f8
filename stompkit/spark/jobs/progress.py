"""Progress of a running job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Progress"]


@dataclass(frozen=True)
class Progress:
    """Progress of a running job."""

    phase: Literal["starting", "running", "ended", "failed"] = "starting"
    #: Number of the last completed batch.
    batch: int | None = None
    #: Number of batches and of new changes since the start of the job.
    batches: int = 0
    changes: int = 0
    dead_letters: int = 0
    #: Number of late changes, and of retried batches.
    late: int = 0
    retries: int = 0
    #: Changes per second in the last batch.
    rate: float = 0.0
    #: Number of messages of the spool still to read.
    lag: int | None = None
    #: Reason for which a batch is being retried; empty otherwise.
    problem: str = ""
