"""The pytest plug-in of the suite: runs cases, judges them, and checks that the target is alive.

The runner loads it by name. ``pytest`` on the folder of cases loads it through its conftest, for
the development of cases: there a FAILED case is a failed test, an UNSUPPORTED one is skipped, and a
NON-STRICT one is an expected failure.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import cast

import pytest

from stompkit.conformance.address import Address
from stompkit.conformance.case import NEWEST, Case, cases_of
from stompkit.conformance.control import Control
from stompkit.conformance.peer import Peer, Recorder
from stompkit.conformance.run.lacking import lacking
from stompkit.conformance.target import (
    Capabilities,
    Target,
    UnreachableError,
    comes_alive,
    probe,
)
from stompkit.conformance.verdict import (
    CaseResult,
    CommandError,
    Ending,
    FailedError,
    UnsupportedError,
    Verdict,
)
from stompkit.conformance.wire.octets import plain
from stompkit.conformance.wire.rules import MUST_CLOSE
from stompkit.frames import Version
from stompkit.testing import RunningBroker

#: Exceptions that count against the target, raised by the set-up and by the body of a case. A body
#: also fails on an unexpected frame, for example one with a missing header or an invalid number.
#: Anything else is an error in the case, which a type checker would have found.
_ABOUT_THE_TARGET: dict[str, tuple[type[Exception], ...]] = {
    "setup": (FailedError, UnsupportedError),
    "call": (AssertionError, UnsupportedError, LookupError, ValueError),
}

CASE = pytest.StashKey[Case]()
RESULT = pytest.StashKey[CaseResult]()
TARGET = pytest.StashKey[Target]()
ADDRESS = pytest.StashKey[Address]()
CAPABILITIES = pytest.StashKey[Capabilities]()
CONTROL = pytest.StashKey[Control]()
#: Property of a report whose failure, if any, is the target's and not the suite's.
JUDGED = "stompkit-verdict"
#: Property of a report with the failure of a user's command, which ends the run.
COMMAND = "stompkit-command"
_BEGAN = pytest.StashKey[float]()
#: Statements that the target has violated so far, whatever the cases were about.
_VIOLATED = pytest.StashKey[set[str]]()


# Fixtures.


@pytest.fixture(scope="session")
def address(request: pytest.FixtureRequest) -> Address:
    """The address of the target: given by the runner, or of the broker of ``stomp_broker``."""
    given = request.config.stash.get(ADDRESS, None)
    if given is not None:
        return given
    broker: RunningBroker = request.getfixturevalue("stomp_broker")
    # Connect directly, not through the proxy that records frames: the broker is judged.
    return Address(*broker.server_address, broker.login, broker.passcode, broker.vhost)


@pytest.fixture(scope="session")
def capabilities(request: pytest.FixtureRequest, address: Address) -> Capabilities:
    """Capabilities of the target; ends the run if no STOMP server answers."""
    given = request.config.stash.get(CAPABILITIES, None)
    if given is not None:
        return given
    try:
        return probe(address)
    except UnreachableError as error:
        pytest.exit(str(error), returncode=3)


@pytest.fixture
def target(
    request: pytest.FixtureRequest, address: Address, capabilities: Capabilities, version: str
) -> Iterator[Target]:
    """The target during one case, for the version of the case."""
    chosen = capabilities.versions[-1] if version == NEWEST else cast("Version", version)
    control = request.config.stash.get(CONTROL, None)
    target = Target(address, capabilities, chosen, Recorder(address.secret), control)
    target.has_valid_frames = is_valid(request.node.stash.get(CASE, None))
    known = request.config.stash.setdefault(_VIOLATED, set())
    target.awaits_close = MUST_CLOSE not in known
    request.node.stash[TARGET] = target
    yield target
    ending = target.finish()
    known |= target.violations.keys()
    hide = target.recorder.hide
    del request.node.stash[TARGET]  # with everything that it has received
    result = request.node.stash.get(RESULT, None)
    if result is not None:
        result.ending = ending
        result.violations = {rule: plain(hide(it)) for rule, it in target.violations.items()}
        result.wire = target.recorder.events
        if not _recovers(address, capabilities.versions[-1]):
            result.verdict = Verdict.FAILED
            result.detail = f"{result.detail}; afterwards it no longer answers CONNECT".lstrip("; ")
            request.session.shouldstop = "the target no longer answers CONNECT"


def is_valid(case: Case | None) -> bool:
    """Return True unless the chapter of a case sends malformed frames."""
    return case is None or case.chapter != "robustness"


def _recovers(address: Address, version: Version) -> bool:
    return comes_alive(address, version, address.recovery_s)


@pytest.fixture
def peer(target: Target) -> Peer:
    """A session with the version of the case."""
    return target.connect()


# Hooks.


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Attach its case to each test; a duplicate name is an error of the suite."""
    seen: dict[str, str] = {}
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        cases = cases_of(item.function)
        if not cases:
            continue
        case = cases[str(item.callspec.params["version"])]
        if case.id in seen:
            raise pytest.UsageError(f"{item.nodeid} and {seen[case.id]} are both {case.id}")
        seen[case.id] = item.nodeid
        item.stash[CASE] = case


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Judge a case as soon as its set-up has failed or its body is complete."""
    case = item.stash.get(CASE, None)
    report = yield
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, CommandError):
        given = item.config.stash.get(ADDRESS, None)
        text = str(error) if given is None else Recorder(given.secret).hide(str(error))
        report.user_properties.append((COMMAND, text))
        item.session.shouldstop = text
        return report
    if case is None or call.when == "teardown":
        return report
    if call.when == "setup":
        item.stash[_BEGAN] = call.start
        if error is None:
            return report
    if error is not None and not isinstance(error, _ABOUT_THE_TARGET[call.when]):
        return report  # an error of the suite, not of the target
    target = item.stash.get(TARGET, None)
    result = judge(case, target, error)
    if target is not None:
        excuse(result, target)
    result.duration_ms = int((call.stop - item.stash[_BEGAN]) * 1000)
    item.stash[RESULT] = result
    _translate(report, result)
    return report


def judge(case: Case, target: Target | None, error: BaseException | None) -> CaseResult:
    """Return the verdict from the record and the exception of a case."""
    lapses = target.lapses if target is not None else []
    hide = target.recorder.hide if target is not None else str
    version = case.version if target is None else target.version
    if isinstance(error, UnsupportedError):
        verdict, detail = Verdict.UNSUPPORTED, str(error)
    elif error is not None:
        verdict = Verdict.FAILED if case.can_fail(version) else Verdict.NON_STRICT
        detail = _explained(error)
    elif lapses:
        verdict, detail = Verdict.NON_STRICT, "; ".join(lapses)
    else:
        verdict, detail = (Verdict.INFORMATIONAL if case.informational else Verdict.OK), ""
    return CaseResult(
        id=case.id,
        version=version,
        chapter=case.chapter,
        section=case.section,
        level=case.level,
        requirements=list(case.requirements),
        statement=case.statement,
        sentence=case.sentence(version) if case.can_fail(version) else "",
        expectation=case.expectation,
        verdict=verdict,
        ending=Ending.CLEAN,
        detail=plain(hide(detail)),
        notes=[plain(hide(note)) for note in target.notes] if target is not None else [],
        profile=(
            {about: plain(hide(does)) for about, does in target.chosen.items()}
            if target is not None
            else {}
        ),
    )


def excuse(result: CaseResult, target: Target) -> None:
    """Make a case UNSUPPORTED that has failed, if it relied on what the target lacks.

    This ends the connections of the case.
    """
    if result.verdict in (Verdict.FAILED, Verdict.NON_STRICT):
        target.finish()
        if reason := lacking(target):
            result.verdict = Verdict.UNSUPPORTED
            result.detail = f"{reason} ({result.detail})"


def _explained(error: BaseException) -> str:
    """Return the error on one line: the rest is pytest's explanation of an assertion."""
    if isinstance(error, AssertionError):
        return str(error).partition("\n")[0] or "an assertion without a message"
    return f"the case cannot go on with what came: {type(error).__name__}: {error}"


def _translate(report: pytest.TestReport, result: CaseResult) -> None:
    """Translate the verdict to an outcome of pytest."""
    report.user_properties.append((JUDGED, str(result.verdict)))
    match result.verdict:
        case Verdict.UNSUPPORTED:
            report.outcome = "skipped"
            report.longrepr = ("", 0, f"Skipped: {result.detail}")
        case Verdict.NON_STRICT:
            report.outcome = "skipped"
            report.wasxfail = result.detail
        case Verdict.FAILED:
            report.outcome = "failed"
        case _:
            report.outcome = "passed"
