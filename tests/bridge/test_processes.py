"""``stompkit bridge`` between brokers in child processes, any of which is killed."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stompkit.bridge import HOPS, ID
from stompkit.client.blocking import Delivery
from stompkit.replication.model.frames import Packet
from stompkit.testing import BrokerMissingError, LaunchConfig, RunningBroker, launch
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.plugin import settings_of
from tests.effort import in_matrix
from tests.full_disk import on_full_disk
from tests.ports import free_ports
from tests.replication.brokers import broker_url, connect

LONG_S = 120.0
COUNT = 2_000
WINDOW = 100


def started(name: str, config: pytest.Config, **settings: Any) -> RunningBroker:
    """Return a broker of this name; if it is not installed, skip or fail the test."""
    try:
        return launch(LaunchConfig(name=name, **settings))
    except BrokerMissingError as missing:
        outcome = pytest.fail if settings_of(config).missing == "fail" else pytest.skip
        raise outcome.Exception(str(missing), pytrace=False) from None


def durable(directory: Path, port: int = 0) -> RunningBroker:
    """A stompkit broker whose messages survive a kill."""
    return launch(
        LaunchConfig(directory=directory, port=port, arguments=("--data", str(directory / "data")))
    )


def url(broker: RunningBroker) -> str:
    return broker_url(broker, "")


def table(sites: dict[str, str], *routes: str, **top: str) -> str:
    lines = [f'{key} = "{value}"' for key, value in top.items()]
    lines += [f'[sites.{name}]\nurl = "{each}"' for name, each in sites.items()]
    return "\n".join([*lines, *(f"[[routes]]\n{route}" for route in routes)])


class Bridge:
    """``stompkit bridge`` in a child process."""

    def __init__(self, folder: Path, text: str) -> None:
        """Write its file; nothing runs yet."""
        self.file = folder / "bridge.toml"
        self.path = folder / "status.json"
        self.file.write_text(f'status = "{self.path}"\n{text}')
        self._log = folder / "bridge.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """Return its output."""
        return self._log.read_text()

    def start(self) -> None:
        """Start it, for the first time or again."""
        self.path.unlink(missing_ok=True)
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "stompkit", "bridge", "--config", str(self.file)]
            self._process = subprocess.Popen(command, stderr=log, stdout=log)

    def status(self) -> list[dict[str, Any]]:
        """Return the status of its routes; empty before the first report."""
        try:
            found: list[dict[str, Any]] = json.loads(self.path.read_bytes())["routes"]
        except FileNotFoundError:
            return []
        return found

    def total(self, key: str) -> int:
        """Return the sum of a figure over all routes."""
        return sum(route[key] for route in self.status())

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition."""
        assert wait_until(condition, LONG_S), f"{self.status()}\n{self.log}"

    def wait_running(self) -> None:
        """Wait until all routes run."""
        self.wait(
            lambda: bool(self.status()) and all(r["state"] == "running" for r in self.status())
        )

    def kill(self) -> None:
        """Kill it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(LONG_S)

    def end(self, signals: int = 1) -> int:
        """Terminate it by one signal or more; return its status."""
        assert self._process is not None
        for _ in range(signals):
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(LONG_S)

    def ended(self) -> int:
        """Wait until it has ended by itself; return its status."""
        assert self._process is not None
        return self._process.wait(LONG_S)


@contextmanager
def bridge(folder: Path, text: str) -> Iterator[Bridge]:
    made = Bridge(folder, text)
    made.start()
    try:
        yield made
    finally:
        made.kill()
        assert "Traceback" not in made.log, made.log


def publish(broker: RunningBroker, destination: str, numbers: range, **headers: str) -> None:
    with connect(broker) as link:
        made = [Packet({"event-id": f"e{n}", **headers}, f"{n}".encode()) for n in numbers]
        link.send(destination, made).result(LONG_S)


def all_of(broker: RunningBroker, destination: str, numbers: range) -> list[Delivery]:
    """Return all messages of a queue, once each of the numbers has arrived."""
    found: list[Delivery] = []
    wanted = {str(n).encode() for n in numbers}
    with connect(broker) as link:
        inbox = link.subscribe(destination)

        def came() -> bool:
            for each in inbox.take(1000, 0.1):
                each.ack()
                found.append(each)
                wanted.discard(each.body)
            return not wanted

        assert wait_until(came, LONG_S), f"{len(wanted)} of {len(numbers)} have not come"
    return found


def check(found: list[Delivery], most_twice: int) -> None:
    """Check that copies have the same id, other messages have different ids, and copies are few."""
    ids = {(each.body, each.headers[ID]) for each in found}
    assert len({body for body, _ in ids}) == len({name for _, name in ids}) == len(ids)
    assert sum(Counter(each.body for each in found).values()) - len(ids) <= most_twice


MOVE = 'from = "a"\nto = "b"\nqueues = "/queue/orders"'


@pytest.mark.parametrize(
    ("source", "to"),
    [
        ("stompkit", "stompkit"),
        in_matrix("stompkit", "activemq"),
        in_matrix("activemq", "stompkit"),
        in_matrix("rabbitmq", "stompkit"),
        in_matrix("stompkit", "rabbitmq"),
    ],
)
def test_a_queue_is_moved(
    tmp_path: Path, pytestconfig: pytest.Config, source: str, to: str
) -> None:
    with started(source, pytestconfig) as a, started(to, pytestconfig) as b:
        publish(a, "/queue/orders", range(300), colour="blue: é", priority="7", persistent="true")
        with bridge(tmp_path, table({"a": url(a), "b": url(b)}, MOVE)) as made:
            found = all_of(b, "/queue/orders", range(300))
            made.wait(lambda: made.total("forwarded") == 300)
            assert made.end() == 0
    assert [int(each.body) for each in found] == list(range(300))
    for each in found:
        assert each.headers["colour"] == "blue: é"
        assert each.headers["priority"] == "7"
        assert each.headers["persistent"] == "true"
        assert each.headers[HOPS] == "a"
        assert each.headers[ID] == f"a:{each.headers['event-id']}"


def test_several_signals_end_it_as_one_does(tmp_path: Path) -> None:
    with launch(LaunchConfig()) as a, launch(LaunchConfig()) as b:
        with bridge(tmp_path, table({"a": url(a), "b": url(b)}, MOVE)) as made:
            made.wait_running()
            assert made.end(signals=5) == 0
        assert made.log.endswith(": ended\nroute1: 0 messages forwarded\n")


def test_it_says_what_is_left_in_its_buffer(tmp_path: Path) -> None:
    route = f'{MOVE}\nbuffer = "{tmp_path / "kept"}"'
    with launch(LaunchConfig()) as a, launch(LaunchConfig()) as b:
        with bridge(tmp_path, table({"a": url(a), "b": url(b)}, route)) as made:
            publish(a, "/queue/orders", range(3))
            made.wait(lambda: made.total("forwarded") == 3)
            b.kill()
            made.wait(lambda: not made.status()[0]["to_connected"])
            publish(a, "/queue/orders", range(3, 5))
            made.wait(lambda: made.total("buffered") == 2)
            assert made.end() == 0
        kept = tmp_path / "kept" / "route1"
        end = f"route1: 3 messages forwarded; 2 left in {kept}, for the next run\n"
        assert made.log.endswith(end)


@pytest.mark.matrix
def test_a_topic_goes_both_ways_and_does_not_come_back(tmp_path: Path) -> None:
    route = 'from = "a"\nto = "b"\ntopics = "/topic/news.>"\nboth-ways = true'
    with launch(LaunchConfig()) as a, launch(LaunchConfig()) as b:
        with bridge(tmp_path, table({"a": url(a), "b": url(b)}, route)) as made:
            made.wait_running()
            with connect(a) as on_a, connect(b) as on_b:
                at_a, at_b = on_a.subscribe("/topic/news.x"), on_b.subscribe("/topic/news.x")
                publish(a, "/topic/news.x", range(50))
                publish(b, "/topic/news.x", range(50, 100))
                made.wait(lambda: made.total("looped") == 100)
                made.wait(lambda: at_a.count >= 100 and at_b.count >= 100)
                came = [sorted(int(d.body) for d in at.take(1000)) for at in (at_a, at_b)]
            assert made.end() == 0
    assert came == [list(range(100))] * 2


def test_topics_are_kept_by_durable_subscriptions(tmp_path: Path) -> None:
    route = 'from = "a"\nto = "b"\ntopics = "/topic/news"\ndestination = "/queue/{site}.{name}"'
    with durable(tmp_path / "a") as a, launch(LaunchConfig()) as b:
        with bridge(tmp_path, table({"a": url(a), "b": url(b)}, route)) as made:
            made.wait_running()
            assert made.status()[0]["kept"] == "source"
            assert made.end() == 0
            publish(a, "/topic/news", range(100))
            made.start()
            found = all_of(b, "/queue/a.news", range(100))
            assert made.end() == 0
    check(found, 0)


@pytest.mark.matrix
def test_a_chain_of_sites_passes_messages_on(tmp_path: Path) -> None:
    with launch(LaunchConfig()) as a, launch(LaunchConfig()) as b, launch(LaunchConfig()) as c:
        sites = {"child": url(a), "region": url(b), "head": url(c)}
        up = 'from = "child"\nto = "region"\nqueues = "/queue/up"\nname = "one"'
        on = 'from = "region"\nto = "head"\nqueues = "/queue/up"\nname = "two"'
        publish(a, "/queue/up", range(200))
        with bridge(tmp_path, table(sites, up, on)) as made:
            found = all_of(c, "/queue/up", range(200))
            assert made.end() == 0
    assert {each.headers[HOPS] for each in found} == {"child,region"}
    assert {each.headers[ID] for each in found} == {f"child:e{n}" for n in range(200)}


@pytest.mark.parametrize(
    ("victim", "buffered"),
    [
        ("bridge", True),
        ("source", False),
        ("destination", True),
        in_matrix("bridge", False),
        in_matrix("source", True),
        in_matrix("destination", False),
    ],
)
def test_nothing_is_lost_whatever_is_killed(tmp_path: Path, victim: str, buffered: bool) -> None:  # noqa: FBT001
    more = f'\nbuffer = "{tmp_path / "buffer"}"' if buffered else ""
    with free_ports(2) as (one, two):
        a, b = durable(tmp_path / "a", one), durable(tmp_path / "b", two)
        publish(a, "/queue/orders", range(COUNT))
        with bridge(tmp_path, table({"a": url(a), "b": url(b)}, MOVE + more)) as made:
            with connect(b) as link:
                inbox = link.subscribe("/queue/orders", prefetch=1)
                assert inbox.get(LONG_S) is not None  # it is in the middle of its work
            if victim == "bridge":
                made.kill()
                made.start()
            elif victim == "source":
                a.kill()
                a.stop()
                a = durable(tmp_path / "a", one)
            else:
                b.kill()
                b.stop()
                b = durable(tmp_path / "b", two)
            found = all_of(b, "/queue/orders", range(COUNT))
            assert made.end() == 0
        check(found, 2 * WINDOW)
        a.stop()
        b.stop()


@pytest.mark.parametrize("buffered", [False, True])
def test_a_destination_may_be_away(tmp_path: Path, buffered: bool) -> None:  # noqa: FBT001
    more = f'\nbuffer = "{tmp_path / "buffer"}"' if buffered else ""
    with free_ports() as [port], durable(tmp_path / "a") as a:
        sites = {"a": url(a), "b": f"stomp://127.0.0.1:{port}"}
        publish(a, "/queue/orders", range(500))
        with bridge(tmp_path, table(sites, MOVE + more)) as made:
            if buffered:
                made.wait(lambda: made.total("buffered") == 500)
                made.kill()
                a.stop()  # the buffer has everything
                made.start()
            with launch(LaunchConfig(port=port)) as b:
                found = all_of(b, "/queue/orders", range(500))
                made.end()
    check(found, 0)


def test_a_destination_that_cannot_be_reached_is_reported(tmp_path: Path) -> None:
    with free_ports() as [port], launch(LaunchConfig()) as a:
        there = f"stomp://127.0.0.1:{port}"
        sites = {"a": url(a), "b": there}
        with bridge(tmp_path, table(sites, MOVE, metrics="127.0.0.1:0")) as made:
            made.wait(lambda: f"no connection to 127.0.0.1:{port}: " in made.log)
            assert re.match(r"metrics at http://127\.0\.0\.1:[1-9]\d*/metrics\n", made.log)
            assert made.end() == 0


def test_what_the_destination_refuses_stops_the_route(tmp_path: Path) -> None:
    route = MOVE + '\ndestination = "/nowhere/{name}"'
    with launch(LaunchConfig()) as a, launch(LaunchConfig()) as b:
        publish(a, "/queue/orders", range(10))
        with bridge(tmp_path, table({"a": url(a), "b": url(b)}, route)) as made:
            assert made.ended() == 1
            assert "did not get a:e0 for /nowhere/orders" in made.log
            assert made.status()[0]["state"] == "stopped"
        all_of(a, "/queue/orders", range(10))


@pytest.mark.parametrize("to", ["stompkit", in_matrix("rabbitmq")])
def test_what_the_destination_refuses_can_go_to_the_dead_letters(
    tmp_path: Path, pytestconfig: pytest.Config, to: str
) -> None:
    route = MOVE + '\ndestination = "/nowhere/{name}"\nrefused = "/queue/refused"'
    with launch(LaunchConfig()) as a, started(to, pytestconfig) as b:
        publish(a, "/queue/orders", range(5))
        with bridge(tmp_path, table({"a": url(a), "b": url(b)}, route)) as made:
            made.wait(lambda: made.total("refused") == 5)
            assert made.end() == 0
        found = all_of(a, "/queue/refused", range(5))
    for each in found:
        assert each.headers["stompkit-bridge-destination"] == "/nowhere/orders"
        assert each.headers["stompkit-bridge-refused"]
        assert HOPS not in each.headers


def test_a_selector_filters(tmp_path: Path) -> None:
    route = MOVE + "\nselector = \"colour = 'red'\""
    with launch(LaunchConfig()) as a, launch(LaunchConfig()) as b:
        publish(a, "/queue/orders", range(10), colour="blue")
        publish(a, "/queue/orders", range(10, 20), colour="red")
        with bridge(tmp_path, table({"a": url(a), "b": url(b)}, route)) as made:
            found = all_of(b, "/queue/orders", range(10, 20))
            assert made.end() == 0
        assert len(found) == 10
        assert len(all_of(a, "/queue/orders", range(10))) == 10


def test_a_message_of_a_queue_that_would_go_in_circles_is_not_lost(tmp_path: Path) -> None:
    with launch(LaunchConfig()) as a, launch(LaunchConfig()) as b:
        there = MOVE + '\nname = "there"'
        back = 'name = "back"\nfrom = "b"\nto = "a"\nqueues = "/queue/orders"'
        publish(a, "/queue/orders", range(1))
        sites = {"a": url(a), "b": url(b)}
        with bridge(tmp_path, table(sites, there, back)) as made:
            made.wait(lambda: "stopped" in [r["state"] for r in made.status()])
            made.wait(lambda: "a did not get a:e0 for /queue/orders: it has passed" in made.log)
            assert "give the site another name, such as with --to-site" in made.log
        all_of(b, "/queue/orders", range(1))


def test_the_example_carries_orders_up_and_prices_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "bridge" / "sites.toml"
    with launch(LaunchConfig()) as one, launch(LaunchConfig()) as two, launch(LaunchConfig()) as h:
        for name, each in {"BERLIN": one, "PARIS": two, "HEAD": h}.items():
            monkeypatch.setenv(f"{name}_URL", url(each))
        text = example.read_text().replace('status = "bridge-status.json"', "")
        text = text.replace('"buffer"', f'"{tmp_path / "buffer"}"')
        publish(one, "/queue/orders", range(10))
        publish(two, "/queue/orders", range(10))
        with bridge(tmp_path, text) as made:
            made.wait_running()
            with connect(one) as link:
                inbox = link.subscribe("/topic/prices.tea")
                publish(h, "/topic/prices.tea", range(1))
                assert inbox.get(LONG_S) is not None
            for name in ("berlin", "paris"):
                assert len(all_of(h, f"/queue/orders.{name}", range(10))) == 10
            assert made.end() == 0


@pytest.mark.matrix
def test_a_bridge_that_starts_on_a_full_disk_waits_for_room(tmp_path: Path) -> None:
    apart = on_full_disk(tmp_path)
    with free_ports() as (port,):
        address = f"stomp://127.0.0.1:{port}"
        route = ("--from", address, "--to", address, "--from-site", "a", "--to-site", "b")
        files = ("--status-file", str(tmp_path / "status"), "--buffer", str(tmp_path / "buffer"))
        command = (sys.executable, "-m", "stompkit", "bridge", *route, "--queue", "q", *files)
        with subprocess.Popen([*apart, *command], stderr=subprocess.PIPE, text=True) as bridge:
            assert bridge.stderr is not None
            try:
                found = next(line for line in bridge.stderr if "No space left" in line)
            finally:
                bridge.kill()
    assert "trying again" in found or "waiting" in found or "status cannot be written" in found


def test_a_terminal_shows_how_many_messages_were_forwarded_so_far() -> None:
    with launch(LaunchConfig()) as old, launch(LaunchConfig()) as new:
        with old.client() as client:
            for _ in range(3):
                client.send("/queue/orders", "x")
        command = [sys.executable, "-m", "stompkit", "bridge", "--queue", "orders"]
        command += ["--from", old.url, "--to", new.url]
        ours, theirs = pty.openpty()
        with subprocess.Popen(command, stderr=theirs) as process:
            os.close(theirs)
            shown = b""
            while b"\r\x1b[K3 messages forwarded" not in shown:
                shown += os.read(ours, 1000)
            process.terminate()
            assert process.wait(LONG_S) == 0
        os.close(ours)
