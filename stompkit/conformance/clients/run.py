"""The execution of one case on a client, and its verdict."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack

from stompkit.conformance.clients.case import ClientCase
from stompkit.conformance.clients.client import Client, Patience
from stompkit.conformance.clients.node import Node
from stompkit.conformance.clients.program import CANNOT, Program
from stompkit.conformance.peer import Recorder
from stompkit.conformance.verdict import CaseResult, FailedError, UnsupportedError, Verdict
from stompkit.conformance.wire.octets import plain

__all__ = ["Run", "open_nodes"]

#: Time in seconds for the end of a program that has closed its connection.
_DYING_S = 1.0
#: Number of lines shown from the start and from the end of a program's output.
_SHOWN_LINES = 2
_SHOWN_CHARACTERS = 200


def open_nodes(case: ClientCase, host: str, first_port: int = 0) -> list[Node]:
    """Open the addresses that a case requires; raises ``OSError`` on failure.

    The ports are free ones, or the consecutive ones from ``first_port`` on.
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
    """One case, with the client that is about to connect."""

    def __init__(
        self,
        case: ClientCase,
        nodes: Sequence[Node],
        patience: Patience,
        program: Program | None = None,
    ) -> None:
        """Prepare the case; without a ``program`` the client is not run by the suite."""
        self.client = Client(case.case.version, case.since, nodes, Recorder(), patience, program)
        self._case = case
        self._program = program
        self._began = time.monotonic()

    def play(self) -> CaseResult:
        """Run the case to its end, and judge it; errors of the case itself are raised."""
        error: AssertionError | UnsupportedError | None = None
        try:
            self._case.play(self.client)
        except (AssertionError, UnsupportedError) as found:
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
            sentence=case.sentence(client.tested) if case.can_fail(client.tested) else "",
            expectation=case.expectation,
            verdict=verdict,
            ending=client.finish(),
            detail=plain(detail),
            notes=[plain(note) for note in client.notes],
            profile={about: plain(does) for about, does in client.chosen.items()},
            duration_ms=int((time.monotonic() - self._began) * 1000),
            wire=client.recorder.events,
        )

    def _judge(self, error: AssertionError | UnsupportedError | None) -> tuple[Verdict, str]:
        """Return the verdict from the record and the exception of the case, with the reason."""
        case, lapses = self._case.case, self.client.lapses
        if isinstance(error, UnsupportedError):
            return Verdict.UNSUPPORTED, str(error)
        if error is not None:
            status, said = self._last_words()
            if status == CANNOT:
                return Verdict.UNSUPPORTED, f"the program cannot do it: it ended with {CANNOT}"
            undone = next((each.undone for each in self.client.callers if each.undone), "")
            reason = _reason(_not_done(undone) if undone else error, status, said)
            is_failed = case.can_fail(self.client.tested)
            return (Verdict.FAILED if is_failed else Verdict.NON_STRICT), reason
        if lapses:
            return Verdict.NON_STRICT, "; ".join(lapses)
        return (Verdict.INFORMATIONAL if case.informational else Verdict.OK), ""

    def _last_words(self) -> tuple[int | None, str]:
        """Return the exit status of the program, if it has ended, and its output."""
        if self._program is None:
            return None, ""
        is_leaving = any(caller.is_closed_by_target for caller in self.client.callers)
        return self._program.wait(_DYING_S if is_leaving else 0), self._program.said()


def _not_done(instruction: str) -> FailedError:
    """Return the failure of an agent that takes an instruction for any other body."""
    return FailedError(
        f"the agent did not do the instruction {instruction!r}, but sent it back: see 'The agent'"
        " in 'Conformance tests for clients'"
    )


def _reason(error: BaseException, status: int | None, said: str) -> str:
    """Return the reason of a failure, with the known facts about the program."""
    reason = str(error).partition("\n")[0] or "an assertion without a message"
    if status is not None and "status" not in reason:
        reason += f"; the program ended with status {status}"
    lines = [line.strip()[:_SHOWN_CHARACTERS] for line in said.splitlines() if line.strip()]
    # The error is the last line of a traceback in some languages, the first in others.
    shown = lines[:_SHOWN_LINES] + lines[_SHOWN_LINES:][-_SHOWN_LINES:]
    return f"{reason}; it said: {' / '.join(shown)}" if shown else reason
