"""How far a job is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Progress"]


@dataclass(frozen=True)
class Progress:
    """How far a job is."""

    phase: Literal["starting", "running", "ended", "failed"] = "starting"
    #: The number of the last batch that is done.
    batch: int | None = None
    #: Batches, and changes that were new, since the job was started.
    batches: int = 0
    changes: int = 0
    dead_letters: int = 0
    #: Changes that came too late to be counted, and how often a batch was tried again.
    late: int = 0
    retries: int = 0
    #: How many of the changes there were in a second, in the last batch.
    rate: float = 0.0
    #: Messages of the spool that are still to be read.
    lag: int | None = None
    #: Why a batch is tried again and again, as long as that is so.
    problem: str = ""
