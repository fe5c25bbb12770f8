"""One case, tried on a client and judged."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack

from stompkit.conformance._octets import plain
from stompkit.conformance.clients.case import ClientCase
from stompkit.conformance.clients.client import Client, Patience
from stompkit.conformance.clients.node import Node
from stompkit.conformance.clients.program import CANNOT, Program
from stompkit.conformance.peer import Recorder
from stompkit.conformance.verdict import CaseResult, Unsupported, Verdict

__all__ = ["Run", "open_nodes"]

#: How long to wait, in seconds, for the end of a program that has closed its connection.
_DYING_S = 1.0
#: How many lines are shown of the beginning and of the end of a program's last words.
_SHOWN_LINES = 2
_SHOWN_CHARACTERS = 200


def open_nodes(case: ClientCase, host: str, first_port: int = 0) -> list[Node]:
    """Take the addresses that a case needs; raises ``OSError`` where they can't be had.

    The ports are any that are free, unless there is a ``first_port``; then the ones from there on.
    """
    with ExitStack() as stack:
        nodes = []
        for number in range(case.nodes):
            port = first_port + number if first_port else 0
            nodes.append(Node(host, port, refuses=number < case.refusing))
            stack.callback(nodes[-1].close)
        stack.pop_all()
    return nodes


class Run:
    """One case, and the client that is about to connect."""

    def __init__(
        self,
        case: ClientCase,
        nodes: Sequence[Node],
        patience: Patience,
        program: Program | None = None,
    ) -> None:
        """Begin; without a ``program`` somebody else runs the client."""
        self.client = Client(case.case.version, case.since, nodes, Recorder(), patience, program)
        self._case = case
        self._program = program
        self._began = time.monotonic()

    def play(self) -> CaseResult:
        """Run the case to its end, and judge; what is a mistake of the case's own is raised."""
        error: AssertionError | Unsupported | None = None
        try:
            self._case.play(self.client)
        except (AssertionError, Unsupported) as found:
            error = found
        verdict, detail = self._judge(error)
        case, client = self._case.case, self.client
        return CaseResult(
            id=case.id,
            version=client.tested,
            chapter=case.chapter,
            section=case.section,
            level=case.level,
            requirements=list(case.requirements),
            statement=case.statement,
            expectation=case.expectation,
            verdict=verdict,
            ending=client.finish(),
            detail=plain(detail),
            notes=[plain(note) for note in client.notes],
            profile={about: plain(does) for about, does in client.chosen.items()},
            duration_ms=int((time.monotonic() - self._began) * 1000),
            wire=client.recorder.events,
        )

    def _judge(self, error: AssertionError | Unsupported | None) -> tuple[Verdict, str]:
        """Make a verdict of what the case has recorded and raised; with the reason."""
        case, lapses = self._case.case, self.client.lapses
        if isinstance(error, Unsupported):
            return Verdict.UNSUPPORTED, str(error)
        if error is not None:
            status, said = self._last_words()
            if status == CANNOT:
                return Verdict.UNSUPPORTED, f"the program can't do it: it ended with {CANNOT}"
            reason = _reason(error, status, said)
            return (Verdict.NON_STRICT if case.level == "SHOULD" else Verdict.FAILED), reason
        if lapses:
            return Verdict.NON_STRICT, "; ".join(lapses)
        return (Verdict.INFORMATIONAL if case.informational else Verdict.OK), ""

    def _last_words(self) -> tuple[int | None, str]:
        """The exit status of the program, if it has ended, and what it has said."""
        if self._program is None:
            return None, ""
        is_leaving = any(caller.is_closed_by_target for caller in self.client.callers)
        return self._program.wait(_DYING_S if is_leaving else 0), self._program.said()


def _reason(error: BaseException, status: int | None, said: str) -> str:
    """Why a case failed, and what is known of the program."""
    reason = str(error).partition("\n")[0] or "an assertion without a message"
    if status is not None and "status" not in reason:
        reason += f"; the program ended with status {status}"
    lines = [line.strip()[:_SHOWN_CHARACTERS] for line in said.splitlines() if line.strip()]
    # What was wrong is the last line of a traceback in some languages, the first in others.
    shown = lines[:_SHOWN_LINES] + lines[_SHOWN_LINES:][-_SHOWN_LINES:]
    return f"{reason}; it said: {' / '.join(shown)}" if shown else reason
