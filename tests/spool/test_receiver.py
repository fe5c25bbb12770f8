"""Receiving into a spool, without loss and without duplicates."""

from __future__ import annotations

import random
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from stompkit.client import AckMode, BrokerError
from stompkit.client.blocking import BrokerUrl, Link, LinkClosedError
from stompkit.replication.model.frames import Packet
from stompkit.spool import Record, SpoolReader, SpoolWriter
from stompkit.spool.receiver import Receiver
from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.plugin import BrokerFactory
from stompkit.testing.proxy import Proxy
from tests.replication.brokers import Address, broker_url, connect

LONG_S = 60.0
#: A limit of the file size in bytes that simulates a full disk.
SMALL = 20_000
#: Number of extra messages for a receiver that is to be killed.
AHEAD = 2_000
_Given = TypeVar("_Given")


def until(condition: Callable[[], _Given]) -> _Given:
    given = wait_until(condition, LONG_S)
    assert given, "it did not happen in time"
    return given


def packets(numbers: Iterable[int], size: int = 0) -> list[Packet]:
    """Return messages with a number each, and an event-id that identifies them from any sender."""
    return [
        Packet({"event-id": f"e{n}", "content-type": "text/plain"}, f"{n}".encode().ljust(size))
        for n in numbers
    ]


def publish(broker: RunningBroker, destination: str, numbers: Iterable[int], size: int = 0) -> None:
    """Send messages, and wait until the broker has confirmed them."""
    with connect(broker, receipts="receipt" in broker.capabilities) as link:
        link.send(destination, packets(numbers, size)).result(LONG_S)


def records(folder: Path) -> list[Record]:
    """Return the messages in a spool."""
    reader = SpoolReader(folder)
    return [
        record
        for partition, (floor, head) in enumerate(zip(reader.floor(), reader.head(), strict=True))
        for block in reader.blocks(partition, floor, head)
        for record in block.records()
    ]


def numbers(folder: Path) -> list[int]:
    """Return the numbers of the messages in a spool, in its order."""
    return [int(record.body) for record in records(folder)]


def count(folder: Path) -> int:
    """Return the number of messages in a spool, which may not exist yet."""
    return sum(SpoolReader(folder).head()) if (folder / "spool.json").exists() else 0


def left(broker: RunningBroker, destination: str) -> int:
    """Return the number of messages that the broker still has."""
    with connect(broker, receipts="receipt" in broker.capabilities) as link:
        inbox = link.subscribe(destination, ack="ack" in broker.capabilities)
        found = 0
        while inbox.get(1.0) is not None:
            found += 1
        return found


def source(broker: RunningBroker, *addresses: Address) -> BrokerUrl:
    return BrokerUrl.parse(broker_url(broker, "/", *addresses))


@contextmanager
def receiving(
    broker: RunningBroker,
    folder: Path,
    *destinations: str,
    at: Sequence[Address] = (),
    partitions: int | None = None,
    **settings: Any,
) -> Iterator[Receiver]:
    """Receive in a thread until the end of the block; raise an error that ends it earlier."""
    if "client-individual" not in broker.capabilities:
        settings = {"ack": "auto", **settings}
    settings = {"receipts": "receipt" in broker.capabilities, **settings}
    with SpoolWriter(folder, partitions=partitions) as writer:
        receiver = Receiver(source(broker, *at), destinations, writer, **settings)
        receiver.start()
        try:
            yield receiver
        finally:
            receiver.stop()
            receiver.join(LONG_S)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


# Arrival.


def test_messages_are_in_the_spool_as_they_came(stomp_broker: RunningBroker, spool: Path) -> None:
    queue = stomp_broker.queue("orders")
    with connect(stomp_broker, receipts="receipt" in stomp_broker.capabilities) as link:
        headers = {"event-id": "e1", "content-type": "text/plain", "colour": "light: grün"}
        link.send(queue, [Packet(headers, "bodies are octets: ä\0".encode())]).result(LONG_S)
        link.send(queue, [Packet({"content-type": "a/b"}, b"2")]).result(LONG_S)
    with receiving(stomp_broker, spool, queue, clock=lambda: 12.5) as receiver:
        until(lambda: count(spool) == 2)
        until(lambda: receiver.status().received == 2)
        assert receiver.status().connected
    first, second = records(spool)
    assert first.body == "bodies are octets: ä\0".encode()
    assert (first.event_id, first.content_type, second.event_id) == ("e1", "text/plain", "")
    assert first.received_us == 12_500_000
    assert dict(first.headers)["colour"] == "light: grün"
    assert dict(second.headers)["message-id"] == second.message_id != ""
    assert first.destination == second.destination == dict(first.headers)["destination"]


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(
            "client-individual", marks=pytest.mark.stomp_requires("ack", "client-individual")
        ),
        pytest.param("client", marks=pytest.mark.stomp_requires("ack", "cumulative-ack")),
        "auto",
    ],
)
def test_what_is_in_the_spool_is_not_with_the_broker_any_more(
    stomp_broker: RunningBroker, spool: Path, mode: AckMode
) -> None:
    """The order is kept in every ack mode; a small prefetch requires acknowledgements."""
    queue = stomp_broker.queue("modes")
    publish(stomp_broker, queue, range(300))
    with receiving(
        stomp_broker, spool, queue, ack=mode, prefetch=20, group_messages=50
    ) as receiver:
        until(lambda: receiver.status().received == 300)
    assert numbers(spool) == list(range(300))
    assert left(stomp_broker, queue) == 0


@pytest.mark.stomp_requires("ack", "cumulative-ack")
def test_one_acknowledgement_is_enough_for_a_group_in_the_mode_client(
    stomp_broker: RunningBroker, spool: Path
) -> None:
    queue = stomp_broker.queue("cumulative")
    publish(stomp_broker, queue, range(200))
    with receiving(stomp_broker, spool, queue, ack="client") as receiver:
        until(lambda: receiver.status().received == 200)
        groups = receiver.status().groups
    if stomp_broker.capabilities.as_dict()["1.1"]:
        assert len(stomp_broker.frames.find("ACK")) <= groups


def test_destinations_share_a_spool(stomp_broker: RunningBroker, spool: Path) -> None:
    """Each message has its destination; a busy destination does not block another."""
    busy, quiet = stomp_broker.queue("busy"), stomp_broker.queue("quiet")
    publish(stomp_broker, busy, range(500))
    publish(stomp_broker, quiet, [1000])
    groups: list[tuple[int, int]] = []
    with receiving(
        stomp_broker,
        spool,
        busy,
        quiet,
        group_messages=20,
        on_group=lambda messages, new: groups.append((messages, new)),
    ) as receiver:
        until(lambda: receiver.status().received == 501)
    assert sorted(numbers(spool)) == [*range(500), 1000]
    by_number = {int(record.body): record.destination for record in records(spool)}
    assert len({by_number[number] for number in range(500)}) == 1
    assert by_number[1000] != by_number[0]
    assert sum(new for _, new in groups) == sum(messages for messages, _ in groups) == 501
    assert max(messages for messages, _ in groups) <= 20


def test_partitions_have_all_of_it(stomp_broker: RunningBroker, spool: Path) -> None:
    queue = stomp_broker.queue("parts")
    publish(stomp_broker, queue, range(200))
    with receiving(stomp_broker, spool, queue, partitions=3) as receiver:
        until(lambda: receiver.status().received == 200)
    assert sorted(numbers(spool)) == list(range(200))
    assert sum(SpoolReader(spool).head()) == 200
    assert min(SpoolReader(spool).head()) > 0


@pytest.mark.stomp_requires("selector")
def test_a_selector_chooses_messages(stomp_broker: RunningBroker, spool: Path) -> None:
    queue = stomp_broker.queue("selected")
    chosen = [Packet({"colour": "red"}, b"1"), Packet({"colour": "blue"}, b"2")]
    with connect(stomp_broker) as link:
        link.send(queue, [*chosen, Packet({"colour": "red"}, b"3")]).result(LONG_S)
    with receiving(stomp_broker, spool, queue, selector="colour = 'red'") as receiver:
        until(lambda: receiver.status().received == 2)
    assert numbers(spool) == [1, 3]


@pytest.mark.stomp_requires("durable", "ack", "client-individual")
def test_a_durable_receiver_gets_what_topics_got_while_it_was_away(
    stomp_broker: RunningBroker, spool: Path
) -> None:
    topics = [stomp_broker.topic("prices"), stomp_broker.topic("offers")]
    name = f"stompkit-{uuid4().hex}"
    with receiving(stomp_broker, spool, *topics, durable=name) as receiver:
        until(lambda: receiver.status().connected)
        for number, topic in enumerate(topics):

            def has_begun(topic: str = topic, number: int = number) -> bool:
                publish(stomp_broker, topic, [number])
                return number in numbers(spool)

            until(has_begun)
    publish(stomp_broker, topics[0], range(10, 30))
    publish(stomp_broker, topics[1], range(30, 50))
    with receiving(stomp_broker, spool, *topics, durable=name):
        until(lambda: len(set(numbers(spool))) == 42)
    assert sorted(numbers(spool)) == [0, 1, *range(10, 50)]


def test_what_came_without_acknowledgements_is_written_before_the_end(
    stomp_broker: RunningBroker, spool: Path
) -> None:
    """The broker would not deliver it again."""
    queue = stomp_broker.queue("automatic")
    publish(stomp_broker, queue, range(300))
    settings: dict[str, Any] = {"ack": "auto", "group_messages": 100, "group_s": LONG_S}
    with receiving(stomp_broker, spool, queue, **settings) as receiver:
        until(lambda: receiver.status().received == 300)
        publish(stomp_broker, queue, range(300, 350))
        until(lambda: receiver.status().waiting == 50)
    assert numbers(spool) == list(range(350))


# Redelivery.


@pytest.mark.stomp_requires("ack", "client-individual")
def test_what_the_broker_delivers_again_is_not_there_twice(
    stomp_broker: RunningBroker, stomp_proxy: Proxy, spool: Path
) -> None:
    queue = stomp_broker.queue("again")
    publish(stomp_broker, queue, range(100))
    with receiving(stomp_broker, spool, queue, at=[stomp_proxy], prefetch=100) as receiver:
        with stomp_proxy.drop("ACK") as lost:
            until(lambda: receiver.status().received == 100)
            lost.wait(100, LONG_S)
        stomp_proxy.disconnect()
        until(lambda: receiver.status().duplicates == 100)
        publish(stomp_broker, queue, range(100, 120))
        until(lambda: receiver.status().received == 120)
    assert sorted(numbers(spool)) == list(range(120))
    assert left(stomp_broker, queue) == 0


@pytest.mark.stomp_requires("ack", "client-individual")
def test_what_a_producer_sends_again_is_not_there_twice(
    stomp_broker: RunningBroker, spool: Path
) -> None:
    """The event-id identifies it, although it is another message for the broker."""
    queue = stomp_broker.queue("sent-again")
    for _ in range(2):
        publish(stomp_broker, queue, range(10))
    with receiving(stomp_broker, spool, queue) as receiver:
        until(lambda: receiver.status().received + receiver.status().duplicates == 20)
    assert numbers(spool) == list(range(10))


@pytest.mark.stomp_requires("ack", "client-individual")
def test_lost_connections_lose_and_double_nothing(
    stomp_broker: RunningBroker, stomp_proxy: Proxy, spool: Path
) -> None:
    queue = stomp_broker.queue("lost")
    publish(stomp_broker, queue, range(400))
    with (
        stomp_proxy.reset("MESSAGE", every=90, times=4) as resets,
        receiving(stomp_broker, spool, queue, at=[stomp_proxy], group_messages=30),
    ):
        until(lambda: count(spool) == 400)
        assert resets.count >= 1
    assert sorted(numbers(spool)) == list(range(400))


@pytest.fixture
def lasting(stomp_broker: RunningBroker, stomp_broker_factory: BrokerFactory) -> RunningBroker:
    """A broker whose messages survive a restart."""
    if not {"ack", "client-individual"} <= {
        name for name in ("ack", "client-individual") if name in stomp_broker.capabilities
    }:
        pytest.skip("a broker that forgets what it has delivered has nothing after a restart")
    if "persistence" in stomp_broker.capabilities:
        return stomp_broker
    return stomp_broker_factory(persistent=True)


def persistent(numbers: Iterable[int]) -> list[Packet]:
    return [Packet({**each.headers, "persistent": "true"}, each.body) for each in packets(numbers)]


def test_a_broker_that_is_killed_under_load_loses_and_doubles_nothing(
    lasting: RunningBroker, spool: Path
) -> None:
    queue = lasting.queue("restarted")
    with connect(lasting) as link, receiving(lasting, spool, queue, group_messages=20) as receiver:
        sent = [link.send(queue, [each]) for each in persistent(range(300))]
        until(lambda: count(spool) >= 50)
        lasting.restart(kill=True)
        sent += [link.send(queue, [each]) for each in persistent(range(300, 500))]
        for future in sent:
            future.result(LONG_S)
        until(lambda: count(spool) == 500)
        assert receiver.status().connected
        assert receiver.status().problem == ""
    assert sorted(numbers(spool)) == list(range(500))


# Processes.


@contextmanager
def process(
    broker: RunningBroker, folder: Path, destination: str, *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Receive in a child process."""
    program = (
        "import sys; from stompkit._commands.spool.command import main;"
        " sys.exit(main(sys.argv[1:]))"
    )
    url = broker_url(broker, destination)
    command = [sys.executable, "-c", program, "run", str(folder), "--from", url, *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as running:
        try:
            yield running
        finally:
            running.kill()


def kill_at(running: subprocess.Popen[bytes], folder: Path, enough: int) -> None:
    """Kill a receiver as soon as its spool has this many messages."""

    def has_enough() -> bool:
        return count(folder) >= enough or running.poll() is not None

    assert wait_until(has_enough, LONG_S, interval_s=0.001), "it does not get on"
    running.kill()


class Sending:
    """Sends messages in a thread, and stays ahead of a spool until it may end."""

    def __init__(self, link: Link, destination: str, folder: Path) -> None:
        """Start the thread."""
        self.futures: list[Future[None]] = []
        self._link = link
        self._destination = destination
        self._folder = folder
        self._may_end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._may_end.is_set():
            wait_until(lambda: self._may_end.is_set() or self._lead() < AHEAD, LONG_S)
            for _ in range(AHEAD - self._lead()):
                self._send()

    def _lead(self) -> int:
        return len(self.futures) - count(self._folder)

    def _send(self) -> None:
        number = len(self.futures)
        self.futures.append(self._link.send(self._destination, packets([number])))

    def finish(self, more: int) -> int:
        """Send this many more, and wait for all receipts; return the total number."""
        self._may_end.set()
        self._thread.join(LONG_S)
        for _ in range(more):
            self._send()
        for future in self.futures:
            future.result(LONG_S)
        return len(self.futures)


@pytest.mark.stomp_requires("ack", "client-individual", "receipt")
@pytest.mark.parametrize("mode", ["client-individual", "client"])
def test_a_receiver_that_is_killed_under_load_loses_and_doubles_nothing(
    stomp_broker: RunningBroker, spool: Path, mode: str
) -> None:
    """There are five kills, each after another number of messages, under constant load."""
    if mode == "client" and "cumulative-ack" not in stomp_broker.capabilities:
        pytest.skip("this broker acknowledges one message at a time")
    queue = stomp_broker.queue("killed")
    dice = random.Random(8)
    with connect(stomp_broker) as link:
        sending = Sending(link, queue, spool)
        for _ in range(5):
            enough = count(spool) + dice.randint(1, 800)
            with process(
                stomp_broker, spool, queue, "--group", "40", "--ack", mode, "--quiet"
            ) as running:
                kill_at(running, spool, enough)
                assert running.wait(LONG_S) == -signal.SIGKILL
        # However many the killed ones have received, the last one has messages left.
        most = sending.finish(more=100)
        assert count(spool) < most
        with process(stomp_broker, spool, queue, "--ack", mode, "--quiet") as running:
            until(lambda: count(spool) >= most)
            running.send_signal(signal.SIGTERM)
            assert running.wait(LONG_S) == 0
    assert sorted(numbers(spool)) == list(range(most))
    assert left(stomp_broker, queue) == 0


@pytest.mark.stomp_requires("ack", "client-individual")
def test_a_full_disk_is_waited_for_and_nothing_is_acknowledged(
    stomp_broker: RunningBroker, spool: Path
) -> None:
    """A limit of the file size simulates a full disk."""
    queue = stomp_broker.queue("full")
    publish(stomp_broker, queue, range(200), size=1000)
    with process(stomp_broker, spool, queue, "--group", "10", "--prefetch", "20") as running:
        assert running.stderr is not None
        until(lambda: (spool / "head.json").exists())
        unlimited = resource.prlimit(running.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (SMALL, unlimited[1]))
        publish(stomp_broker, queue, range(200, 400), size=1000)
        said = b""
        while b"cannot be written" not in said:
            line = running.stderr.readline()
            assert line, said.decode()
            said += line
        before = count(spool)
        assert before < 400
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, unlimited)
        until(lambda: count(spool) == 400)
        running.send_signal(signal.SIGTERM)
        assert b"400 messages" in running.stderr.read()
        assert running.wait(LONG_S) == 0
    assert numbers(spool) == list(range(400))
    assert left(stomp_broker, queue) == 0


@pytest.mark.stomp_requires("ack", "client-individual")
def test_stopping_does_not_wait_for_a_full_disk(stomp_broker: RunningBroker, spool: Path) -> None:
    queue = stomp_broker.queue("stopped")
    publish(stomp_broker, queue, range(100), size=1000)
    with process(stomp_broker, spool, queue, "--group", "10", "--prefetch", "20") as running:
        assert running.stderr is not None
        until(lambda: count(spool) == 100)
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (SMALL, resource.RLIM_INFINITY))
        publish(stomp_broker, queue, range(100, 200), size=1000)
        said = b""
        while b"cannot be written" not in said:
            line = running.stderr.readline()
            assert line, said.decode()
            said += line
        running.send_signal(signal.SIGTERM)
        assert running.wait(LONG_S) == 0
    with receiving(stomp_broker, spool, queue):
        until(lambda: count(spool) == 200)
    assert numbers(spool) == list(range(200))


# End of the receiver.


def test_a_refused_login_ends_it_and_is_told_without_the_passcode(spool: Path) -> None:
    with launch(LaunchConfig(login="me", passcode="right")) as broker, SpoolWriter(spool) as writer:
        url = BrokerUrl(hosts=(f"{broker.host}:{broker.port}",), login="me", passcode="s3cr3t")
        receiver = Receiver(url, ["/queue/a"], writer)
        receiver.start()
        with pytest.raises(LinkClosedError) as refused:
            receiver.join(LONG_S)
        assert receiver.status().failure is refused.value
        assert "s3cr3t" not in str(refused.value)


def test_a_refused_subscription_ends_it(spool: Path) -> None:
    with launch(LaunchConfig()) as broker, SpoolWriter(spool) as writer:
        receiver = Receiver(source(broker), ["nonsense without a slash"], writer)
        with pytest.raises(BrokerError):
            receiver.run()
        assert isinstance(receiver.status().failure, BrokerError)


def test_it_can_be_run_in_the_callers_thread_and_stopped_by_an_event(
    stomp_broker: RunningBroker, spool: Path
) -> None:
    stop = threading.Event()
    queue = stomp_broker.queue("event")
    publish(stomp_broker, queue, range(3))
    mode: AckMode = "client-individual" if "ack" in stomp_broker.capabilities else "auto"
    with SpoolWriter(spool) as writer:
        receiver = Receiver(
            source(stomp_broker),
            [queue],
            writer,
            ack=mode,
            receipts="receipt" in stomp_broker.capabilities,
            on_group=lambda messages, new: stop.set(),
        )
        receiver.run(stop)
    assert numbers(spool)[:1] == [0]


def test_it_ends_where_no_broker_ever_comes(spool: Path) -> None:
    with SpoolWriter(spool) as writer:
        receiver = Receiver(BrokerUrl(hosts=("127.0.0.1:1",)), ["/queue/a"], writer)
        receiver.start()
        assert not receiver.status().connected
        receiver.stop()
        receiver.join(LONG_S)


@pytest.mark.parametrize(
    "settings",
    [
        {"ack": "individual"},
        {"destinations": []},
        {"destinations": [""]},
        {"destinations": ["/queue/a", "/queue/a"]},
        {"group_messages": 0},
        {"group_s": -1.0},
        {"prefetch": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(spool: Path, settings: dict[str, Any]) -> None:
    settings = {"destinations": ["/queue/a"], **settings}
    with SpoolWriter(spool) as writer, pytest.raises(ValueError, match=r"."):
        Receiver(BrokerUrl(hosts=("mq:1",)), writer=writer, **settings)
