"""A verdict says no more than the sentence of the specification that it rests on.

Each server breaks one rule, or makes use of a liberty. The table has the verdicts of cases whose
sentence does not forbid that, or is about something else.
"""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import pytest

from stompkit.conformance.address import Address
from stompkit.conformance.run.runner import Selection, run
from stompkit.conformance.target import probe
from stompkit.testing import RunningBroker
from tests.conformance.proxy import Fault, behind, make_harmless, requests
from tests.conformance.raw import Raw
from tests.conformance.scripted import ScriptedServer
from tests.conformance.test_broken_rules import FAULTS


class Forgetful(Fault):
    """Forgets a message as soon as it has sent it, in these modes, and answers every ACK."""

    modes: ClassVar[tuple[str, ...]] = ("client", "client-individual")
    number = 0

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"SUBSCRIBE" and frame.get("ack") in self.modes:
            frame.put("ack", "auto")
        elif frame.command in (b"ACK", b"NACK") and (frame.get("id") or "").startswith("made-up"):
            make_harmless(frame)
        yield frame

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"MESSAGE" and frame.get("ack") is None:
            self.number += 1
            frame.put("ack", f"made-up-{self.number}")
        yield frame


class ForgetfulInOneMode(Forgetful):
    """Takes client-individual for auto."""

    modes = ("client-individual",)


class NoAckHeader(Fault):
    """Sends no ack header on 1.2."""

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"MESSAGE":
            frame.drop("ack")
        yield frame


class Text(Fault):
    """Takes a body without content-length for text."""

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"SEND" and frame.get("content-length") is None:
            frame.body = frame.body.decode(errors="replace").encode()
        yield frame


class EscapesReceipts(Fault):
    """Escapes receipts on 1.0."""

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        if self.version == "1.0" and frame.command == b"RECEIPT":
            receipt = frame.get("receipt-id") or ""
            frame.put("receipt-id", receipt.replace("\\", r"\\").replace(":", r"\c"))
        yield frame


class ChangesUserHeaders(Fault):
    """Changes the headers of messages on 1.0, and no others."""

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        if self.version == "1.0" and frame.command == b"MESSAGE" and frame.get("h") is not None:
            frame.put("h", "changed")
        yield frame


@requests("ACK")
def acknowledges_at_once(frame: Raw) -> None:
    """Ignores the transaction of an ACK."""
    frame.drop("transaction")


@requests("ACK")
def finds_it_by_message_id(frame: Raw) -> None:
    """Takes an ACK of 1.1 without subscription."""
    if frame.get("subscription") is None and frame.get("message-id") is not None:
        frame.put("subscription", "s1")


class BeginsBySend(Fault):
    """Begins a transaction by a SEND that names it."""

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"SEND" and frame.get("transaction") == "unknown":
            yield Raw(b"BEGIN", [b"transaction:unknown"])
        yield frame


OK, FAILED, NON_STRICT, UNSUPPORTED = "OK", "FAILED", "NON-STRICT", "UNSUPPORTED"
SERVERS: dict[type[Fault], dict[str, str]] = {
    Forgetful: {
        "1.0/subscribe/ack-client-until-acked": FAILED,
        "1.2/ack-mode/client-unacked-on-failure": NON_STRICT,
        "1.2/ack-mode/individual-like-client": UNSUPPORTED,
        "1.2/ack-mode/individual-not-cumulative": UNSUPPORTED,
        "1.2/ack-mode/cumulative-per-subscription": UNSUPPORTED,
        "behaviour/1.2/ack/any-order": UNSUPPORTED,
        "behaviour/1.2/ack/former-connection": UNSUPPORTED,
        "behaviour/1.2/redelivery/rest-after-reset": UNSUPPORTED,
    },
    ForgetfulInOneMode: {
        "1.2/ack-mode/individual-like-client": FAILED,
        "1.2/ack-mode/individual-not-cumulative": UNSUPPORTED,
        "1.2/ack-mode/client-cumulative": OK,
    },
    NoAckHeader: {
        "1.2/message/ack-header": FAILED,
        "1.2/ack/acknowledges": UNSUPPORTED,
        "1.2/ack-mode/individual-like-client": UNSUPPORTED,
        "1.2/nack/opposite-of-ack": UNSUPPORTED,
        "1.1/ack/acknowledges": OK,
    },
    Text: {
        "behaviour/1.0/body/line-ends": FAILED,
        "behaviour/1.1/body/line-ends": NON_STRICT,
        "behaviour/1.2/body/line-ends": NON_STRICT,
    },
    EscapesReceipts: {
        "1.0/bnf/no-escaping": FAILED,
        "1.0/bnf/header-value-may-hold-colon": FAILED,
    },
    ChangesUserHeaders: {
        "1.0/bnf/no-escaping": NON_STRICT,
        "1.0/bnf/header-value-may-hold-colon": NON_STRICT,
    },
    acknowledges_at_once: {
        "1.0/begin/covers-ack": NON_STRICT,
        "1.2/begin/covers-ack": NON_STRICT,
        "behaviour/1.2/transaction/ack-and-disconnect": NON_STRICT,
        "behaviour/transaction/ack-cumulative": NON_STRICT,
        "behaviour/transaction/move-undone": NON_STRICT,
    },
    finds_it_by_message_id: {"1.1/ack/subscription-required": NON_STRICT},
    BeginsBySend: {"1.1/send/unprocessable-error": NON_STRICT},
    FAULTS["no_nack"]: {
        "1.1/nack/opposite-of-ack": FAILED,
        "1.1/nack/server-choice": UNSUPPORTED,
        "1.1/nack/individual-single": UNSUPPORTED,
        "1.1/nack/transaction-optional": UNSUPPORTED,
    },
    FAULTS["nothing_to_begin"]: {
        "1.0/begin/starts-transaction": FAILED,
        "1.0/commit/commits": UNSUPPORTED,
        "1.0/commit/transaction-required": UNSUPPORTED,
    },
    FAULTS["lower_case"]: {
        "1.0/bnf/commands-uppercase": "INFORMATIONAL",
        "1.1/frame/case-sensitive": FAILED,
    },
    FAULTS["send_needs_no_destination"]: {
        "1.0/send/destination-required": NON_STRICT,
        "1.1/send/destination-required": FAILED,
        "1.1/error/message-header": UNSUPPORTED,
        "1.0/error/body-detail": UNSUPPORTED,
    },
    FAULTS["connect_unescaped"]: {"1.2/encoding/no-escape-in-connect": NON_STRICT},
    FAULTS["connected_escaped"]: {"1.2/encoding/no-escape-in-connect": FAILED},
    FAULTS["begin_needs_no_name"]: {"1.2/begin/transaction-required": NON_STRICT},
}


@pytest.mark.parametrize("fault", SERVERS, ids=lambda fault: fault.__name__)
def test_verdict_rests_on_its_sentence(fault: type[Fault], broker: RunningBroker) -> None:
    wanted = SERVERS[fault]
    with ScriptedServer(behind(fault, broker.host, broker.port)) as server:
        address = Address("127.0.0.1", server.port, timeout_s=2.0, quiet_s=0.3)
        report = run(address, probe(address), Selection(tuple(wanted)))
    assert not report.errors, report.errors
    results = {each.id: each for each in report.results if each.id in wanted}
    assert {id: str(each.verdict) for id, each in results.items()} == wanted
    assert all(each.sentence for each in results.values() if each.verdict == FAILED)
