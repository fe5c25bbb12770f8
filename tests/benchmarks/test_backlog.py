"""The program that measures a long backlog detects faults; speed is not tested."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks._client import RefusedError
from benchmarks.backlog import take
from tests.benchmarks.conftest import Script, delivery
from tests.benchmarks.programs import figures, run

MESSAGES = 2_000
BODY_MIB = MESSAGES * 1_024 / (1 << 20)


def test_a_backlog_is_filled_and_comes_out_whole_after_a_crash(tmp_path: Path) -> None:
    made, data = tmp_path / "made.json", tmp_path / "data"
    data.mkdir()
    done = run("backlog", "--messages", "2000", "--directory", str(data), "--json", str(made))
    figure = figures(done, made)
    assert figure["put_per_s"] == pytest.approx(MESSAGES / figure["put_s"])
    assert figure["take_per_s"] == pytest.approx(MESSAGES / figure["take_s"])
    assert figure["disk_full_mib"] >= BODY_MIB
    assert 0 < figure["memory_before_mib"]
    assert figure["memory_full_mib"] <= figure["memory_before_mib"] + figure["put_growth_mib"]
    assert figure["restart_s"] > 0
    assert list(data.iterdir()) == []


@pytest.mark.matrix
def test_a_broken_bound_is_named_and_makes_the_status_1(tmp_path: Path) -> None:
    made = tmp_path / "made.json"
    done = run("backlog", "--messages", "10", "--max-restart-s", "0", "--json", str(made))
    assert figures(done, made)["restart_s"] > 0
    assert done.returncode == 1
    assert "\nBROKEN: From launch to the first MESSAGE, s: " in done.stdout


def read_all(controlling: int) -> bytes:
    """Read the output to a terminal that has been closed."""
    read = b""
    while True:
        try:
            read += os.read(controlling, 4_096)
        except OSError:  # the end of the output on Linux
            return read


def test_a_terminal_shows_what_is_being_done() -> None:
    controlling, terminal = os.openpty()
    done = run("backlog", "--messages", "10", stderr=terminal)
    os.close(terminal)
    shown = read_all(controlling).decode()
    os.close(controlling)
    assert "\rfilling: 10 of 10 " in shown
    assert "\remptying: 10 of 10 " in shown
    assert shown.endswith(" \r"), "the line is left clean"
    assert "Filling, s" in done.stdout


def test_a_backlog_that_has_no_room_on_the_disk_is_not_begun() -> None:
    done = run("backlog", "--messages", str(10**15))
    assert done.returncode == 2
    assert "MiB are needed" in done.stderr


@pytest.mark.parametrize(
    ("numbers", "right"),
    [([0, 2], 1), ([1, 2], 0), ([0, 0], 1), ([0, 1, 1], 2), ([0, 1, 2, 3], 3)],
)
def test_a_message_that_is_missing_or_one_too_many_is_noticed(
    scripted: Script, numbers: list[int], right: int
) -> None:
    client = scripted(b"".join(map(delivery, numbers)))
    with pytest.raises(RefusedError, match=f"^{right} of 3 came in order, then "):
        take(client, client.receive(), 3)
