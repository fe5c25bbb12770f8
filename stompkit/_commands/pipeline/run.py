"""Runs a job for ``stompkit pipeline run``, with signal handling and progress output."""

from __future__ import annotations

import logging
import shlex
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from stompkit._commands.shared.signals import ended_by_signals
from stompkit._commands.shared.terminal import columns
from stompkit._common.spelling import amount
from stompkit._common.text import shown, shown_lines, text_of
from stompkit.spark.jobs import Pipeline, PipelineError, Progress
from stompkit.spark.session import SparkError, writes_archive

__all__ = ["Display", "run"]

#: Interval of progress output in seconds; without a terminal, only every Nth one is printed.
_TELL_S: Final = 1.0
_TELL_EVERY: Final = 10


def run(pipeline: Pipeline, path: Path, display: Display | None, *, verbose: bool) -> int:
    """Run a job until it ends; returns the exit status."""
    level = logging.DEBUG if verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # Py4J would log the calls between Python and Java, and at the root that Java has ended.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    for handler in logging.getLogger().handlers:
        handler.addFilter(lambda record: record.module != "java_gateway")
    try:
        with _told(pipeline, display), ended_by_signals(pipeline.stop):
            pipeline.run()
    except KeyboardInterrupt:
        raise
    except (PipelineError, SparkError) as problem:
        again = f"stompkit pipeline run {pipeline.job} --config {shlex.quote(str(path))}"
        reason = shown_lines(str(problem))
        print(f"stompkit pipeline: {reason}\nthen go on with: {again}", file=sys.stderr)
    except Exception as error:
        logging.getLogger(__name__).debug("the job has failed", exc_info=True)
        reason = shown_lines(pipeline.settings.without_secrets(text_of(error)))
        print(f"stompkit pipeline: {reason}", file=sys.stderr)
    else:
        return 0
    return 1


@contextmanager
def _told(pipeline: Pipeline, display: Display | None) -> Iterator[None]:
    """Report the progress in a background thread."""
    if display is None:
        yield
        return
    ended = threading.Event()

    def tell() -> None:
        is_told = False
        while not ended.wait(_TELL_S):
            address = pipeline.metrics_address
            if address is not None and not is_told:
                is_told = True
                print(f"metrics at http://{address}/metrics", file=sys.stderr, flush=True)
            display.show(pipeline.progress())

    thread = threading.Thread(target=tell, name="stompkit-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        display.end(pipeline.progress())
        if writes_archive():
            display.step("keeping Spark's classes for faster starts; this happens once")


class Display:
    """Progress output: a line for each step of the start, and then the progress.

    The progress is one changing line on a terminal, and elsewhere an occasional line with news.
    """

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._count = 0
        self._last = ""
        self._lock = threading.Lock()

    def step(self, step: str) -> None:
        """Show a step of the start or of the end, from any thread."""
        with self._lock:
            self._clear()
            print(step, file=sys.stderr, flush=True)

    def show(self, progress: Progress) -> None:
        """Show the progress if it is due."""
        if progress.phase == "starting" and not progress.problem:
            return  # the steps are shown
        with self._lock:
            self._show(_line(progress))

    def _show(self, line: str) -> None:
        if self._is_terminal:
            print(f"\r\x1b[K{line[: columns()]}", end="", file=sys.stderr, flush=True)
        elif self._count % _TELL_EVERY == 0 and line != self._last:
            self._last = line
            print(line, file=sys.stderr, flush=True)
        self._count += 1

    def end(self, progress: Progress) -> None:
        """Show the final progress."""
        self._clear()
        print(_line(progress), file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr)


def _line(progress: Progress) -> str:
    parts: list[str] = [progress.phase]
    if progress.batch is not None:
        parts.append(f"batch {progress.batch:,}")
    parts.append(amount(progress.changes, "change"))
    if progress.rate >= 1 and progress.phase == "running":
        parts.append(f"{progress.rate:,.0f} changes/s")
    if progress.lag is not None:
        parts.append(f"lag {amount(progress.lag, 'message')}")
    if progress.late:
        parts.append(f"{progress.late:,} late")
    if progress.dead_letters:
        parts.append(amount(progress.dead_letters, "dead letter"))
    if progress.problem:
        parts.append(shown(progress.problem))
    return "  ".join(parts)
