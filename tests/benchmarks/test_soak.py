"""The soak test of a broker detects faults."""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.soak._flatness import SERIES, Series, second_half, slope, verdict
from benchmarks.soak._ledger import Lane, Mistakes
from benchmarks.soak._picture import soak_plot
from benchmarks.soak._samples import Sample, columns
from tests.benchmarks import programs
from tests.benchmarks.programs import ROOT, figures

MEMORY = Series("memory_mib", "memory", 2.0, 0.03)
HOUR_S = 3_600
#: Figures that must be 0 after a run without faults.
NONE = (
    "lost", "doubled", "strays", "broken", "tracebacks", "left_connections", "left_subscriptions",
    "left_durables", "left_destinations", "left_messages", "left_descriptors",
)  # fmt: skip


def sampled(value: Callable[[float], float], count: int = 360) -> list[tuple[float, float]]:
    """Return an hour of samples; ``value`` takes the elapsed share of it."""
    return [(HOUR_S * n / count, value(n / count)) for n in range(count + 1)]


def noise(spread: float) -> float:
    return chance.gauss(0.0, spread)


chance = random.Random(1)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(lambda _: 40.0, id="constant"),
        pytest.param(lambda _: 40.0 + noise(2.0), id="noise"),
        pytest.param(lambda x: 40.0 + (x * 97) % 8, id="sawtooth"),
        pytest.param(lambda x: 20.0 if x < 0.4 else 40.0, id="a step while caches fill"),
        pytest.param(lambda x: 40.0 + 60.0 * min(x, 0.4), id="growth that has ended"),
        pytest.param(lambda x: 400.0 if chance.random() < 0.1 else 40.0, id="outliers"),
        pytest.param(lambda x: 60.0 - 20.0 * x, id="less and less"),
        pytest.param(lambda x: 40.0 + 1.0 * x, id="less than is allowed"),
    ],
)
def test_what_is_flat_is_taken_for_it(value: Callable[[float], float]) -> None:
    assert verdict(MEMORY, sampled(value)).is_flat


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(lambda x: 40.0 + 6.0 * x, id="a line"),
        pytest.param(lambda x: 40.0 + 8.0 * x + noise(2.0), id="a line with noise"),
        pytest.param(lambda x: 40.0 + 10.0 * x + (x * 97) % 8, id="a growing sawtooth"),
        pytest.param(lambda x: 40.0 + 10.0 * x**4, id="faster and faster"),
        pytest.param(
            lambda x: 0.0 if chance.random() < 0.1 else 40.0 + 10.0 * x, id="a line with outliers"
        ),
        pytest.param(lambda x: 40.0 + 4.0 * (x // 0.05), id="stairs"),
    ],
)
def test_what_grows_is_found(value: Callable[[float], float]) -> None:
    found = verdict(MEMORY, sampled(value))
    assert not found.is_flat
    assert found.growth > found.allowed >= 2.0


def test_the_bound_is_the_larger_one_and_on_the_second_half() -> None:
    points = sampled(lambda x: 400.0 + 20.0 * x)
    found = verdict(MEMORY, points)
    assert found.growth == pytest.approx(10.0)
    assert found.slope_per_s == pytest.approx(20.0 / HOUR_S)
    assert found.allowed == pytest.approx(0.03 * 415.0)
    assert found.is_flat
    assert second_half(points)[0][0] == HOUR_S / 2


def test_the_slope_is_the_median_of_all_pairs() -> None:
    assert slope([(0.0, 0.0), (1.0, 1.0), (2.0, 100.0), (3.0, 3.0), (4.0, 4.0)]) == 1.0
    assert slope([(0.0, 5.0)]) == 0.0
    assert slope([]) == 0.0
    many = [(float(n), 2.0 * n) for n in range(5_000)]
    assert slope(many) == 2.0


def test_too_few_samples_are_no_verdict() -> None:
    with pytest.raises(ValueError, match="too few"):
        verdict(MEMORY, [(float(n), 1.0) for n in range(6)])
    with pytest.raises(ValueError, match="too few"):
        verdict(MEMORY, [])


# Messages.


class Kept(NamedTuple):
    """A lane with a confirmed message."""

    lane: Lane
    mistakes: Mistakes
    number: int


@pytest.fixture
def kept() -> Kept:
    mistakes = Mistakes()
    lane = Lane("/queue/a", mistakes)
    number = lane.next()
    lane.is_kept(number)
    return Kept(lane, mistakes, number)


def counts(mistakes: Mistakes) -> tuple[int, int, int]:
    return mistakes.lost, mistakes.doubled, mistakes.strays


def test_a_message_that_comes_and_comes_again_as_redelivered_is_no_mistake(kept: Kept) -> None:
    lane, mistakes, number = kept
    assert lane.waiting == 1
    lane.has_come(number, is_redelivered=False)
    lane.has_come(number, is_redelivered=True)
    lane.is_settled(number)
    assert lane.waiting == 0
    lane.close()
    assert counts(mistakes) == (0, 0, 0)
    assert (lane.sent, lane.deliveries, lane.redeliveries) == (1, 2, 1)


def test_a_message_may_come_before_its_receipt() -> None:
    mistakes = Mistakes()
    lane = Lane("/queue/a", mistakes)
    number = lane.next()
    lane.has_come(number, is_redelivered=False)
    lane.is_settled(number)
    lane.is_kept(number)
    lane.close()
    assert lane.waiting == 0
    assert counts(mistakes) == (0, 0, 0)


def test_a_message_that_was_confirmed_and_never_settled_is_lost(kept: Kept) -> None:
    kept.lane.has_come(kept.number, is_redelivered=False)
    kept.lane.close()
    assert counts(kept.mistakes) == (1, 0, 0)
    assert kept.mistakes.told == ["lost: /queue/a: 1 of 1 never came, [0] among them"]


def test_a_message_that_was_not_confirmed_may_be_lost() -> None:
    mistakes = Mistakes()
    lane = Lane("/queue/a", mistakes)
    lane.next()
    lane.close()
    assert counts(mistakes) == (0, 0, 0)


def test_a_message_that_comes_again_without_a_word_is_doubled(kept: Kept) -> None:
    kept.lane.has_come(kept.number, is_redelivered=False)
    kept.lane.has_come(kept.number, is_redelivered=False)
    assert counts(kept.mistakes) == (0, 1, 0)


def test_a_message_that_comes_after_its_acknowledgement_is_doubled(kept: Kept) -> None:
    kept.lane.is_settled(kept.number)
    kept.lane.has_come(kept.number, is_redelivered=True)
    kept.lane.is_settled(kept.number)
    assert counts(kept.mistakes) == (0, 2, 0)


@pytest.mark.parametrize("number", [0, 1, 7])
def test_a_message_that_was_aborted_or_never_sent_is_a_stray(number: int) -> None:
    mistakes = Mistakes()
    lane = Lane("/queue/a", mistakes)
    lane.is_void(lane.next())
    lane.is_sent(3)
    lane.has_come(number, is_redelivered=False)
    assert counts(mistakes) == (0, 0, 1)


def test_mistakes_are_told_up_to_a_number_and_all_counted() -> None:
    mistakes = Mistakes()
    for number in range(50):
        mistakes.add("lost", str(number), 2)
    assert mistakes.lost == 100
    assert len(mistakes.told) == 20


# The diagram.


def samples(count: int) -> list[Sample]:
    return [Sample(*[float(n * (field + 1)) for field in range(14)]) for n in range(count)]


def test_each_series_has_a_panel_with_its_slope_and_rates_have_none() -> None:
    drawn = columns(samples(10))
    root = ElementTree.fromstring(soak_plot(drawn))
    shapes = root.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(shapes) == 2 * len(SERIES) + 1
    assert drawn["delivered_per_s"] == [13.0] * 10


@pytest.mark.parametrize("drawn", [{}, {"s": [1.0]}])
def test_nothing_is_no_picture(drawn: dict[str, Sequence[float]]) -> None:
    with pytest.raises(ValueError, match="nothing was sampled"):
        soak_plot(drawn)


# The program.


def test_a_broker_is_empty_when_all_have_gone(tmp_path: Path) -> None:
    made, plot = tmp_path / "made.json", tmp_path / "made.svg"
    given = ("--minutes", "0.1", "--rate", "50", "--json", str(made), "--plot", str(plot))
    figure = figures(programs.run("soak", *given), made)
    assert {name: figure[name] for name in NONE} == dict.fromkeys(NONE, 0)
    assert figure["left_timers"] <= 5
    assert figure["sent"] > 100
    assert figure["deliveries"] > 100
    assert figure["redeliveries"] > 0
    assert figure["sessions"] > 20
    assert {f"{series.name}_growth" for series in SERIES} <= set(figure)
    series = json.loads(made.read_text())["samples"]
    assert soak_plot(series) == plot.read_text()
    drawing = programs.run("pictures", "--soak", str(made), "--into", str(tmp_path / "drawn"))
    assert (drawing.returncode, drawing.stderr) == (0, "")
    assert (tmp_path / "drawn" / "soak.svg").read_text() == plot.read_text()


@pytest.mark.matrix
def test_a_broker_that_loses_doubles_and_leaks_is_found_out(tmp_path: Path) -> None:
    made, log = tmp_path / "made.json", tmp_path / "broker.log"
    given = ("--minutes", "0.1", "--patience", "1", "--json", str(made), "--log", str(log))
    done = programs.run("soak", *given, path=ROOT / "tests" / "benchmarks" / "wrong_broker")
    assert done.returncode == 1
    figure = json.loads(made.read_text())["figures"]
    for name in ("lost", "doubled", "left_descriptors", "left_timers"):
        assert figure[name] > 5, done.stdout
    assert figure["tracebacks"] > 0
    assert figure["strays"] == figure["broken"] == 0
    assert " came again, not as redelivered" in done.stderr
    assert "\nBROKEN: Messages lost: " in done.stdout
    assert log.read_text().count("ZeroDivisionError: ") > 0


@pytest.mark.matrix
def test_a_series_that_grows_by_more_than_it_may_makes_the_status_1(tmp_path: Path) -> None:
    made = tmp_path / "made.json"
    given = ("--minutes", "0.1", "--rate", "10", "--visits", "2", "--json", str(made))
    done = programs.run("soak", *given, "--allow", "memory_mib=-1000")
    figures(done, made)
    assert done.returncode == 1
    assert "\nBROKEN: Anonymous memory, MiB: growth in the second half: " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--allow memory=3", "no series is called 'memory'"),
        ("--hours 1 --minutes 3", "not allowed with argument"),
        ("--minutes 0.001", "has too few samples to judge it by"),
    ],
)
def test_what_can_not_be_judged_is_refused(arguments: str, told: str) -> None:
    done = programs.run("soak", *arguments.split())
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
