"""Tables whose changes a job has left out: selected later, they would lack these changes."""

from __future__ import annotations

from typing import Final

from stompkit._common.spelling import amount
from stompkit.spark.jobs.runs.names_file import NamesFile
from stompkit.spark.jobs.settings import JobName, PipelineError, PipelineSettings
from stompkit.spark.names import Names
from stompkit.spark.states import Choice

__all__ = ["LeftOut"]

_REMEDIES: Final[dict[JobName, str]] = {
    "replicate": "run the job rebuild with --replace, or apply the spool to an empty target, under"
    " another name of the pipeline",
    "events": "store the changes in another path, under another name of the pipeline",
}


class LeftOut:
    """The tables of changes that a job has read and not selected, in a file beside its lock."""

    def __init__(self, settings: PipelineSettings, job: JobName) -> None:
        """Read the file; without it, the job has left out nothing."""
        self._job: Final = job
        self._file: Final = NamesFile(settings, job, "left-out.json")
        self._setting: Final = "tables in [events]" if job == "events" else "tables in [apply]"
        wanted = settings.apply.tables if job == "replicate" else None
        if job == "events" and settings.events is not None:
            wanted = settings.events.tables
        self._choice: Final = Choice(tables=None if wanted is None else frozenset(wanted))

    def add(self, names: Names) -> None:
        """Add the tables of a batch that the settings do not select."""
        left = {table: columns for table, columns in names.items() if not self._choice.has(*table)}
        if left.keys() - self._file.names.keys():
            self._file.add(left)

    def check(self) -> None:
        """Raise PipelineError if the settings select one of the tables now."""
        found = sorted(table for table in self._file.names if self._choice.has(*table))
        if not found:
            return
        table = ".".join(filter(None, found[0]))
        others = f" and {amount(len(found) - 1, 'other')}" if found[1:] else ""
        raise PipelineError(
            f"{self._setting}: the job has left out changes of the table {table!r}{others} so far,"
            f" which would be missing. To have them, {_REMEDIES[self._job]}. For the later changes"
            f" alone, remove {self._file.path}"
        )

    def forget(self) -> None:
        """Remove the file: the job reads all changes again."""
        self._file.forget()

    def forget_selected(self) -> None:
        """Remove the tables that the settings select: the target has all of their changes now."""
        names = self._file.names
        self._file.keep({each: names[each] for each in names if not self._choice.has(*each)})
