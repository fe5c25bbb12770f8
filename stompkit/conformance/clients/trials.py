"""Parallel runs of the client program, one for each case."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack

from stompkit.conformance.case import Case
from stompkit.conformance.clients.case import ClientCase
from stompkit.conformance.clients.client import Client, Patience
from stompkit.conformance.clients.program import Call, Launcher
from stompkit.conformance.clients.run import Run, open_nodes
from stompkit.conformance.target import UnreachableError
from stompkit.conformance.verdict import CaseResult, Verdict
from stompkit.frames import VERSIONS, Version

__all__ = ["Trials"]


class Trials:
    """Runs cases on one client."""

    def __init__(
        self,
        launch: Launcher,
        *,
        host: str = "127.0.0.1",
        patience: Patience | None = None,
        jobs: int = 1,
        on_case: Callable[[Case], None] = lambda case: None,
        on_result: Callable[[CaseResult], None] = lambda result: None,
    ) -> None:
        """Prepare the runs; nothing is started yet.

        ``jobs`` is the maximum number of parallel cases. ``on_case`` is called before each case,
        ``on_result`` after each result.
        """
        self._launch = launch
        self._host = host
        self._patience = patience or Patience()
        self._jobs = jobs
        self._on_case = on_case
        self._on_result = on_result
        self._lock = threading.Lock()
        self._runs: set[Run] = set()
        self._is_over = False
        self._has_connected = False
        self._offered: set[Version] = set()
        self.results: list[CaseResult] = []
        #: Errors of the suite itself; the cases concerned have no result.
        self.errors: list[str] = []

    @property
    def versions(self) -> list[str]:
        """The versions that the client has offered, oldest first."""
        return [version for version in VERSIONS if version in self._offered]

    def run(self, cases: Sequence[ClientCase]) -> None:
        """Run the cases: the first one alone, to check that the client connects at all.

        Raises :class:`UnreachableError` if it does not.
        """
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                for some in (cases[:1], cases[1:]):
                    for done in as_completed([pool.submit(self._try, case) for case in some]):
                        self._take(done)
            finally:
                # Clean up, whatever ends the run early.
                self._stop()
        if not self._has_connected and not self.errors:
            raise UnreachableError("the client has not connected in any of the cases")

    def _try(self, case: ClientCase) -> tuple[CaseResult, Client] | None:
        """Run the client on one case, and end it; return ``None`` after a stop."""
        with ExitStack() as stack:
            nodes = open_nodes(case, self._host)
            for node in nodes:
                stack.callback(node.close)
            with self._lock:
                if self._is_over:
                    return None
                self._on_case(case.case)
                call = Call(case.id, tuple((node.host, node.port) for node in nodes))
                try:
                    program = self._launch(call)
                except OSError as error:
                    raise UnreachableError(f"the program cannot be started: {error}") from None
                stack.callback(program.stop)
                run = Run(case, nodes, self._patience, program)
                self._runs.add(run)
            try:
                result = run.play()
            finally:
                with self._lock:
                    self._runs.discard(run)
                    was_aborted = self._is_over
            return None if was_aborted else (result, run.client)

    def _take(self, future: Future[tuple[CaseResult, Client] | None]) -> None:
        try:
            done = future.result()
        except UnreachableError:
            raise
        except Exception:
            # A case may raise only findings about the client.
            self.errors.append(traceback.format_exc())
            self._stop()
            return
        if done is None:
            return
        result, client = done
        self._has_connected = self._has_connected or bool(client.callers)
        self._offered.update(client.offered)
        if not self._has_connected and result.verdict is Verdict.FAILED:
            raise UnreachableError(result.detail)
        self.results.append(result)
        with self._lock:
            self._on_result(result)

    def _stop(self) -> None:
        """Start no more runs, and abort the current ones."""
        with self._lock:
            self._is_over = True
            for run in self._runs:
                run.client.abort()
