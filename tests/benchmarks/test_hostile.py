"""The program that measures the cost of hostile connections opens and counts them."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks._client import RefusedError
from benchmarks._crowd import KINDS, Crowd
from benchmarks.hostile import AUTOGROUP, WAITED, Shop
from stompkit.testing import LaunchConfig, launch
from tests.benchmarks.programs import figures, run


@pytest.mark.matrix
def test_hostile_connections_come_and_nothing_is_lost(tmp_path: Path) -> None:
    made = tmp_path / "made.json"
    arguments = ("--connections", "100", "--rounds", "1", "--seconds", "1", "--rate", "100")
    done = run("hostile", *arguments, "--json", str(made))
    figure = figures(done, made)
    for what in WAITED:
        for kind in ("without", "with"):
            assert 0 < figure[f"{what}_p50_{kind}_ms"] <= figure[f"{what}_p99_{kind}_ms"]
        ratio = figure[f"{what}_p99_with_ms"] / figure[f"{what}_p99_without_ms"]
        assert figure[f"{what}_p99_ratio"] == pytest.approx(ratio)
        assert figure[f"{what}_p99_leaving_ms"] > 0
    assert figure["open"] > 50
    # The figures depend on it, so they state it.
    shares = AUTOGROUP.exists() and AUTOGROUP.read_text().strip() == "1"
    assert json.loads(made.read_text())["sessions_have_shares"] == shares
    assert ("Sessions have shares" in done.stdout) == shares


def test_a_thousand_are_of_all_kinds() -> None:
    assert sum(KINDS.values()) == 1_000
    assert Crowd(1, 1_000, 1).count == 1_000


def test_no_more_is_done_than_may_be() -> None:
    with launch(LaunchConfig()) as broker, closing(Crowd(broker.port, 100, 500)) as crowd:
        began = time.monotonic()
        crowd.run(began + 1.0)
        took_s = time.monotonic() - began
        assert crowd.open
        assert crowd.done["opened"] + crowd.done["acted"] <= 500 * (took_s + 0.1)


def test_what_comes_in_another_order_is_told() -> None:
    with launch(LaunchConfig()) as broker, broker.client() as client:
        with closing(Shop(broker.port)) as shop:
            client.send("/queue/kept", b"00000007", receipt=True)
            with pytest.raises(RefusedError, match="message 1 is to come, not 7"):
                shop.run(10, 1, 10)


def test_what_is_left_is_told() -> None:
    with launch(LaunchConfig()) as broker, broker.client() as client:
        with closing(Shop(broker.port)) as shop:
            shop.run(20, 1, 10)
            assert shop.left() == 0
            client.send("/queue/brief", b"00000007", receipt=True)
            assert shop.left() == 1
