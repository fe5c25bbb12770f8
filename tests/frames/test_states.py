"""The table of states, and its diagram."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from stompkit.frames import COMMANDS, TRANSITIONS, Role, State
from tests.frames.helpers import requirement

SCRIPT = Path(__file__).parents[2] / "docs" / "make_state_diagram.py"


def test_every_role_has_a_row_for_every_state() -> None:
    assert TRANSITIONS.keys() == {(role, state) for role in Role for state in State}


def test_each_role_sends_only_its_own_commands() -> None:
    for (role, _), row in TRANSITIONS.items():
        assert all(COMMANDS[command].sender is role for command in row)


def test_every_command_is_allowed_somewhere() -> None:
    assert {command for row in TRANSITIONS.values() for command in row} == COMMANDS.keys()


@requirement("1.1/connect/client-initiates", "1.2/connect/client-initiates")
def test_the_client_begins_with_connect_or_stomp() -> None:
    assert TRANSITIONS[Role.CLIENT, State.OPENING].keys() == {"CONNECT", "STOMP"}
    assert TRANSITIONS[Role.CLIENT, State.CONNECTING] == {}


@requirement("1.1/disconnect/no-frames-after", "1.2/disconnect/no-frames-after")
def test_a_client_sends_nothing_after_disconnect() -> None:
    assert TRANSITIONS[Role.CLIENT, State.CONNECTED]["DISCONNECT"] is State.DISCONNECTING
    assert TRANSITIONS[Role.CLIENT, State.DISCONNECTING] == {}


@requirement("1.2/error/must-close")
def test_nothing_follows_an_error_or_the_end() -> None:
    for role in Role:
        for state in (State.FAILED, State.CLOSED):
            assert TRANSITIONS[role, state] == {}
    for (role, _), row in TRANSITIONS.items():
        if role is Role.SERVER and row:
            assert row["ERROR"] is State.FAILED


def test_every_state_but_the_end_of_the_stream_can_be_reached() -> None:
    reached = {State.OPENING}
    while (
        more := {
            following
            for (_, state), row in TRANSITIONS.items()
            if state in reached
            for following in row.values()
        }
        - reached
    ):
        reached |= more
    assert reached == set(State) - {State.CLOSED}


# The diagram in the manual.


@pytest.fixture
def main() -> Callable[[list[str]], int]:
    """The main function of the script that draws the table."""
    loaded: Callable[[list[str]], int] = runpy.run_path(str(SCRIPT))["main"]
    return loaded


def test_the_picture_in_the_manual_is_that_of_the_table(main: Callable[[list[str]], int]) -> None:
    assert main(["--check"]) == 0


def test_a_picture_of_something_else_is_noticed(
    main: Callable[[list[str]], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = ["--into", str(tmp_path)]
    assert main(["--check", *into]) == 1
    assert "sessions.rst" in capsys.readouterr().err
    assert main(into) == 0
    assert main(["--check", *into]) == 0
    page = tmp_path / "sessions.rst"
    page.write_text(page.read_text(encoding="utf-8") + "x", encoding="utf-8")
    assert main(["--check", *into]) == 1
    assert main(into) == 0
    (tmp_path / "sessions.dot").unlink()
    assert main(["--check", *into]) == 1


def test_every_transition_is_in_the_picture(
    main: Callable[[list[str]], int], tmp_path: Path
) -> None:
    assert main(["--into", str(tmp_path)]) == 0
    page = (tmp_path / "sessions.rst").read_text(encoding="utf-8")
    dot = (tmp_path / "sessions.dot").read_text(encoding="utf-8")
    for state in State:
        assert state.name in page
        assert f"{state.name};" in dot or f"{state.name} [" in dot
    for (_, state), row in TRANSITIONS.items():
        for command, following in row.items():
            edges = [
                line for line in dot.splitlines() if f"{state.name} -> {following.name} " in line
            ]
            assert any(command in edge for edge in edges), (state, command, following)
            assert command in page
