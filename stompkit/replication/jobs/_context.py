"""Shared state of a job: its source and its target report failures and connections here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from blinker import Signal

from stompkit._common.secrets import mask, mask_url
from stompkit.client.blocking import Link, LinkClosedError
from stompkit.replication.jobs._settings import JobError, JobSettings
from stompkit.replication.model.events import Changeset
from stompkit.replication.model.tables import Tables

__all__ = ["JobContext"]


class JobContext:
    """Settings and state of a job, for its parts."""

    def __init__(
        self,
        settings: JobSettings,
        *,
        name: str,
        source_scheme: str,
        target_scheme: str,
        tables: Tables,
        on_applied: Callable[[Changeset], object] | None,
    ) -> None:
        """Start without connections and failures."""
        self.settings: Final = settings
        self.name: Final = name
        self.source_scheme: Final = source_scheme
        self.target_scheme: Final = target_scheme
        self.tables: Final = tables
        self.changesets: Final = Signal()
        """Private signal from the job's source to its target, invisible to other jobs of the
        process."""
        self.stopping: Final = threading.Event()
        self.stop_source: Callable[[], None] = lambda: None
        self.stop_targets: Final[list[Callable[[], None]]] = []
        """Functions that end the waits of targets."""
        self.failure: BaseException | None = None
        """Permanent failure of a target."""
        self.error = ""
        """Current problem, for the status."""
        self.failed_end = ""
        """``from`` or ``to`` once this end of the job has failed, for messages."""
        self._on_applied = on_applied
        self._links: list[tuple[str, Link]] = []

    @property
    def state_path(self) -> Path:
        """Path of the checkpoint file, for sources that resume from one."""
        return self.settings.directory / f"{self.name}.json"

    @property
    def disconnected(self) -> list[str]:
        """URLs of brokers that are not connected."""
        return [url for url, link in self._links if not link.is_connected]

    def stop(self) -> None:
        """Stop the source and the targets; thread-safe and idempotent."""
        self.stopping.set()
        self.stop_source()
        for stop in self.stop_targets:
            stop()

    @contextmanager
    def blaming(self, end: str) -> Iterator[None]:
        """Note that the end has failed, if an exception is raised."""
        try:
            yield
        except JobError:
            raise  # it names the option itself
        except Exception:
            self.failed_end = self.failed_end or end
            raise

    def fail(self, error: BaseException, end: str = "to") -> None:
        """End the job, because a target has failed; an idle source would not notice."""
        self.failure = error
        self.failed_end = self.failed_end or end
        self.stop()

    def watch(self, end: str, link: Link) -> None:
        """Report a connection of an end in the status, and end the job if it gives up."""
        url = self.settings.source if end == "from" else self.settings.to

        def closed(done: Future[None]) -> None:
            error = done.exception()
            if error is not None:
                self.fail(LinkClosedError(f"{mask_url(url)}: {error}"), end)

        self._links.append((mask_url(url), link))
        self.stop_targets.append(link.stop)
        link.closed.add_done_callback(closed)

    def report(self, problem: object) -> None:
        """Show a problem in the status."""
        self.error = self.without_secrets(str(problem))

    def recover(self, changesets: Sequence[Changeset]) -> None:
        """Clear the problem in the status."""
        self.error = ""

    def applied(self, changesets: Sequence[Changeset]) -> None:
        """Report changesets that are not sent by signals."""
        self.recover(changesets)
        if self._on_applied is not None:
            for changeset in changesets:
                self._on_applied(changeset)

    def without_secrets(self, text: str) -> str:
        """Return a text with the passwords in the job's URLs masked.

        A password that occurs elsewhere in the text is not recognisable there, and stays.
        """
        return mask(text, (self.settings.source, self.settings.to))
