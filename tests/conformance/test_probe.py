"""Probing a target before the first case and after each."""

from __future__ import annotations

import pytest

from stompkit.conformance.address import Address
from stompkit.conformance.control import Given
from stompkit.conformance.nodes import GivenNodes
from stompkit.conformance.plugin import _recovers
from stompkit.conformance.target import Capabilities, UnreachableError, probe
from stompkit.conformance.verdict import CommandError
from stompkit.frames import Version
from tests.conformance.conftest import IMPATIENT_S, PATIENT_S, Serve
from tests.conformance.scripted import Behaviour, Line, connected, connected_frame, frame


def at(serve: Serve, behaviour: Behaviour, timeout_s: float = PATIENT_S) -> Address:
    return Address("127.0.0.1", serve(behaviour).port, timeout_s=timeout_s)


def only(version: str, otherwise: bytes) -> Behaviour:
    """Return a server of one version, with its reply to clients of other versions."""

    def behaviour(line: Line) -> None:
        _, headers = line.frame()
        offered = headers.get("accept-version", "1.0")
        line.send(connected_frame(headers, server="S/1") if offered == version else otherwise)
        line.wait() if offered == version else line.close()

    return behaviour


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("otherwise", [b"", frame("ERROR", {"message": "no"}), b"garbage\0"])
def test_one_version(version: str, otherwise: bytes, serve: Serve) -> None:
    """The reply to other versions does not matter."""
    found = probe(at(serve, only(version, otherwise)))
    assert found == Capabilities((version,), "S/1")  # type: ignore[arg-type]


def test_all_versions(serve: Serve) -> None:
    found = probe(at(serve, lambda line: connected(line, server="S/1")))
    assert found == Capabilities(("1.0", "1.1", "1.2"), "S/1")


def test_server_that_always_says_1_1(serve: Serve) -> None:
    def behaviour(line: Line) -> None:
        line.frame()
        line.send(frame("CONNECTED", {"version": "1.1"}))

    assert probe(at(serve, behaviour)) == Capabilities(("1.1",), "")


def nameless(*accepted: str) -> Behaviour:
    """Return a server that sends no version in CONNECTED, and refuses all but these offers."""

    def behaviour(line: Line) -> None:
        _, headers = line.frame()
        if headers.get("accept-version", "1.0") in accepted:
            line.send(frame("CONNECTED", {"session": "1"}))
        else:
            line.send(frame("ERROR", {"message": "no"}))

    return behaviour


@pytest.mark.parametrize("versions", [("1.0", "1.1"), ("1.1",), ("1.0", "1.1", "1.2")])
def test_server_that_forgets_to_name_the_version(
    versions: tuple[Version, ...], serve: Serve
) -> None:
    """The server checks the offered versions, and refuses unknown ones."""
    assert probe(at(serve, nameless(*versions))) == Capabilities(versions, "")


def test_server_that_takes_any_offer_and_names_no_version(serve: Serve) -> None:
    """A server that has 1.0 only behaves so."""

    def behaviour(line: Line) -> None:
        line.frame()
        line.send(frame("CONNECTED", {"session": "1"}))

    assert probe(at(serve, behaviour)).versions == ("1.0",)


def test_server_that_names_no_version_and_is_silent_about_unknown_ones(serve: Serve) -> None:
    """Silence does not prove anything."""

    def behaviour(line: Line) -> None:
        _, headers = line.frame()
        if headers.get("accept-version") == "9.9":
            line.wait()
        line.send(frame("CONNECTED", {}))

    assert probe(at(serve, behaviour, 2.0)).versions == ("1.0",)


def test_silence_is_enough_once(serve: Serve) -> None:
    """Without any reply so far, one timeout is enough; otherwise each version would cost one."""
    server = serve(lambda line: line.wait())
    with pytest.raises(UnreachableError, match=r"does not answer CONNECT in 0\.2 s$"):
        probe(Address("127.0.0.1", server.port, timeout_s=IMPATIENT_S))
    assert server.connections == 1


def test_silence_about_one_version(serve: Serve) -> None:
    def behaviour(line: Line) -> None:
        _, headers = line.frame()
        if headers.get("accept-version") != "1.1":
            line.send(connected_frame(headers))
        line.wait()

    assert probe(at(serve, behaviour, 1.0)).versions == ("1.0", "1.2")


@pytest.mark.parametrize("silent", [2, 3])
def test_silence_about_one_connect(silent: int, serve: Serve) -> None:
    """A target that was busy for a moment speaks the version: it is asked again."""

    def behaviour(line: Line) -> None:
        if line.number == silent:
            line.wait()
        connected(line)

    assert probe(at(serve, behaviour, 2.0)).versions == ("1.0", "1.1", "1.2")


def without_the_first(line: Line) -> None:
    """Serve newer versions than 1.0."""
    _, headers = line.frame()
    if "accept-version" not in headers:
        line.send(frame("ERROR", {"message": "no"}))
        return
    line.send(connected_frame(headers))
    line.wait()


def test_target_without_1_0_is_ready_after_a_restart(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompkit.conformance.control.COMMAND_S", 2.0)
    Given(at(serve, without_the_first), restart="true").restart()


def test_node_without_1_0_that_is_not_stopped(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One look is enough here, with patience: on a busy machine an answer may be late.
    monkeypatch.setattr("stompkit.conformance.nodes._END_ANSWERS", 0)
    nodes = GivenNodes(at(serve, without_the_first), stop="true")
    with pytest.raises(CommandError, match="has not stopped node 1"):
        nodes.end(0)


def test_refusal_says_more_than_other_answers(serve: Serve) -> None:
    def behaviour(line: Line) -> None:
        line.frame()
        line.send(b"" if line.number == 1 else frame("ERROR", {"message": "wrong passcode"}))

    with pytest.raises(UnreachableError, match="it answers CONNECT with ERROR 'wrong passcode'"):
        probe(at(serve, behaviour))


def test_target_that_comes_back(serve: Serve) -> None:
    """A target that crashed in a case, and was restarted, is usable again."""

    def behaviour(line: Line) -> None:
        if line.number < 3:
            line.close()
        connected(line)

    assert _recovers(at(serve, behaviour), "1.2")


def test_target_that_does_not_come_back(serve: Serve) -> None:
    server = serve(lambda line: line.close())
    assert not _recovers(Address("127.0.0.1", server.port, timeout_s=IMPATIENT_S), "1.2")
    assert server.connections > 1
