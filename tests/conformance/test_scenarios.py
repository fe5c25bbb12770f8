"""Common steps of the cases about messages, and their reports about the target."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stompkit.conformance import Outcome, UnsupportedError
from stompkit.conformance.scenarios import answer, begin, fill, naming, reaction, receive, send_all
from stompkit.frames import Version
from tests.conformance.conftest import IMPATIENT_S, Dial
from tests.conformance.scripted import Behaviour, Line, connected, frame, receipts


def requests(line: Line) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each frame, then confirm its receipt."""
    connected(line)
    for command, headers in line.frames():
        yield command, headers
        if "receipt" in headers:
            line.send(frame("RECEIPT", {"receipt-id": headers["receipt"]}))


def delivers(number: int, **headers: str) -> dict[int, bytes]:
    """Return *number* MESSAGE frames with these headers, by number."""
    return {
        n: frame("MESSAGE", {"message-id": str(n), "subscription": "s1", **headers}, b"%d" % n)
        for n in range(1, number + 1)
    }


@pytest.mark.parametrize(
    ("version", "named"),
    [
        ("1.0", {"message-id": "1"}),
        ("1.1", {"message-id": "1", "subscription": "s1"}),
        ("1.2", {"id": "a"}),
    ],
)
def test_an_ack_names_the_message_as_its_version_wants(
    version: Version, named: dict[str, str], target: Dial
) -> None:
    def behaviour(line: Line) -> None:
        for command, _ in requests(line):
            if command == "SUBSCRIBE":
                line.send(delivers(1, ack="a")[1])

    at = target(behaviour, version=version)
    peer = at.connect()
    _, (message,) = receive(at, peer, 1)
    assert naming(peer, message) == named


def test_a_message_that_can_not_be_acknowledged_makes_a_case_unsupported(target: Dial) -> None:
    def behaviour(line: Line) -> None:
        for command, _ in requests(line):
            if command == "SUBSCRIBE":
                line.send(delivers(1)[1])

    at = target(behaviour)
    with pytest.raises(UnsupportedError, match="no ack header"):
        receive(at, at.connect(), 1)


def test_messages_that_are_held_back_make_a_case_unsupported(target: Dial) -> None:
    def behaviour(line: Line) -> None:
        for command, _ in requests(line):
            if command == "SUBSCRIBE":
                line.send(b"".join(delivers(2, ack="a").values()))

    at = target(behaviour, IMPATIENT_S)
    with pytest.raises(UnsupportedError, match="only 2 messages"):
        receive(at, at.connect(), 3)


def test_a_target_without_ack_makes_a_case_about_it_unsupported(target: Dial) -> None:
    at = target(receipts)
    peer = at.connect()
    peer.has_ack = False
    with pytest.raises(UnsupportedError, match="--no-ack"):
        receive(at, peer, 1, ack="client")


def test_a_target_without_transactions_makes_a_case_about_them_unsupported(target: Dial) -> None:
    def behaviour(line: Line) -> None:
        connected(line)
        line.frame()

    with pytest.raises(UnsupportedError, match="does not take BEGIN"):
        begin(target(behaviour).connect(), "t")


@pytest.mark.parametrize("number", [1, 20, 21, 45])
def test_all_messages_are_confirmed_before_it_goes_on(number: int, target: Dial) -> None:
    sent = unconfirmed = 0

    def behaviour(line: Line) -> None:
        nonlocal sent, unconfirmed
        for _, headers in requests(line):
            sent += 1
            unconfirmed = 0 if "receipt" in headers else unconfirmed + 1

    fill(target(behaviour), number)
    assert (sent, unconfirmed) == (number, 0)


def test_messages_of_a_transaction_wait_for_no_receipt_of_their_own(target: Dial) -> None:
    asked = []

    def behaviour(line: Line) -> None:
        for command, headers in requests(line):
            if "receipt" in headers:
                asked.append(command)

    peer = target(behaviour).connect()
    send_all(peer, "/queue/a", [b"1", b"2"], {"transaction": "t"})
    assert asked == ["BEGIN"]


def refuses(line: Line) -> None:
    connected(line)
    for _ in line.frames():
        line.send(frame("ERROR", {"message": "no"}))


def refuses_and_closes(line: Line) -> None:
    connected(line)
    line.frame()
    line.send(frame("ERROR", {"message": "no"}))


def closes(line: Line) -> None:
    connected(line)
    line.frame()


def finds_out_later(line: Line) -> None:
    connected(line)
    _, headers = line.frame()
    line.send(frame("RECEIPT", {"receipt-id": headers["receipt"]}))
    line.send(frame("ERROR", {"message": "after all, no"}))


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (receipts, Outcome.ACCEPTED),
        (refuses, Outcome.ERROR),
        (refuses_and_closes, Outcome.ERROR_AND_CLOSE),
        (closes, Outcome.CLOSE),
        (finds_out_later, "accepted, and refused later"),
    ],
)
def test_a_reaction_is_put_into_words(behaviour: Behaviour, words: str, target: Dial) -> None:
    at = target(behaviour)
    assert reaction(at, at.connect(), "ACK", {"id": "unknown"}) == words


def test_without_receipts_a_refusal_is_seen_all_the_same(target: Dial) -> None:
    def behaviour(line: Line) -> None:
        connected(line)
        for command, _ in line.frames():
            if command == "ACK":
                line.send(frame("ERROR", {"message": "no"}))

    at = target(behaviour)
    peer = at.connect()
    peer.barrier = at.queue()
    assert answer(at, peer, "ACK", {"id": "unknown"}) is Outcome.ERROR
