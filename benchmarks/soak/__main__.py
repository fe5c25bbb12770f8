"""A broker for hours under a steady mixed load: nothing may be lost, and nothing may grow.

The broker is a process of its own, with a store. Producers and consumers use queues in the store
and in memory, topics with and without durable subscriptions, transactions, delays, expiry and dead
letters; consumers come and go, some with messages that they have not acknowledged. Visitors open
short connections of every kind, over WebSocket and as clients of beanstalkd, too, where that is
installed. An operator asks the admin interface.

Every message is looked at: one that was confirmed has to come; one that comes again has to say so;
one that was acknowledged or aborted must not come. In the end the broker is empty again.

Meanwhile memory, files, threads, the store, and what the broker has are sampled. Each series is
judged by its second half: the median of the slopes between all pairs of samples (Theil and Sen),
times that half, is what it grows by, and there is a bound on that. The exit status is 1 where a
series grows, a message is missing or one too many, or the log has a traceback. To try::

    python -m benchmarks.soak --minutes 2 --plot soak.svg
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from benchmarks._client import RefusedError
from benchmarks._compiled import measure_compiled
from benchmarks._process import need_proc, process_id
from benchmarks._report import (
    Bound,
    Figure,
    broken,
    make_parser,
    positive,
    progress,
    report,
    unusable,
)
from benchmarks.soak._actors import Actor, Consumer, Mover, Producer, Rejecter, Service, World
from benchmarks.soak._flatness import SERIES, verdict
from benchmarks.soak._ledger import Lane
from benchmarks.soak._picture import soak_plot
from benchmarks.soak._samples import Admin, Sample, Sampler, columns
from benchmarks.soak._sessions import PATIENCE_TICKS, TICK_S, Session
from benchmarks.soak._visitors import Listener, Operator, Visitor
from stompkit.frames import Frame
from stompkit.testing import BrokerError, LaunchConfig, RunningBroker, launch

#: Approximate number of samples of a run, and the shortest interval.
_SAMPLES: Final = 360
_LEAST_INTERVAL_S: Final = 0.25
_LEAST_S: Final = 5
#: Tolerance in seconds for corrections of the broker's clock while a message is delayed.
_CORRECTION_S: Final = 0.1
#: Timeout of a step in seconds, for a machine that is busy or suspended.
_STEP_S: Final = 600.0
_SETTINGS: Final = f"""
[broker]
login_timeout_s = {_STEP_S}
linger_s = {_STEP_S}
drain_timeout_s = {_STEP_S}

[[destination]]
name = "/queue/soak.memory"
storage = "memory"

[[destination]]
name = "/queue/soak.poison"
max_deliveries = 3

[[destination]]
name = "/queue/soak.brief"
expired = "dead-letter"
prefetch = 1

[[destination]]
name = "/fanout/soak"
children = ["/queue/soak.left", "/queue/soak.right"]
"""
_DURABLE: Final = {"durable": "true", "auto-delete": "false", "x-queue-name": "soak"}


class Delays:
    """The due times of messages, by number."""

    def __init__(self) -> None:
        """Start empty."""
        self._due_at: dict[int, float] = {}
        self._random = random.Random(1)

    def header(self, number: int) -> dict[str, str]:
        """Delay a message, by 0.2 to 3 seconds."""
        delay_ms = self._random.randint(200, 3_000)
        self._due_at[number] = time.monotonic() + delay_ms / 1e3
        return {"delay": str(delay_ms)}

    def check(self, number: int, frame: Frame) -> str | None:
        """Return a description of a message that came too early for the first time."""
        due_at = self._due_at.pop(number, 0.0)
        early_s = due_at - time.monotonic()
        return f"came {early_s:.2f} s too early" if early_s > _CORRECTION_S else None


def letter(reason: str) -> Callable[[int, Frame], str | None]:
    """Return a check of dead letters."""

    def check(_: int, frame: Frame) -> str | None:
        came = frame.headers.get("dead-letter-reason")
        return None if came == reason else f"is dead because of {came}, not {reason}"

    return check


class Load:
    """All users of the broker."""

    def __init__(self, world: World, rate: int, visits: int) -> None:
        """Create them; ``rate`` is that of the main queue, the others have less."""
        self.world = world
        self.lanes: list[Lane] = []
        self._consumers: list[Actor] = []
        self._producers: list[Actor] = []
        self._queue("/queue/soak.stored", rate, rejects=True)
        self._queue("/queue/soak.memory", rate, ack="client")
        self._topics(rate / 2)
        self._transactions(rate / 4)
        self._dead_letters(rate / 20)
        self._expiry(rate / 20)
        self._delays(rate / 10)
        self._service = Service(world, "/queue/soak.service")
        self._consumers.append(self._service)
        self._producers.append(Operator(world, "operator"))
        self._producers += [Visitor(world, number, visits / 2) for number in (1, 2)]

    @property
    def actors(self) -> list[Actor]:
        """All actors."""
        return self._consumers + self._producers

    def _lane(self, name: str) -> Lane:
        self.lanes.append(Lane(name, self.world.mistakes))
        return self.lanes[-1]

    def _queue(self, name: str, rate: float, *, rejects: bool = False, ack: str = "") -> None:
        """Add a queue with three consumers that come and go."""
        lane, ack = self._lane(name), ack or "client-individual"
        self._producers.append(Producer(self.world, name, [lane], rate))
        self._consumers += [
            Consumer(self.world, name, lane, ack=ack, rejects=rejects, number=number)
            for number in (1, 2, 3)
        ]

    def _topics(self, rate: float) -> None:
        """Add a topic with a durable subscription and listeners, and a fan-out into two queues."""
        news = self._lane("durable subscription")
        self._durable = Consumer(
            self.world, "/topic/soak.news", news, subscribe=_DURABLE | {"prefetch-count": "50"}
        )
        self._consumers.append(self._durable)
        self._producers.append(Producer(self.world, "/topic/soak.news", [news], rate))
        self._producers += [Listener(self.world, f"/topic/soak.{each}") for each in ("*", "news.#")]
        left, right = self._lane("/queue/soak.left"), self._lane("/queue/soak.right")
        self._producers.append(Producer(self.world, "/fanout/soak", [left, right], rate))
        self._consumers += [
            Consumer(self.world, left.name, left),
            # In the mode auto nothing is lost as long as the consumer keeps reading.
            Consumer(self.world, right.name, right, ack="auto", leaves=False),
        ]

    def _transactions(self, rate: float) -> None:
        """Add messages that are sent, moved and consumed in transactions."""
        source, target = self._lane("/queue/soak.in"), self._lane("/queue/soak.out")
        self._producers.append(
            Producer(self.world, source.name, [source], rate, in_transactions=True)
        )
        self._consumers += [
            Mover(self.world, source.name, target.name, (source, target)),
            Consumer(self.world, target.name, target),
        ]

    def _dead_letters(self, rate: float) -> None:
        """Add a queue whose messages are all rejected."""
        letters = self._lane("/dlq/soak.poison")
        self._producers.append(Producer(self.world, "/queue/soak.poison", [letters], rate))
        self._consumers += [
            Rejecter(self.world, "/queue/soak.poison"),
            Consumer(self.world, letters.name, letters, check=letter("max-deliveries")),
        ]

    def _expiry(self, rate: float) -> None:
        """Add a consumer that is too slow for messages with a short expiry."""
        brief = self._lane("/queue/soak.brief")
        self._producers.append(
            Producer(self.world, brief.name, [brief], rate, headers=lambda _: {"expiration": "500"})
        )
        self._consumers += [
            Consumer(self.world, brief.name, brief, pause_s=2 / rate, leaves=False),
            Consumer(self.world, "/dlq/soak.brief", brief, check=letter("expired")),
        ]

    def _delays(self, rate: float) -> None:
        """Add delayed messages."""
        later, delays = self._lane("/queue/soak.later"), Delays()
        self._producers.append(
            Producer(self.world, later.name, [later], rate, headers=delays.header)
        )
        self._consumers.append(Consumer(self.world, later.name, later, check=delays.check))

    def start(self) -> None:
        """Start, consumers first; raise TimeoutError."""
        for actor in self._consumers:
            actor.start()
        for ready in (self._durable.is_there, self._service.is_there):
            if not ready.wait(PATIENCE_TICKS * TICK_S):
                raise TimeoutError("a consumer never came to subscribe")
        for actor in self._producers:
            actor.start()

    def stop(self, patience_ticks: int) -> None:
        """Stop the producers, wait until all messages have been consumed, and stop the consumers.

        Remaining messages are given up after ``patience_ticks`` without a delivery.
        """
        self.world.is_closing.set()
        for actor in self._producers:
            actor.join()
        patience, left = patience_ticks, -1
        while patience and (now := sum(lane.waiting for lane in self.lanes)):
            progress(f"waiting for {now:,} messages")
            patience, left = (patience - 1, left) if now == left else (patience_ticks, now)
            time.sleep(TICK_S)
        self.world.is_over.set()
        for actor in self._consumers:
            actor.join()
        for lane in self.lanes:
            lane.close()


def launched(directory: Path) -> RunningBroker:
    """Launch a broker with all features that are used."""
    need_proc()
    settings = directory / "settings.toml"
    settings.write_text(_SETTINGS, encoding="utf-8")
    data, beanstalk = str(directory / "data"), "tcp:0:interface=127.0.0.1"
    arguments = ("--config", str(settings), "--data", data, "--beanstalk", beanstalk)
    has_websocket = find_spec("wsproto") is not None
    return launch(
        LaunchConfig(
            arguments=arguments, directory=directory, admin=True, websocket=has_websocket,
            start_timeout_s=_STEP_S, stop_timeout_s=_STEP_S,
        )
    )  # fmt: skip


def world_of(broker: RunningBroker) -> World:
    """Return the address of the broker's listeners."""
    assert broker.directory is not None and broker.config is not None
    announced = json.loads((broker.directory / "announce.json").read_text(encoding="utf-8"))
    [beanstalk] = announced["beanstalk"]
    websocket_port = urlsplit(broker.ws_url).port or 0 if broker.config.websocket else 0
    return World(broker.port, Admin(broker.admin_url), websocket_port, beanstalk["port"])


def unused(sampler: Sampler) -> Sample:
    """Return a sample of the unused broker, after the probing connection has ended."""
    for _ in range(PATIENCE_TICKS):
        sample = sampler.look()
        if not sample.connections:
            return sample
        time.sleep(TICK_S)
    raise TimeoutError("a connection that nobody has never ended")


#: Figures that must return to their initial values when all clients have gone.
_LEFT: Final = {
    "connections": "Connections left in the end",
    "subscriptions": "Subscriptions left",
    "durables": "Durable subscriptions left",
    "destinations": "Destinations left",
    "messages": "Messages left",
    "descriptors": "Open files left",
    "timers": "Timers left",
}
#: Permitted excess: periodic timers may run once more within half a minute.
_SPARE: Final = {"left_timers": 5}


def left_over(sampler: Sampler, world: World, first: Sample, patience_ticks: int) -> list[Figure]:
    """Return the excess over the initial figures, as soon as there is none or after the timeout."""
    with Session(world.port) as session:
        headers = {"id": "1", "destination": "/topic/soak.news", "ack": "client-individual"}
        session.call("SUBSCRIBE", headers | _DURABLE)
        session.call("UNSUBSCRIBE", {"id": "1", **_DURABLE})
        session.disconnect()
    for _ in range(patience_ticks):
        last = sampler.look()
        figures = [
            Figure(f"left_{name}", title, getattr(last, name) - getattr(first, name))
            for name, title in _LEFT.items()
        ]
        if all(bound.holds for bound in none_of(figures)):
            break
        time.sleep(TICK_S)
    return figures


def none_of(figures: Iterable[Figure]) -> list[Bound]:
    """Return a bound that permits none of these."""
    return [Bound(figure, _SPARE.get(figure.name, 0)) for figure in figures]


def run(
    directory: Path, given: argparse.Namespace
) -> tuple[list[Figure], list[Bound], dict[str, list[float]]]:
    """Launch, run the load, sample, stop and judge."""
    duration_s = given.minutes * 60
    with launched(directory) as broker:
        world = world_of(broker)
        load = Load(world, given.rate, given.visits)
        interval_s = max(_LEAST_INTERVAL_S, duration_s / _SAMPLES)
        data = directory / "data"
        sampler = Sampler(process_id(broker), data, world.admin, interval_s)
        first = unused(sampler)
        load.start()
        sampler.start()
        while (left_s := duration_s - sampler.elapsed_s) > 0 and not world.is_closing.is_set():
            progress(f"{left_s / 60:.1f} minutes left, {sampler.summary()}")
            world.is_closing.wait(min(1.0, left_s))
        sampler.stop()
        patience_ticks = math.ceil(given.patience / TICK_S)
        load.stop(patience_ticks)
        left = left_over(sampler, world, first, patience_ticks)
        tracebacks = broker.log.count("Traceback (most recent call last)")
        log = broker.log
    if given.log:
        given.log.write_text(log, encoding="utf-8")
    if sampler.trouble is not None:
        world.mistakes.add("broken", sampler.trouble)
    for text in world.mistakes.told:
        print(text, file=sys.stderr)
    told, wrong = counted(load, tracebacks)
    wrong += left
    series = columns(sampler.samples)
    grown, bounds = judged(series, given.allow)
    return [*told, *wrong, *grown], [*none_of(wrong), *bounds], series


def counted(load: Load, tracebacks: int) -> tuple[list[Figure], list[Figure]]:
    """Return the counters, and the figures that must be 0."""
    mistakes, lanes = load.world.mistakes, load.lanes
    told = [
        Figure("sent", "Messages sent", sum(lane.sent for lane in lanes)),
        Figure("deliveries", "Deliveries", sum(lane.deliveries for lane in lanes)),
        Figure("redeliveries", "  marked as redelivered", sum(each.redeliveries for each in lanes)),
        Figure("sessions", "Connections made", sum(each.sessions for each in load.actors)),
    ]
    wrong = [
        Figure("lost", "Messages lost", mistakes.lost),
        Figure("doubled", "Messages twice, without a word", mistakes.doubled),
        Figure("strays", "Messages that should not have come", mistakes.strays),
        Figure("broken", "Clients that could not go on", mistakes.broken),
        Figure("tracebacks", "Tracebacks in the log", tracebacks),
    ]
    return told, wrong


def judged(
    samples: dict[str, list[float]], allowed: dict[str, float]
) -> tuple[list[Figure], list[Bound]]:
    """Return the figures and bounds of the series; raise ValueError if they are too short."""
    figures, bounds = [], []
    for series in SERIES:
        points = list(zip(samples["s"], samples[series.name], strict=True))
        found = verdict(series, points)
        title = f"{series.title[0].upper()}{series.title[1:]}"
        growth = Figure(f"{series.name}_growth", "  grows by", found.growth, ",.2f")
        named = growth._replace(title=f"{title}: growth in the second half")
        figures += [Figure(f"{series.name}_middle", title, found.middle, ",.1f"), growth]
        bounds.append(Bound(named, round(allowed.get(series.name, found.allowed), 2)))
    return figures, bounds


def allowance(text: str) -> tuple[str, float]:
    """Read ``NAME=GROWTH`` from the command line."""
    name, _, growth = text.partition("=")
    if name not in {series.name for series in SERIES}:
        raise argparse.ArgumentTypeError(f"no series is called {name!r}")
    return name, float(growth)


def options() -> argparse.ArgumentParser:
    parser = make_parser("soak", str(__doc__))
    add = parser.add_argument
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, default=60.0, help="of load (default: 60)")
    length.add_argument("--hours", type=float, help="the same")
    add("--rate", type=positive, default=100, help="messages a second of the main queue, and of all"
        " about five times as many (default: %(default)s)")  # fmt: skip
    add("--visits", type=positive, default=10, help="short connections a second (default: 10)")
    add("--allow", type=allowance, action="append", default=[], metavar="NAME=GROWTH",
        help="let a series grow by so much; names are those in the JSON")  # fmt: skip
    add("--patience", type=positive, default=60, metavar="SECONDS",
        help="without a message, after which what is missing is lost (default: 60)")  # fmt: skip
    add("--directory", type=Path, help="on the disk that is to be used (default: for temp files)")
    add("--plot", type=Path, metavar="FILE", help="draw the series into FILE, as SVG")
    add("--log", type=Path, metavar="FILE", help="keep the broker's log in FILE")
    return parser


def main() -> int:
    """Read the command line, run and report; return the exit status."""
    parser = options()
    given = parser.parse_args()
    if given.hours is not None:
        given.minutes = given.hours * 60
    if given.minutes * 60 < _LEAST_S:
        parser.error(f"a run of less than {_LEAST_S} seconds has too few samples to judge it by")
    given.allow = dict(given.allow)
    measure_compiled("benchmarks.soak")
    with tempfile.TemporaryDirectory(prefix="stompkit-soak-", dir=given.directory) as name:
        try:
            figures, bounds, series = run(Path(name), given)
        except (RefusedError, BrokerError, OSError) as error:
            raise broken(repr(error)) from error
        except ValueError as error:
            raise unusable(str(error)) from error
    if given.plot:
        given.plot.write_text(soak_plot(series), encoding="utf-8")
    return report(parser, given.json, figures, bounds, samples=series)


if __name__ == "__main__":
    sys.exit(main())
