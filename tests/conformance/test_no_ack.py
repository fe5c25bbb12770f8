"""A target without ACK and receipts: MorbidQ, emulated by our broker.

Failures are exactly the rules that MorbidQ breaks (see ``conformance/brokers/morbidq.toml``). No
case fails because of a reply that the target never sends.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.command import read_report
from tests.conformance.conftest import Suite
from tests.effort import in_matrix

ARGUMENTS = (
    *("--broker", "morbidq", "--no-ack", "--no-receipts"),
    *("--timeout", "2", "--quiet-time", "0.3", "--json", "report.json"),
)
#: Cases that are UNSUPPORTED, with the reason in the report.
ASKED_NOT_TO = {
    "1.0/ack/acknowledges-consumption": "the target does not know ACK: --no-ack",
    "1.0/receipt/server-sends-receipt": "the target answers no receipts: --no-receipts",
    "behaviour/persistence/receipted": "the target answers no receipts: --no-receipts",
}


@pytest.fixture(autouse=True)
def _emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the emulation, even if the real broker is installed."""
    monkeypatch.setenv("PATH", "/nowhere")


@pytest.mark.matrix
@pytest.mark.parametrize(
    "chapters",
    [("1.0", "behaviour"), in_matrix(("failover", "robustness"))],
    ids=lambda names: names[0],
)
def test_what_fails_are_the_rules_that_it_breaks(suite: Suite, chapters: tuple[str, ...]) -> None:
    done = suite(*ARGUMENTS, "--strict", "--expect", "morbidq", *chapters)
    assert done.status == 0, done.told


def test_what_it_is_known_not_to_have_is_not_asked_of_it(suite: Suite, tmp_path: Path) -> None:
    done = suite(*ARGUMENTS, *ASKED_NOT_TO, "1.0/connect")
    assert done.status == 0, done.told
    found = {each.id: each for each in read_report(tmp_path / "report.json").results}
    for case, detail in ASKED_NOT_TO.items():
        assert (found[case].verdict, found[case].detail) == ("UNSUPPORTED", detail)


def test_it_is_seen_that_ack_ends_the_connection(suite: Suite, tmp_path: Path) -> None:
    done = suite(*ARGUMENTS, "behaviour/no-ack")
    assert done.status == 0, done.told
    profile = {
        about: does
        for each in read_report(tmp_path / "report.json").results
        for about, does in each.profile.items()
    }
    assert profile == {
        "ACK": "ends the connection",
        "of three messages, after an ACK of the first there come again": "none",
        "messages that nobody acknowledges are delivered": "3 of 3 at once",
        "of three messages, without any ACK there come again": "none",
    }


@pytest.mark.matrix
def test_versions_that_it_does_not_speak_are_left_out(suite: Suite, tmp_path: Path) -> None:
    done = suite(*ARGUMENTS, "1.0/connect", "1.1", "1.2")
    assert done.status == 0, done.told
    results = read_report(tmp_path / "report.json").results
    assert {each.verdict for each in results if each.version != "1.0"} == {"UNSUPPORTED"}
