"""The program that measures many connections opens and checks them all."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from benchmarks.connections import disturbed
from tests.benchmarks.conftest import Script, delivery
from tests.benchmarks.programs import figures, run

CONNECTIONS = 150


def have_few_files() -> None:
    """Lower the soft limit of open files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def test_more_connections_than_the_soft_limit_allows_are_opened_and_stay_open(
    tmp_path: Path,
) -> None:
    made = tmp_path / "made.json"
    arguments = ("--connections", str(CONNECTIONS), "--subscribe", "--json", str(made))
    figure = figures(run("connections", *arguments, before=have_few_files), made)
    assert figure["disturbed"] == 0
    assert figure["connect_per_s"] == pytest.approx(CONNECTIONS / figure["connect_s"])
    grown_kib = (figure["memory_open_mib"] - figure["memory_before_mib"]) * 1_024
    assert figure["each_kib"] == pytest.approx(grown_kib / CONNECTIONS)
    assert "subscription_kib" in figure
    assert 0 < figure["first_ms"]
    assert 0 < figure["median_ms"] <= figure["max_ms"]


def test_a_single_connection_without_subscription_gets_its_message(tmp_path: Path) -> None:
    made = tmp_path / "made.json"
    figure = figures(run("connections", "--connections", "1", "--json", str(made)), made)
    assert figure["first_ms"] > 0
    assert "subscription_kib" not in figure


def test_a_hard_limit_that_is_too_low_ends_with_what_to_do_about_it() -> None:
    done = run("connections", "--connections", "2000000000")
    assert done.returncode == 2
    assert "2000000100 open files are needed" in done.stderr
    assert "ulimit -n 2000000100" in done.stderr


def test_a_connection_that_got_something_or_was_closed_is_counted(scripted: Script) -> None:
    quiet, spoken_to, closed = scripted(b""), scripted(delivery(0)), scripted(None)
    for client in (spoken_to, closed):
        client.socket.recv(1)
    assert disturbed([quiet, spoken_to, closed]) == 2
