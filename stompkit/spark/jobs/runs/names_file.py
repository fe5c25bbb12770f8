"""A file beside the lock of a job with the tables and columns of changes that it has read."""

from __future__ import annotations

from typing import Final

import msgspec

from stompkit._common.files import make_directory, write_atomically
from stompkit.spark.jobs.settings import JobName, PipelineSettings
from stompkit.spark.names import Names, dump, load, merged

__all__ = ["NamesFile"]


class NamesFile:
    """Names that are kept from one run of a job to the next."""

    def __init__(self, settings: PipelineSettings, job: JobName, file: str) -> None:
        """Read the file; without it, there are no names."""
        self.path: Final = settings.folder() / job / file
        self.names: Names = {}
        try:
            self.names = load(self.path.read_bytes())
        except (OSError, msgspec.DecodeError):
            return

    def add(self, names: Names) -> None:
        """Add names."""
        self.keep(merged([self.names, names]))

    def keep(self, names: Names) -> None:
        """Replace all names, and write the file if they differ."""
        if names != self.names:
            self.names = names
            make_directory(self.path.parent, mode=0o700)
            write_atomically(self.path, dump(names), mode=None)

    def forget(self) -> None:
        """Remove the file."""
        self.names = {}
        self.path.unlink(missing_ok=True)
