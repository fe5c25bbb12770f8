"""An independent server is judged correctly: each of its faults is reported.

:mod:`tests.conformance.second_server` is the server. Each of its switches violates one statement.
The table has the cases that detect it: these, and no others.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

import pytest

from stompkit.conformance.address import Address
from stompkit.conformance.run.runner import Selection, run
from stompkit.conformance.target import probe
from stompkit.conformance.verdict import Verdict
from tests.conformance.second_server import DEVIATIONS, LIBERTIES, listening
from tests.conformance.test_broken_rules import CONTROL
from tests.conformance.virtual import (
    Network,
    own_broker,
    run_case,
    runnables,
    second_server,
    virtual,
)

#: Patterns of the cases that are FAILED or NON-STRICT, by the switch of a server.
FOUND: dict[str, tuple[str, ...]] = {
    "acknowledges by UNSUBSCRIBE": (
        "behaviour/1.?/redelivery/after-unsubscribe",
        "behaviour/ack/cumulative-reused-id",
    ),
    "acknowledges in all subscriptions of a connection": (
        "1.?/ack-mode/cumulative-per-subscription",
    ),
    "acknowledges messages of other connections": ("behaviour/1.[12]/ack/foreign",),
    "acknowledges outside of transactions": (
        "1.0/ack/transaction-makes-ack-transactional",
        "1.?/ack/transaction-part-of",
        "1.?/begin/covers-ack",
        "behaviour/1.?/nack/in-transaction",
        "behaviour/1.?/transaction/ack-after-abort",
        "behaviour/1.?/transaction/ack-and-disconnect",
        "behaviour/transaction/ack-cumulative",
        "behaviour/transaction/move-undone",
    ),
    "beats 1.6 times late": (
        "1.?/heartbeat/sender-in-time",
        "behaviour/heartbeat/both-ways",
        "behaviour/heartbeat/long-idle",
        "behaviour/heartbeat/while-receiving",
    ),
    "beats by CR LF on 1.1": ("1.1/heartbeat/sender-in-time",),
    "beats inside frames": ("behaviour/heartbeat/between-frames",),
    "beats only to clients that speak": ("behaviour/heartbeat/long-idle",),
    "beats though nobody asks": (
        "1.?/heartbeat/error-margin",
        "1.?/heartbeat/missing-is-0-0",
        "behaviour/heartbeat/zero-disables",
    ),
    "changes CR LF in bodies": (
        "1.2/overview/crlf-lines",
        "behaviour/1.?/body/line-ends",
    ),
    "combines accents in values": ("behaviour/1.?/header/values",),
    "commits in reverse order": (
        "behaviour/transaction/interleaved",
        "behaviour/transaction/order",
    ),
    "commits what is open at the end": (
        "1.?/begin/covers-ack",
        "1.?/begin/implicit-abort-disconnect",
        "behaviour/1.?/transaction/ack-and-disconnect",
        "behaviour/persistence/transactions",
        "behaviour/transaction/error-within",
    ),
    "confirms each SEND that it refuses": (
        "1.?/content-type/mime",
        "1.?/content-type/text-implies-utf8",
        "1.?/frame/case-sensitive",
        "1.?/send/destination-required",
        "1.?/send/unprocessable-close",
        "1.?/send/unprocessable-error",
        "behaviour/1.[12]/transaction/send-unknown",
        "behaviour/transaction/send-after-end",
    ),
    "counts characters": (
        "1.0/message/content-length-octets",
        "1.0/send/content-length-is-byte-count",
        "1.?/content-length/is-octet-count",
        "behaviour/1.?/body/values",
    ),
    "cuts bodies at 64 KiB": (
        "behaviour/1.?/body/sizes",
        "behaviour/heartbeat/between-frames",
    ),
    "cuts values at 255": (
        "1.?/receipt/arbitrary-value",
        "behaviour/1.?/header/long-value",
        "behaviour/1.?/receipt/unusual-ids",
    ),
    "damages bodies that are not UTF-8": (
        "1.?/encoding/utf8-headers",
        "1.?/message/content-type-should",
        "1.?/send/body-is-message",
        "behaviour/1.?/body/line-ends",
    ),
    "decodes percent signs in values": ("behaviour/1.?/header/values",),
    "delivers after UNSUBSCRIBE": (
        "1.0/subscribe/id-may",
        "1.0/unsubscribe/by-destination",
        "1.0/unsubscribe/stops-delivery",
        "1.?/subscribe/id-relates-frames",
        "1.?/unsubscribe/removes",
        "behaviour/1.?/redelivery/after-unsubscribe",
        "behaviour/1.?/unsubscribe/one-of-two",
        "behaviour/ack/cumulative-reused-id",
        "behaviour/receipt/unsubscribe-in-force",
    ),
    "delivers at most a hundred waiting messages": ("behaviour/destination/backlog",),
    "delivers to one subscription of a connection": (
        "1.0/subscribe/subscription-header-should",
        "1.?/message/subscription",
    ),
    "drops byte order marks": ("behaviour/1.?/body/values",),
    "drops empty bodies": (
        "1.0/bnf/body-optional",
        "1.0/message/content-length-octets",
        "behaviour/1.?/body/empty",
    ),
    "drops empty values": ("1.?/bnf/empty-value",),
    "drops long values": ("behaviour/1.?/header/long-value",),
    "drops names that start with underscores": ("behaviour/1.?/header/names",),
    "drops names with blanks": (
        "1.?/encoding/never-trim-pad",
        "1.?/utf8/must-support",
    ),
    "drops quotes around values": ("behaviour/1.?/header/values",),
    "drops the content-type": (
        "1.?/encoding/utf8-headers",
        "1.?/message/content-type-should",
    ),
    "drops the twenty-first header": ("behaviour/1.?/header/many",),
    "drops unacknowledged messages on DISCONNECT": (
        "behaviour/1.?/redelivery/after-disconnect",
        "behaviour/1.?/transaction/ack-and-disconnect",
    ),
    "ends all subscriptions to the destination": ("behaviour/1.?/unsubscribe/one-of-two",),
    "ends bodies at the end of a packet": (
        "1.0/bnf/frame-stream",
        "1.?/bnf/stream",
        "robustness/closing/before-nul",
    ),
    "ends bodies at the first NUL": (
        "1.0/message/content-length-octets",
        "1.0/message/null-ends-without-content-length",
        "1.0/send/content-length-read-through-nulls",
        "1.0/send/null-after-content-length",
        "1.?/content-length/must-read",
        "1.?/content-length/must-with-nulls",
        "1.?/content-length/null-still-needed",
        "1.?/encoding/utf8-headers",
        "1.?/message/content-type-should",
        "1.?/send/body-is-message",
        "robustness/malformed/content-lengths",
    ),
    "ends without ERROR": (
        "1.?/negotiation/no-common-error",
        "1.?/send/unprocessable-error",
        "1.?/subscribe/failure-error",
    ),
    "escapes on 1.0": (
        "1.0/bnf/header-value-may-hold-colon",
        "1.0/bnf/no-escaping",
    ),
    "escapes receipts twice": (
        "1.?/bnf/header-value-chars",
        "1.?/encoding/decode-colon",
        "1.[12]/receipt/arbitrary-value",
        "behaviour/1.?/receipt/unusual-ids",
    ),
    "expects beats sooner than agreed": (
        "1.?/heartbeat/error-margin",
        "behaviour/heartbeat/slower-side-decides",
    ),
    "folds blanks in values": (
        "1.?/encoding/never-trim-pad",
        "behaviour/1.?/header/blanks-inside",
    ),
    "goes on after ERROR": (
        "1.2/error/must-close",
        "1.2/negotiation/no-common-close",
        "1.?/encoding/undefined-escape-fatal",
        "1.?/send/unprocessable-close",
        "1.?/subscribe/failure-close",
        "robustness/closing/half-open",
    ),
    "handles one frame of each packet": (
        "1.0/bnf/frame-stream",
        "1.0/frame/null-ends-frame",
        "1.?/bnf/stream",
        "1.?/frame/null-terminator",
    ),
    "has one list of transactions for all connections": (
        "1.2/begin/id-scope-connection",
        "1.?/heartbeat/any-data-counts",
        "1.?/heartbeat/missing-is-0-0",
        "behaviour/receipt/pipelined",
        "behaviour/transaction/name-again",
        "behaviour/transaction/order",
    ),
    "ignores the case of subscription ids": ("behaviour/1.?/subscribe/letter-case",),
    "ignores the case of transactions": ("behaviour/transaction/letter-case",),
    "keeps messages of topics for later subscribers": ("behaviour/destination/topic-to-nobody",),
    "keeps the content-length of the SEND before": (
        "behaviour/1.?/body/length-before",
        "robustness/malformed/content-lengths",
    ),
    "keeps the destination of an id that is used again": ("behaviour/ack/cumulative-reused-id",),
    "keeps undefined escapes": (
        "1.?/encoding/undefined-escape-fatal",
        "robustness/1.1/malformed/line-ends",
        "robustness/1.?/malformed/escapes",
    ),
    "lets the sender set ack": ("behaviour/1.2/message/own-headers",),
    "lets the sender set message-id": ("behaviour/1.?/message/own-headers",),
    "lets the sender set subscription": ("behaviour/1.[12]/message/own-headers",),
    "lowers destinations": ("1.2/message/destination-same-as-send",),
    "lowers header names": (
        "1.?/frame/case-sensitive",
        "behaviour/1.?/header/letter-case",
    ),
    "lowers receipts": (
        "1.2/overview/crlf-lines",
        "1.?/receipt/arbitrary-value",
    ),
    "lowers values": (
        "1.2/repeated/first-wins-server",
        "behaviour/1.?/header/values",
    ),
    "names the ack id of MESSAGE id": ("1.2/message/ack-header",),
    "normalises numbers in values": (
        "behaviour/1.?/header/long-value",
        "behaviour/1.?/header/values",
    ),
    "numbers messages by destination": (
        "1.2/ack-mode/cumulative-per-subscription",
        "1.2/message/ack-header",
        "1.?/message/message-id-unique",
    ),
    "redelivers without user headers": ("behaviour/1.?/redelivery/content",),
    "refuses an unknown version among others": ("1.?/negotiation/highest-common",),
    "replaces signs in names": (
        "1.?/encoding/escape-outside-connect",
        "1.?/encoding/never-trim-pad",
        "1.?/encoding/utf8-headers",
        "1.2/headers/user-headers-part-of-message",
        "1.?/send/user-headers-pass-through",
        "1.?/utf8/must-support",
        "behaviour/1.?/header/blanks-inside",
        "behaviour/1.1/header/carriage-return",
        "behaviour/1.?/header/letter-case",
        "behaviour/1.?/header/long-value",
        "behaviour/1.?/header/many",
        "behaviour/1.?/header/names",
    ),
    "replaces tabs in values": (
        "behaviour/1.?/header/blanks-inside",
        "behaviour/1.?/receipt/unusual-ids",
    ),
    "sends each receipt twice": (
        "1.0/receipt/server-sends-receipt",
        "1.?/encoding/decode-colon",
        "1.?/encoding/never-trim-pad",
        "1.?/heartbeat/sender-in-time",
        "1.?/receipt/server-acknowledges",
        "1.2/repeated/first-wins-server",
        "behaviour/receipt/pipelined",
    ),
    "sends the last message of what is aborted": (
        "1.0/ack/transaction-makes-ack-transactional",
        "1.0/begin/id-binds-frames",
        "1.?/abort/rolls-back",
        "1.?/ack/transaction-part-of",
        "1.?/begin/id-binds",
        "behaviour/1.?/nack/in-transaction",
        "behaviour/1.?/transaction/ack-after-abort",
        "behaviour/transaction/abort-everywhere",
        "behaviour/transaction/ack-cumulative",
        "behaviour/transaction/interleaved",
        "behaviour/transaction/move-undone",
        "behaviour/transaction/name-again",
    ),
    "splits headers at the last colon on 1.0": ("1.0/bnf/header-value-may-hold-colon",),
    "stays after DISCONNECT": ("1.0/disconnect/graceful",),
    "strips line feeds at the end of bodies": ("behaviour/1.?/body/line-ends",),
    "strips line feeds at the start of bodies": ("behaviour/1.?/body/line-ends",),
    "swaps the numbers of heart-beat": (
        "1.?/heartbeat/error-margin",
        "1.?/heartbeat/missing-is-0-0",
        "1.?/heartbeat/sender-in-time",
        "behaviour/heartbeat/long-idle",
        "behaviour/heartbeat/while-receiving",
        "robustness/closing/half-open",
    ),
    "takes 1.10 for 1.1": ("1.?/negotiation/highest-common",),
    "takes CR LF on 1.1": ("behaviour/1.1/header/carriage-return",),
    "takes client for client-individual": (
        "1.?/ack-mode/client-cumulative",
        "1.?/nack/client-cumulative",
        "behaviour/1.?/ack/cumulative-again",
    ),
    "takes client-individual for client": (
        "1.?/ack-mode/individual-not-cumulative",
        "1.?/nack/individual-single",
        "behaviour/1.?/ack/any-order",
        "behaviour/1.?/redelivery/rest-after-reset",
    ),
    "takes commands in lower case": ("1.?/frame/case-sensitive",),
    "takes only line ends for signs of life": (
        "1.?/heartbeat/any-data-counts",
        "1.?/heartbeat/error-margin",
        "behaviour/heartbeat/both-ways",
        "behaviour/heartbeat/slower-side-decides",
        "robustness/closing/half-open",
    ),
    "takes the body 0 for none": (
        "1.?/disconnect/receipt-covers-previous",
        "behaviour/destination/topic-to-all",
        "behaviour/destination/two-subscriptions",
        "behaviour/persistence/receipted",
        "behaviour/transaction/name-again",
        "behaviour/transaction/order",
        "behaviour/1.?/body/values",
    ),
    "takes the last of repeated headers": ("1.2/repeated/first-wins-server",),
    "takes the lowest version": ("1.?/negotiation/highest-common",),
    "trims values": (
        "1.?/encoding/never-trim-pad",
        "behaviour/1.1/header/carriage-return",
        "behaviour/1.?/receipt/unusual-ids",
    ),
    "unescapes CONNECT": ("1.?/encoding/no-escape-in-connect",),
    "unescapes lines before it splits them": ("1.?/encoding/escape-outside-connect",),
    "unescapes twice": (
        "1.?/encoding/decode-backslash",
        "behaviour/1.?/receipt/unusual-ids",
    ),
    "unescapes values only": (
        "1.?/encoding/escape-outside-connect",
        "robustness/1.?/malformed/escapes",
    ),
}
#: The same for permitted behaviour. The specifications require the id of a subscription from
#: clients; a server that generates a missing one violates only a recommendation of the suite.
PERMITTED = {"takes SUBSCRIBE without id": ("1.[12]/subscribe/id-required",)}
#: The profile of such a server, by the switch: the case, the subject and the text.
PROFILES = {
    "takes BEGIN twice": ("1.2/begin/id-unique", "BEGIN of a transaction that is open", "RECEIPT"),
    "takes the last version offered": (
        "1.2/negotiation/accept-version-format",
        "version chosen for accept-version:1.2,1.1,1.0",
        "1.0",
    ),
    "gives messages back in reverse order": (
        "behaviour/1.2/redelivery/rest-after-reset",
        "order of redelivered messages",
        "changed",
    ),
}
#: Cases about extensions that this server lacks, and those that take long even in memory.
LEFT_OUT = (
    *("robustness/floods*", "robustness/slow*", "robustness/limits*", "robustness/splitting*"),
    *("robustness/fuzzing", "robustness/parser-faults*", "behaviour/transaction/large"),
    *("behaviour/transaction/number", "1.[12]/ack-mode/auto-no-ack-needed", "1.[12]/limits/*"),
    *("behaviour/durable*", "behaviour/expiry*", "behaviour/selector*", "behaviour/temporary*"),
    *("failover*", "behaviour/destination/wildcards"),
)


@pytest.fixture
def network() -> Iterator[Network]:
    """An in-memory network."""
    with virtual() as made:
        yield made


def selected(patterns: Iterable[str]) -> set[str]:
    """Return the cases that match the patterns."""
    names = tuple(patterns)
    return {id for id in runnables() if any(fnmatchcase(id, name) for name in names)}


#: For the test that each case fails on some server.
FOUND_BY = sorted(selected(itertools.chain.from_iterable(FOUND.values())))


def findings(network: Network, switch: str, ids: Iterable[str]) -> dict[str, str]:
    """Return the cases that are FAILED or NON-STRICT on that server, with the details."""
    results = [run_case(runnables()[id], network, second_server(switch)) for id in ids]
    return {
        each.id: each.detail
        for each in results
        if each.verdict in (Verdict.FAILED, Verdict.NON_STRICT)
    }


def test_tables_have_each_switch() -> None:
    """There are at least forty deviations; all switches have an entry, and all patterns match."""
    assert FOUND.keys() == DEVIATIONS
    assert len(FOUND) >= 40
    assert all(selected([pattern]) for patterns in FOUND.values() for pattern in patterns)
    assert PERMITTED.keys() | PROFILES.keys() < LIBERTIES


@pytest.mark.parametrize("switch", sorted(FOUND))
def test_deviation_is_found(switch: str, network: Network) -> None:
    """The cases of the table detect the deviation, and the control cases do not."""
    expected = selected(FOUND[switch])
    found = findings(network, switch, expected | set(CONTROL))
    assert found.keys() == expected, found


@pytest.mark.matrix
@pytest.mark.parametrize("switch", sorted(FOUND))
def test_deviation_is_found_by_no_other_case(switch: str, network: Network) -> None:
    """Of all cases, exactly those of the table detect the deviation."""
    found = findings(network, switch, runnables().keys() - selected(LEFT_OUT))
    assert found.keys() == selected(FOUND[switch]), found


def test_server_that_keeps_the_rules_passes(network: Network) -> None:
    """No case reports a fault, including those about extensions and large ones."""
    assert not findings(network, "", runnables())


@pytest.mark.parametrize("switch", sorted(LIBERTIES))
def test_what_is_permitted_is_no_deviation(switch: str, network: Network) -> None:
    """No case reports a fault of a server that uses a liberty."""
    found = findings(network, switch, runnables().keys() - selected(LEFT_OUT))
    assert found.keys() == selected(PERMITTED.get(switch, ())), found


@pytest.mark.parametrize("switch", sorted(PROFILES))
def test_profile_tells_what_is_permitted(switch: str, network: Network) -> None:
    """The profile differs for a server that uses a liberty."""
    id, about, words = PROFILES[switch]
    servers = (second_server(switch), second_server(), own_broker)
    said = [run_case(runnables()[id], network, each).profile.get(about) for each in servers]
    assert said[0] == words
    assert words not in said[1:]


def test_server_is_the_same_over_sockets() -> None:
    """Over a network, the suite as run by users reports the same as in memory."""
    switch = "changes CR LF in bodies"
    cases = {*selected(FOUND[switch]), *CONTROL}
    with listening(switch) as port:
        address = Address("127.0.0.1", port, timeout_s=10.0, quiet_s=0.2)
        report = run(address, probe(address), Selection(tuple(sorted(cases))))
    assert not report.errors, report.errors
    bad = {each.id for each in report.results if each.verdict in ("FAILED", "NON-STRICT")}
    assert bad == selected(FOUND[switch])
