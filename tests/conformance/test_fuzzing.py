"""Sessions with random faults: reproducible by their seed, and reduced to small examples."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompkit.conformance import FailedError, Target, UnsupportedError
from stompkit.conformance.address import Address
from stompkit.conformance.control import Control, Launched
from stompkit.conformance.fuzzing import Transcript, fuzz, transcript
from stompkit.conformance.peer import Recorder
from stompkit.conformance.shrinking import shrink, shrink_pieces
from stompkit.conformance.target import Capabilities, is_alive
from stompkit.frames import VERSIONS
from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.conformance.broken_robustness import Fragile
from tests.conformance.command import read_report
from tests.conformance.conftest import Suite
from tests.conformance.fragile import DEADLY
from tests.conformance.proxy import behind
from tests.conformance.scripted import ScriptedServer

QUEUE = "/queue/q"
FRAGILE = f"command:{sys.executable} {Path(__file__).with_name('fragile.py')} {{port}}"


# Sessions.


def test_a_seed_makes_the_same_sessions_every_time() -> None:
    first = [transcript(7, number, QUEUE) for number in range(200)]
    assert [transcript(7, number, QUEUE) for number in range(200)] == first
    assert len(set(first)) > 190


def test_another_seed_makes_other_sessions() -> None:
    assert transcript(7, 0, QUEUE) != transcript(8, 0, QUEUE)


def test_a_session_differs_by_its_queue_only_in_the_name() -> None:
    for number in range(50):
        one, other = transcript(7, number, "/queue/a"), transcript(7, number, "/queue/b")
        assert one.logs_in == other.logs_in
        assert list(map(len, one.pieces)) == list(map(len, other.pieces))


def test_the_sessions_are_of_all_kinds() -> None:
    all_of_them = [transcript(0, number, QUEUE) for number in range(300)]
    said = [b"".join(each.pieces) for each in all_of_them]
    assert {each.logs_in for each in all_of_them} == {True, False}
    assert any(re.search(rb"content-length:-\d", octets) for octets in said)
    assert any(len(octets) > 10_000 for octets in said)
    assert any(b"\xff" in octets for octets in said)
    assert any(not octets.endswith(b"\0") for octets in said)
    assert any(len(each.pieces) > 6 for each in all_of_them)


# Reduction.


def subsequence(part: Iterable[int], whole: Iterable[int]) -> bool:
    """Return True if ``part`` is a subsequence of ``whole``."""
    rest = iter(whole)
    return all(item in rest for item in part)


@settings(deadline=None)
@given(st.binary(max_size=60), st.sets(st.integers(0, 255), max_size=3), st.integers(0, 4))
def test_what_is_left_fails_and_nothing_of_it_can_go(
    octets: bytes, wanted: set[int], most: int
) -> None:
    def fails(part: bytes) -> bool:
        return wanted <= set(part) or part.count(0) > most

    if not fails(octets):
        return
    left = shrink(octets, fails)
    assert fails(left)
    assert subsequence(left, octets)
    assert not any(fails(left[:at] + left[at + 1 :]) for at in range(len(left)))


@settings(deadline=None)
@given(
    st.lists(st.binary(max_size=20), max_size=8),
    st.lists(st.binary(max_size=20), max_size=8),
    st.binary(min_size=1, max_size=6),
)
def test_of_a_session_only_the_octets_are_left_that_do_it(
    before: list[bytes], after: list[bytes], deadly: bytes
) -> None:
    pieces = (*before, deadly, *after)
    left = shrink_pieces(pieces, lambda pieces: deadly in b"".join(pieces))
    assert left == (deadly,)


def test_pieces_that_must_be_apart_stay_apart() -> None:
    def fails(pieces: tuple[bytes, ...]) -> bool:
        return any(a.endswith(b"x") and b.startswith(b"y") for a, b in pairwise(pieces))

    left = shrink_pieces((b"abc", b"12x", b"y34", b"def"), fails)
    assert left == (b"x", b"y")


def test_a_session_is_shown_in_short() -> None:
    assert str(Transcript(True, (b"a\0", b"b"))) == r"after CONNECT: b'a\x00' b'b'"
    assert str(Transcript(False, ())) == "instead of CONNECT: nothing"
    assert str(Transcript(False, (b"x" * 1_000, b"y"))).endswith("x... (1,001 octets)")


# Against servers.


Fuzzed = Callable[..., Target]


@pytest.fixture
def fuzzed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fuzzed]:
    """Returns a case's view of a server at a port, with a control of the server if given.

    The time limits are long: a busy machine is slow to play all sessions, and to reduce an input.
    """
    monkeypatch.setattr("stompkit.conformance.fuzzing._SESSION_S", 2.0)
    monkeypatch.setattr("stompkit.conformance.fuzzing._SHRINKING_S", 600.0)
    made = []

    def make(
        port: int, control: Control | None = None, *, seed: int = 0, fuzz_sessions: int = 300
    ) -> Target:
        address = Address(
            "127.0.0.1",
            port,
            timeout_s=2.0,
            quiet_s=0.2,
            seed=seed,
            fuzz_sessions=fuzz_sessions,
        )
        capabilities = Capabilities(VERSIONS, "")
        made.append(Target(address, capabilities, "1.2", Recorder(), control))
        return made[-1]

    yield make
    for each in made:
        each.finish()


class PanicsOnExpires(Fragile):
    """Ends all sessions when a client sends a negative expires header."""

    _wanted = b"expires:-"
    _end = b""

    def octets_from_client(self, octets: bytes) -> Iterable[bytes]:
        """Search for the header in any place, in any chunks."""
        seen = self._end + octets
        self._end = seen[1 - len(self._wanted) :]
        if self._wanted in seen:
            # Before the broker's reply, which would end the session first.
            self.crash()
        yield octets


def test_the_smallest_session_is_found_that_ends_others(
    broker: RunningBroker, fuzzed: Fuzzed
) -> None:
    with ScriptedServer(behind(PanicsOnExpires, broker.host, broker.port)) as server:
        target = fuzzed(server.port)
        with pytest.raises(FailedError) as caught:
            fuzz(target)
    assert "a session beside it is lost" in str(caught.value)
    assert str(caught.value).endswith("of seed 0 does it, instead of CONNECT: b'expires:-'")
    (whole,) = target.notes
    said = re.search(r"session \d+ of seed 0, (after|instead of) CONNECT: .{30}", whole)
    assert said is not None, whole


class PanicsLate(PanicsOnExpires):
    """The same, but only when the next sessions have ended, too."""

    _checks = 0
    _is_armed = False

    def octets_from_client(self, octets: bytes) -> Iterable[bytes]:
        """Count the checks of the session beside the others."""
        own = type(self)
        if own._is_armed and b"bystander " in octets:
            own._checks += 1
            # Each check sends two messages.
            if own._checks == 3:
                super().crash()
        return super().octets_from_client(octets)

    def crash(self) -> None:
        """End all sessions, but later at the first time."""
        if self._checks >= 3:
            super().crash()
        type(self)._is_armed = True


def test_a_session_is_found_that_a_slow_target_comes_to_late(
    broker: RunningBroker, fuzzed: Fuzzed
) -> None:
    with ScriptedServer(behind(PanicsLate, broker.host, broker.port)) as server:
        with pytest.raises(FailedError) as caught:
            fuzz(fuzzed(server.port))
    assert str(caught.value).endswith("of seed 0 does it, instead of CONNECT: b'expires:-'")


def test_what_is_found_is_found_again_by_the_seed(broker: RunningBroker, fuzzed: Fuzzed) -> None:
    found = []
    for _ in range(2):
        with ScriptedServer(behind(PanicsOnExpires, broker.host, broker.port)) as server:
            with pytest.raises(FailedError) as caught:
                fuzz(fuzzed(server.port, seed=3, fuzz_sessions=1_000))
            found.append(re.findall(r"session \d+ of seed 3", str(caught.value)))
    assert found[0] == found[1] != []


def test_a_target_that_dies_is_started_again_until_it_is_clear_of_what(fuzzed: Fuzzed) -> None:
    config = LaunchConfig(name=FRAGILE)
    with launch(config) as running:
        address = Address(running.host, running.port)
        with Launched(running, config, address) as control:
            target = fuzzed(running.port, control)
            with pytest.raises(FailedError) as caught:
                fuzz(target)
        assert is_alive(address, "1.2")
    found = re.search(r"instead of CONNECT: b'(.*)'$", str(caught.value))
    assert found is not None, str(caught.value)
    assert DEADLY.fullmatch(found[1].encode())


def test_a_target_that_dies_for_good_is_told_from_others(fuzzed: Fuzzed) -> None:
    with launch(LaunchConfig(name=FRAGILE)) as running:
        target = fuzzed(running.port)
        with pytest.raises(FailedError, match="the target does not come back") as caught:
            fuzz(target)
    sessions = re.search(r"sessions (\d+) to (\d+) of seed 0", str(caught.value))
    assert sessions is not None
    first, last = map(int, sessions.groups())
    told = [note for note in target.notes if re.match(r"session \d+, ", note)]
    assert len(told) == last - first + 1
    assert any("content-length:" in note for note in told)


def test_a_target_that_is_well_is_left_alone(broker: RunningBroker, fuzzed: Fuzzed) -> None:
    target = fuzzed(broker.port, seed=5, fuzz_sessions=30)
    fuzz(target)
    assert target.notes == ["30 sessions of seed 5: --seed 5 --fuzz 30 makes the same"]


def test_no_sessions_are_no_case(broker: RunningBroker, fuzzed: Fuzzed) -> None:
    with pytest.raises(UnsupportedError, match="--fuzz 0"):
        fuzz(fuzzed(broker.port, fuzz_sessions=0))


# The command.


def test_seed_and_number_are_options(suite: Suite, mq: str, tmp_path: Path) -> None:
    options = ("--seed", "9", "--fuzz", "21", "--json", "r.json")
    done = suite("--mq", mq, *options, "robustness/fuzzing")
    assert done.status == 0, done.told
    (result,) = read_report(tmp_path / "r.json").results
    assert result.notes == ["21 sessions of seed 9: --seed 9 --fuzz 21 makes the same"]


@pytest.mark.parametrize("option", ["--seed", "--fuzz"])
@pytest.mark.parametrize("value", ["-1", "x", "1.5", "9" * 20])
def test_a_seed_is_a_number(option: str, value: str, suite: Suite, mq: str) -> None:
    done = suite("--mq", mq, f"{option}={value}", "robustness/fuzzing")
    assert done.status == 2
    assert f"{option}: '{value}' is not a number from 0 to" in done.err
