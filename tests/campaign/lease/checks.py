"""Check the history of brokers with a lease.

The guarantees of messages are those of :mod:`tests.campaign.checker`; a life is a term, and its
number is the epoch. One more rule is checked:

``active``  two brokers were active at a time: an epoch had two owners, or a commit was made in an
            epoch after one of a later epoch

A run whose brokers do not get active again, exactly one of them, ends with a problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from stompkit.server.stores.postgresql.stamps import epoch_of
from tests.campaign.checker import Finding, Violation, check
from tests.campaign.history import Began, Ended, Event, Note, Opened, Setting, Wrote
from tests.campaign.lease.members import Term

__all__ = ["ACTIVE", "FAULTS_NOTE", "check_lease", "with_terms", "writes"]

ACTIVE: Final = "active"
#: Begins the note that lists the faults of a run, and the counts of faults.
FAULTS_NOTE: Final = "fault: "


def writes(stamps: Iterable[str]) -> Iterator[Wrote]:
    """Yield the terms that the stamps of commits show, one event for consecutive commits of one."""
    last = None
    for stamp in stamps:
        # The last part is random, and different for each term.
        term = Wrote(epoch_of(stamp), stamp.rpartition(".")[2])
        if term != last:
            yield term
            last = term


def with_terms(
    events: Sequence[Event], terms: Sequence[Term], sessions: Sequence[tuple[str, int]]
) -> list[Event]:
    """Return a history with the lives of brokers.

    ``sessions`` has the session and the life of each opened connection, in their order. That life
    may be too late: of a session that ended before its client has seen its beginning.
    """
    setting, *rest = events
    assert isinstance(setting, Setting)
    lives: list[Event] = []
    for term in sorted(terms):
        lives.append(Began(term.epoch))
        if not term.is_open:
            lives.append(Ended(term.epoch, "stop" if term.is_clean else "crash"))
    epochs = iter(_epochs(sessions))
    changed: list[Event] = [
        replace(each, life=next(epochs)) if isinstance(each, Opened) else each for each in rest
    ]
    return [setting, *lives, *changed]


def _epochs(sessions: Sequence[tuple[str, int]]) -> list[int]:
    """Return the lives of sessions: none is after that of a later session of the same process."""
    found: dict[str, int] = {}
    latest: dict[str, int] = {}

    def place(session: str) -> tuple[str, int]:
        process, _, number = session.rpartition("-")
        return process, int(number)

    for session, life in sorted(sessions, key=lambda each: place(each[0]), reverse=True):
        process, _ = place(session)
        latest[process] = found[session] = min(life, latest.get(process, life))
    return [found[session] for session, _ in sessions]


def check_lease(events: Sequence[Event]) -> Finding:
    """Check a history with the terms of brokers and their commits."""
    finding = check(events)
    finding.violations[:0] = _at_a_time(events)
    finding.counts["terms"] = sum(isinstance(each, Began) for each in events)
    for each in events:
        if isinstance(each, Note) and FAULTS_NOTE in each.text:
            names = each.text.partition(FAULTS_NOTE)[2].split(", ")
            finding.counts.update(f"{FAULTS_NOTE}{name}" for name in names)
    return finding


def _at_a_time(events: Sequence[Event]) -> Iterator[Violation]:
    lives = [each.life for each in events if isinstance(each, Began)]
    for epoch in sorted({life for life in lives if lives.count(life) > 1}):
        yield Violation(ACTIVE, f"two brokers had the lease with epoch {epoch}")
    latest = Wrote(0, "")
    for each in events:
        if not isinstance(each, Wrote):
            continue
        if each.epoch < latest.epoch:
            text = f"a commit of epoch {each.epoch} was made after one of epoch {latest.epoch}"
            yield Violation(ACTIVE, text)
        elif each.epoch == latest.epoch and each != latest:
            yield Violation(ACTIVE, f"two brokers have written in epoch {each.epoch}")
        else:
            latest = each
