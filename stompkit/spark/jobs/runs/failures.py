"""Reasons for which a job fails, from errors of batches and messages of Spark."""

from __future__ import annotations

import re
from typing import Final

from stompkit.replication.sinks import SinkMisconfiguredError
from stompkit.spark.fence import TargetBehindError
from stompkit.spark.jobs.contract import Aggregating, Work
from stompkit.spark.jobs.dead_letters import NotSentError
from stompkit.spark.jobs.settings import PipelineSettings
from stompkit.spool import SpoolUnavailableError

__all__ = ["Failures"]

#: Pattern of stompkit's own errors within the messages of Spark.
_OURS: Final = re.compile(r"^stompkit\.[\w.]+: (.+)$", re.MULTILINE)
_LAST: Final = re.compile(r"^(?:[A-Za-z_][\w.]*(?:Error|Exception)): (.+)$", re.MULTILINE)


class Failures:
    """Reasons for which batches of a job fail, in words for users and without secrets."""

    def __init__(self, settings: PipelineSettings, work: Work, checkpoint: str) -> None:
        """Start without progress; *checkpoint* is the location of Spark's checkpoint."""
        self._settings = settings
        self._work = work
        self._checkpoint = checkpoint
        #: True if a batch of this run has completed.
        self.has_progress = False

    def may_pass(self, error: Exception) -> bool:
        """Return True if a retry may succeed."""
        if isinstance(error, SinkMisconfiguredError):
            return False
        passing = (*self._work.passing, SpoolUnavailableError)
        # An exception in a task is quoted in an error of Spark.
        return isinstance(error, passing) or any(
            f".{kind.__name__}: " in str(error) for kind in passing if kind is not OSError
        )

    def behind(self, behind: TargetBehindError) -> str:
        """Return why counting cannot continue, and how to resolve it."""
        return (
            f"{behind}. Bring the results back, or start over under another name of the pipeline,"
            " with other results in [analytics]: then the job counts what the spool has"
        )

    def final(self, failure: BaseException | None, text: str) -> str:
        """Return why a query has ended: by an error of a batch, or with a message of Spark."""
        if isinstance(failure, TargetBehindError):
            return self._settings.without_secrets(self.behind(failure))
        if isinstance(failure, Exception):
            return self.reason_of(failure)
        return self.of_spark(text)

    def of_spark(self, text: str) -> str:
        """Return the reason in a message of Spark, and advice."""
        return self._settings.without_secrets(_quoted(text).rstrip(".") + self._advice(text))

    def reason_of(self, error: Exception) -> str:
        """Return the reason of an error of a batch."""
        if type(error).__module__.startswith("pyspark."):
            return self._settings.without_secrets(_quoted(str(error)))
        text = self._settings.without_secrets(self._work.explain(error))
        if isinstance(error, NotSentError):
            return f"dead-letter: {text}"
        is_of_target = isinstance(error, (SinkMisconfiguredError, *self._work.passing))
        return f"{self._work.setting}: {text}" if is_of_target else text

    def _advice(self, text: str) -> str:
        """Return how to proceed if Spark cannot resume from its checkpoint."""
        if self.has_progress or _OURS.search(text) or "Python worker" in text:
            # The query has made progress, the source reports the error, or a process is missing.
            return ""
        where = self._checkpoint
        if isinstance(self._work, Aggregating):
            return (
                f". If the checkpoint {where} is damaged, bring back a copy of it: it has what was"
                " counted. Or remove it and the results, and the job counts again what the spool"
                " has"
            )
        return (
            f". If the checkpoint {where} is damaged, remove it. How far the job is stands in the"
            " target: it reads the spool from the start and leaves out what is applied. Nothing is"
            " lost or applied twice"
        )


def _quoted(text: str) -> str:
    """Return the innermost error message from nested stack traces."""
    for pattern in (_OURS, _LAST):
        found = pattern.findall(text)
        if found:
            return str(found[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "Spark has ended the query"
