"""An independent client is judged correctly: each of its faults is reported.

:mod:`tests.conformance.second_client` is the client. Each of its switches violates one statement.
The table has the cases that detect it: these, and no others.
"""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from stompkit.conformance.clients.cases import all_cases
from stompkit.conformance.clients.client import Patience
from stompkit.conformance.clients.trials import Trials
from stompkit.conformance.verdict import CaseResult, Verdict
from tests.conformance.command import read_report
from tests.conformance.conftest import Suite
from tests.conformance.minimal_client import thread_launcher
from tests.conformance.second_client import DEVIATIONS, LIBERTIES, Client

#: Patterns of the cases that are FAILED or NON-STRICT, by the switch of a client.
FOUND: dict[str, tuple[str, ...]] = {
    "acknowledges after DISCONNECT": ("client/disconnect/late-message",),
    "acknowledges by message-id on 1.2": (
        "client/1.2/ack/escapes",
        "client/1.2/ack/names-message",
        "client/1.2/frame/crlf",
        "client/1.2/frame/mixed-line-ends",
        "client/1.2/nack/names-message",
        "client/ack/each-message",
        "client/header/case",
        "client/nack/no-ack",
    ),
    "acknowledges every second message": (
        "client/1.0/negotiation/no-version",
        "client/1.1/ack/names-subscription",
        "client/1.2/frame/mixed-line-ends",
        "client/1.?/ack/names-message",
        "client/1.[12]/frame/grammar",
        "client/ack/each-message",
        "client/nack/no-ack",
    ),
    "acknowledges the newest message": ("client/ack/each-message",),
    "acknowledges what it refuses": ("client/nack/no-ack",),
    "acknowledges without subscription on 1.1": (
        "client/1.1/ack/escapes",
        "client/1.1/ack/names-message",
        "client/1.1/ack/names-subscription",
        "client/1.1/nack/names-message",
    ),
    "asks for a receipt of CONNECT": ("client/connect/no-receipt",),
    "beats 1.6 times late": ("client/heartbeat/in-time",),
    "beats by CR LF on 1.1": ("client/1.1/heartbeat/line-feed",),
    "beats only while it hears nothing": ("client/heartbeat/both-ways",),
    "begins all transactions by one name": ("client/transaction/ids-unique",),
    "changes CR LF in bodies": (
        "client/1.2/frame/crlf",
        "client/body/unchanged",
    ),
    "closes without DISCONNECT": (
        "client/1.?/frame/grammar",
        "client/disconnect/closed-instead",
        "client/disconnect/late-message",
        "client/disconnect/no-receipt",
        "client/disconnect/polite",
        "client/disconnect/waits-for-receipt",
        "client/message/after-unsubscribe",
        "client/receipt/unique",
    ),
    "combines accents in headers": ("client/header/utf8",),
    "counts characters": (
        "client/body/unchanged",
        "client/frame/octet-by-octet",
        "client/header/utf8",
        "client/send/length-in-octets",
    ),
    "cuts values at 255": ("client/header/long",),
    "damages bodies that are not UTF-8": (
        "client/body/binary",
        "client/body/binary-without-length",
        "client/body/charset",
        "client/body/large",
    ),
    "decides by the first line end": ("client/1.2/frame/mixed-line-ends",),
    "disconnects without receipt": ("client/disconnect/waits-for-receipt",),
    "does not escape": (
        "client/1.0/header/line-end",
        "client/1.?/escape/writes",
        "client/1.[12]/ack/escapes",
        "client/escape/names",
        "client/escape/writes-backslash",
        "client/subscribe/escapes",
    ),
    "does not escape destinations": ("client/subscribe/escapes",),
    "does not wait for CONNECTED": (
        "client/1.0/subscribe/ack-mode",
        "client/connect/refused",
        "client/connect/waits-for-connected",
    ),
    "does not wait for the RECEIPT": ("client/disconnect/waits-for-receipt",),
    "drops byte order marks": ("client/body/unchanged",),
    "drops empty values": ("client/header/empty",),
    "drops names with blanks": ("client/header/blanks-in-names",),
    "drops the twenty-first header": ("client/header/many",),
    "ends bodies at the end of a packet": ("client/connection/truncated",),
    "ends well after ERROR": (
        "client/connect/refused",
        "client/error/ends",
    ),
    "escapes CONNECT": ("client/connect/unescaped",),
    "escapes carriage returns on 1.1": ("client/1.1/header/carriage-return",),
    "escapes on 1.0": (
        "client/1.0/ack/escapes",
        "client/1.0/escape/left-alone",
    ),
    "escapes twice": (
        "client/1.[12]/ack/escapes",
        "client/1.[12]/escape/writes",
        "client/escape/writes-backslash",
        "client/subscribe/escapes",
    ),
    "expects beats sooner than agreed": (
        "client/heartbeat/error-margin",
        "client/heartbeat/slower-server",
    ),
    "forgets the transaction of SEND": (
        "client/transaction/abort",
        "client/transaction/commit",
        "client/transaction/ids-unique",
        "client/transaction/over",
    ),
    "forgives no late beat": ("client/heartbeat/error-margin",),
    "has one interval for both directions": ("client/heartbeat/each-direction",),
    "ignores content-length": (
        "client/1.0/body/nul",
        "client/body/large",
        "client/body/nul",
        "client/frame/octet-by-octet",
    ),
    "ignores content-length on 1.0": ("client/1.0/body/nul",),
    "keeps a backslash at the end": ("client/escape/unfinished",),
    "keeps escapes": (
        "client/1.1/escape/carriage-return",
        "client/1.?/escape/reads",
        "client/1.[12]/ack/escapes",
        "client/escape/capitals",
        "client/escape/names",
        "client/escape/reads-backslash",
        "client/escape/undefined",
        "client/escape/unfinished",
    ),
    "keeps the content-length of the MESSAGE before": ("client/body/length-before",),
    "keeps undefined escapes": (
        "client/1.1/escape/carriage-return",
        "client/escape/capitals",
        "client/escape/undefined",
        "client/escape/unfinished",
    ),
    "lets line ends into headers of 1.0": ("client/1.0/header/line-end",),
    "loses messages that come before its receipts": ("client/message/before-receipt",),
    "lowers destinations": ("client/subscribe/escapes",),
    "lowers header names": (
        "client/header/case",
        "client/header/letter-case",
    ),
    "lowers header names that it writes": ("client/header/letter-case",),
    "makes ids of destinations": ("client/subscribe/same-destination",),
    "names a transaction that is over": ("client/transaction/over",),
    "names no host": ("client/connect/host",),
    "names the ack of MESSAGE ack": (
        "client/1.2/ack/escapes",
        "client/1.2/ack/names-message",
        "client/1.2/frame/crlf",
        "client/1.2/frame/mixed-line-ends",
        "client/1.2/nack/names-message",
        "client/ack/each-message",
        "client/header/case",
        "client/nack/no-ack",
    ),
    "names the first subscription in ACK": ("client/1.1/ack/names-subscription",),
    "names the first subscription in NACK": ("client/1.1/ack/names-subscription",),
    "needs headers in each frame": ("client/1.0/connected/no-headers",),
    "needs heart-beat in CONNECTED": (
        "client/1.0/connected/no-headers",
        "client/1.0/negotiation/no-version",
        "client/heartbeat/missing-is-none",
    ),
    "needs the session of CONNECTED": (
        "client/1.0/connected/no-headers",
        "client/connected/bare",
    ),
    "offers versions in falling order": ("client/negotiation/accept-version-format",),
    "reads CONNECTED in one piece": ("client/connected/in-pieces",),
    "replaces tabs in values": ("client/header/blanks-inside",),
    "routes messages by destination": ("client/message/by-subscription",),
    "sends NACK on 1.0": ("client/1.0/nack/none",),
    "sends a body with SUBSCRIBE": ("client/1.[12]/frame/grammar",),
    "sends no content-length": (
        "client/1.0/body/nul",
        "client/body/large",
        "client/body/nul",
        "client/frame/octet-by-octet",
        "client/send/content-length",
    ),
    "sends no heart-beats": (
        "client/1.1/heartbeat/line-feed",
        "client/heartbeat/both-ways",
        "client/heartbeat/each-direction",
        "client/heartbeat/in-time",
        "client/heartbeat/sends",
    ),
    "sends text in UTF-8": ("client/body/charset",),
    "separates versions by blanks": ("client/negotiation/accept-version-format",),
    "skips one line end between frames": (
        "client/1.2/frame/crlf",
        "client/frame/line-ends-between",
    ),
    "speaks 1.2 whatever CONNECTED says": (
        "client/1.0/ack/escapes",
        "client/1.0/ack/names-message",
        "client/1.0/escape/left-alone",
        "client/1.0/frame/grammar",
        "client/1.0/negotiation/no-version",
        "client/1.0/subscribe/ack-mode",
        "client/1.1/ack/escapes",
        "client/1.1/ack/names-message",
        "client/1.1/ack/names-subscription",
        "client/1.1/escape/carriage-return",
        "client/1.1/frame/grammar",
        "client/1.1/header/carriage-return",
        "client/1.1/header/carriage-return-last",
        "client/1.1/nack/names-message",
    ),
    "strips line feeds at the end of bodies": (
        "client/body/unchanged",
        "client/frame/octet-by-octet",
    ),
    "subscribes without id": (
        "client/1.?/subscribe/id",
        "client/1.[12]/unsubscribe/names-subscription",
        "client/subscribe/ids-unique",
        "client/subscribe/same-destination",
    ),
    "swaps the numbers of heart-beat": (
        "client/1.1/heartbeat/line-feed",
        "client/heartbeat/each-direction",
        "client/heartbeat/in-time",
        "client/heartbeat/sends",
        "client/heartbeat/silent-server",
    ),
    "takes CR LF on 1.1": ("client/1.1/header/carriage-return-last",),
    "takes a missing heart-beat for its own": ("client/heartbeat/missing-is-none",),
    "takes any RECEIPT for that of DISCONNECT": ("client/disconnect/waits-for-receipt",),
    "takes bodies without content-length for text": ("client/body/binary-without-length",),
    "takes carriage returns for escapes on 1.1": ("client/1.1/escape/carriage-return",),
    "takes escapes in capitals": ("client/escape/capitals",),
    "takes no CR LF on 1.2": (
        "client/1.2/frame/crlf",
        "client/1.2/frame/mixed-line-ends",
    ),
    "takes only line ends for signs of life": (
        "client/heartbeat/any-data",
        "client/heartbeat/slow-frame",
    ),
    "takes only whole frames for signs of life": ("client/heartbeat/slow-frame",),
    "takes receipts by their beginning": ("client/disconnect/waits-for-receipt",),
    "takes the last of repeated headers": ("client/header/repeated",),
    "trims values": ("client/header/spaces",),
    "unescapes CONNECTED": ("client/connected/unescaped",),
    "unescapes lines before it splits them": ("client/escape/names",),
    "unescapes on 1.0": (
        "client/1.0/ack/escapes",
        "client/1.0/escape/left-alone",
        "client/1.0/negotiation/no-version",
    ),
    "unescapes values only": ("client/escape/names",),
    "unsubscribes by destination": ("client/1.[12]/unsubscribe/names-subscription",),
    "unsubscribes twice": ("client/unsubscribe/once",),
    "wants client-individual on 1.0": ("client/1.0/subscribe/ack-mode",),
    "writes heart-beat with decimals": ("client/heartbeat/header",),
}
#: Cases about permitted behaviour, with their verdict, usually OK.
PERMITTED: dict[str, tuple[tuple[str, ...], Verdict]] = {
    "acknowledges in all ways on 1.2": (
        ("client/1.2/ack/*", "client/1.2/nack/*", "client/ack/each-message"),
        Verdict.OK,
    ),
    "adds headers of its own": (
        ("client/1.?/frame/grammar", "client/1.?/ack/*", "client/header/*"),
        Verdict.OK,
    ),
    "asks for no receipts but that of DISCONNECT": (
        ("client/receipt/unique", "client/disconnect/*", "client/message/before-receipt"),
        Verdict.OK,
    ),
    "beats by CR LF on 1.2": (("client/heartbeat/*",), Verdict.OK),
    "beats five times as often": (("client/heartbeat/*",), Verdict.OK),
    "ends each frame with a line end": (
        ("client/1.?/frame/grammar", "client/heartbeat/none-wanted", "client/body/nul"),
        Verdict.OK,
    ),
    "has no heart-beats": (
        ("client/heartbeat/*", "client/1.1/heartbeat/*"),
        Verdict.UNSUPPORTED,
    ),
    "offers no 1.0": (("client/1.0/*",), Verdict.UNSUPPORTED),
    "refuses lines of more than 512 octets": (("client/header/long",), Verdict.UNSUPPORTED),
    "refuses more than 16 headers": (("client/header/many",), Verdict.UNSUPPORTED),
    "repeats headers": (
        ("client/1.?/frame/grammar", "client/send/*", "client/header/*", "client/transaction/*"),
        Verdict.OK,
    ),
    "says content-length in each frame of 1.2": (
        ("client/1.2/frame/grammar", "client/1.2/ack/*", "client/transaction/*"),
        Verdict.OK,
    ),
    "subscribes without id on 1.0": (("client/1.0/*",), Verdict.OK),
    "takes a version that it has not offered": (
        ("client/negotiation/not-offered",),
        Verdict.INFORMATIONAL,
    ),
    "trims values on 1.0": (("client/1.0/*", "client/header/spaces"), Verdict.OK),
    "waits for each receipt": (
        ("client/message/before-receipt", "client/frame/many-at-once", "client/transaction/*"),
        Verdict.OK,
    ),
    "writes in small pieces": (
        ("client/1.?/frame/grammar", "client/body/unchanged", "client/header/utf8"),
        Verdict.OK,
    ),
    "writes CR LF on 1.2": (
        ("client/1.2/*", "client/header/*", "client/escape/*", "client/body/nul"),
        Verdict.OK,
    ),
}
Runs = dict[str, Future[dict[str, str]]]

CASES = {case.id: case for case in all_cases()}
#: Shorter than the defaults for users, but long for events within one process.
PATIENCE = Patience(timeout_s=2.0, quiet_s=0.3)
#: For a second attempt without concurrency: on a busy machine, a correct client may have been late.
LONG_PATIENCE = Patience(timeout_s=10.0, quiet_s=1.0)
BAD = (Verdict.FAILED, Verdict.NON_STRICT)


def selected(patterns: Iterable[str]) -> set[str]:
    """Return the cases that match the patterns."""
    names = tuple(patterns)
    return {id for id in CASES if any(fnmatchcase(id, name) for name in names)}


#: For the test that each case fails on some client.
FAILED_HERE = sorted(selected(itertools.chain.from_iterable(FOUND.values())))


def results(
    switch: str, ids: Collection[str], patience: Patience = PATIENCE, jobs: int = 4
) -> dict[str, CaseResult]:
    """Return the results of cases on that client."""
    trials = Trials(
        thread_launcher(lambda nodes: Client(nodes, switch)), patience=patience, jobs=jobs
    )
    trials.run([CASES[id] for id in CASES if id in ids])
    assert not trials.errors, trials.errors
    return {each.id: each for each in trials.results}


def verdicts(switch: str, wanted: dict[str, tuple[Verdict, ...]]) -> dict[str, str]:
    """Return the cases with another verdict than the wanted ones, with the reason."""
    found = results(switch, wanted)
    other = {id for id in wanted if found[id].verdict not in wanted[id]}
    if other:
        found |= results(switch, other, LONG_PATIENCE, jobs=1)
    return {
        id: f"{found[id].verdict}: {found[id].detail}"
        for id in other
        if found[id].verdict not in wanted[id]
    }


def deviation(switch: str, ids: Iterable[str]) -> dict[str, str]:
    """Return differences from the table, among cases on a client that violates a statement."""
    bad = selected(FOUND[switch])
    good = (Verdict.OK, Verdict.INFORMATIONAL)
    return verdicts(switch, {id: BAD if id in bad else good for id in ids})


def liberty(switch: str, ids: Iterable[str]) -> dict[str, str]:
    """Return the same for a client that uses a liberty."""
    patterns, verdict = PERMITTED.get(switch, ((), Verdict.OK))
    concerned = selected(patterns)
    good = (Verdict.OK, Verdict.INFORMATIONAL)
    return verdicts(switch, {id: (verdict,) if id in concerned else good for id in ids})


@contextmanager
def side_by_side(*, everywhere: bool) -> Iterator[Runs]:
    """Judge all clients, in all cases or in those concerned, concurrently: they mostly wait."""
    with ThreadPoolExecutor(6) as pool:
        runs = {}
        for name, patterns in FOUND.items():
            runs[name] = pool.submit(deviation, name, CASES if everywhere else selected(patterns))
        for name, (patterns, _) in PERMITTED.items():
            runs[name] = pool.submit(liberty, name, CASES if everywhere else selected(patterns))
        yield runs
        pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def found() -> Iterator[Runs]:
    """Differences from the tables in the cases concerned."""
    with side_by_side(everywhere=False) as runs:
        yield runs


@pytest.fixture(scope="module")
def found_anywhere() -> Iterator[Runs]:
    """Differences from the tables in any case."""
    with side_by_side(everywhere=True) as runs:
        yield runs


def test_tables_have_each_switch() -> None:
    """There are at least forty deviations; all switches have an entry, and all patterns match."""
    assert FOUND.keys() == DEVIATIONS
    assert len(FOUND) >= 40
    assert PERMITTED.keys() == LIBERTIES
    patterns = [*FOUND.values(), *(some for some, _ in PERMITTED.values())]
    assert all(selected([pattern]) for some in patterns for pattern in some)


@pytest.mark.parametrize("switch", sorted(FOUND))
def test_deviation_is_found(switch: str, found: Runs) -> None:
    """The cases of the table detect the deviation."""
    assert not found[switch].result()


@pytest.mark.matrix
@pytest.mark.parametrize("switch", sorted(FOUND))
def test_deviation_is_found_by_no_other_case(switch: str, found_anywhere: Runs) -> None:
    """Of all cases, exactly those of the table detect the deviation."""
    assert not found_anywhere[switch].result()


def test_client_that_keeps_the_rules_passes() -> None:
    """All cases run, and none reports a fault."""
    assert not liberty("", CASES)


@pytest.mark.parametrize("switch", sorted(PERMITTED))
def test_what_is_permitted_is_no_deviation(switch: str, found: Runs) -> None:
    """The cases about the permitted behaviour report no fault."""
    assert not found[switch].result()


@pytest.mark.matrix
@pytest.mark.parametrize("switch", sorted(PERMITTED))
def test_what_is_permitted_is_no_deviation_in_any_case(switch: str, found_anywhere: Runs) -> None:
    """No case reports a fault of a client that uses a liberty."""
    assert not found_anywhere[switch].result()


def test_profile_tells_what_is_permitted() -> None:
    """The profile differs for a client that uses a liberty."""
    id, about = "client/negotiation/not-offered", "CONNECTED with a version that was not offered"
    switches = ("takes a version that it has not offered", "")
    said = [results(switch, [id])[id].profile[about] for switch in switches]
    assert said == ["goes on", "ends the session"]


def test_command_finds_the_same(suite: Suite, tmp_path: Path) -> None:
    """The command, run as by users, reports the same for a process as for a client in a thread."""
    switch = "changes CR LF in bodies"
    program = shlex.join([sys.executable, "-m", "tests.conformance.second_client"])
    command = f"{program} {{host}} {{port}} {shlex.quote(switch)}"
    cases = (*selected(FOUND[switch]), "client/connect/host", "client/disconnect/ends")
    done = suite("--exec", command, "--json", "report.json", *cases)
    assert done.status == 1, done.told
    report = read_report(tmp_path / "report.json")
    assert {each.id for each in report.results if each.verdict in BAD} == selected(FOUND[switch])
