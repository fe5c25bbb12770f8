"""The load generator and the comparison of brokers detect faults."""

from __future__ import annotations

import json
import re
import shutil
import socket
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from benchmarks.load._cells import CELLS, choose
from benchmarks.load._generator import GeneratorError, generator, held, run
from benchmarks.load._peers import PEERS, Missing, Peer
from benchmarks.load._plot import latency_plot, throughput_plot
from benchmarks.load._rounds import Machine, Result, measure
from benchmarks.load._tables import lines
from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing.launching.polling import wait_until
from tests.benchmarks import programs
from tests.benchmarks.programs import missing
from tests.conformance.proxy import Fault, behind
from tests.conformance.raw import Raw
from tests.conformance.scripted import Line, ScriptedServer, connected, receipts

MESSAGES = 500
CELL = {cell.name: cell for cell in CELLS}
PEER = {peer.name: peer for peer in PEERS}
#: A text in only one message of a run.
FIFTH = b" 0000000005 "
numbers = count(1)


@pytest.fixture(scope="module", autouse=True)
def program() -> Path:
    """The generator, compiled."""
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        raise missing("needs a C compiler: apt-get install gcc libc6-dev")
    return generator()


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A stompkit broker, in a child process."""
    with launch(LaunchConfig()) as broker:
        yield broker


def load(port: int, *arguments: str) -> dict[str, Any]:
    """Run the generator with a new queue or topic, and few messages."""
    name = f"/{'topic' if '--topic' in arguments else 'queue'}/load-{next(numbers)}"
    given = ("--port", str(port), "--destination", name, "--messages", str(MESSAGES))
    return run("stomp", *given, *arguments)


@pytest.mark.parametrize(
    ("arguments", "deliveries"),
    [
        ("", MESSAGES),
        ("--version 1.1 --ack client-individual", MESSAGES),
        ("--version 1.1 --ack client-individual --varied", MESSAGES),
        ("--varied", MESSAGES),
        ("--varied --producers 3 --consumers 3 --write-octets 1", MESSAGES),
        ("--ack client-individual --subscribe-header prefetch-count:3", MESSAGES),
        ("--ack client-individual --outstanding 1", MESSAGES),
        ("--producers 4 --consumers 4 --ack client-individual", MESSAGES),
        ("--producers 4 --consumers 4 --destinations 2 --write-octets 1", MESSAGES),
        ("--producers 3 --consumers 7 --topic", 7 * MESSAGES),
        ("--body 65536 --outstanding 20", MESSAGES),
        ("--body 36", MESSAGES),
        ("--messages 1", 1),
        ("--messages 3 --producers 4 --consumers 4", 3),
    ],
)
def test_all_messages_come(broker: RunningBroker, arguments: str, deliveries: int) -> None:
    report = load(broker.port, *arguments.split())
    assert report["deliveries"] == deliveries
    assert report["per_second"] == pytest.approx(deliveries / report["seconds"], rel=0.05)
    latency = report["latency_us"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["p99.9"] <= latency["max"]
    assert "receipt_us" not in report
    assert report["generator_cpu_s"] >= 0


def heads_in(broker: RunningBroker, *arguments: str) -> list[dict[str, str]]:
    """Return the headers of five messages of the generator, as a consumer gets them."""
    queue = f"/queue/heads-{next(numbers)}"
    load(broker.port, "--phase", "fill", "--messages", "5", "--destination", queue, *arguments)
    with broker.client() as client:
        client.subscribe(queue)
        return [dict(frame.headers) for frame in client.receive_many(5)]


#: The headers of the broker itself differ in any case.
OF_THE_BROKER = {"message-id", "subscription"}


def test_varied_heads_are_those_of_an_application(broker: RunningBroker) -> None:
    heads = heads_in(broker, "--varied")
    usual = {"content-type", "priority", "expires", "reply-to", "type", "traceparent"}
    own = {"correlation-id", "sent-at"}
    assert heads[0].keys() - OF_THE_BROKER == {"destination", "content-length"} | usual | own
    for name in ("correlation-id", "traceparent"):
        assert len({head[name] for head in heads}) == 5
    for head in heads:
        assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", head["traceparent"])
        assert 3_500 < int(head["expires"]) / 1_000 - time.time() < 3_700


def test_other_heads_are_equal_and_short(broker: RunningBroker) -> None:
    first, *others = ({k: v for k, v in head.items() if k not in OF_THE_BROKER}
                      for head in heads_in(broker))  # fmt: skip
    assert first.keys() == {"destination", "content-length"}
    assert others == [first] * 4


def test_frames_are_written_together_or_one_by_one(broker: RunningBroker) -> None:
    together = load(broker.port, "--ack", "client-individual")
    single = load(broker.port, "--ack", "client-individual", "--write-octets", "1")
    assert together["writes"] < MESSAGES
    # A SEND and an ACK for each.
    assert single["writes"] >= 2 * MESSAGES


@pytest.mark.parametrize("window", ["1", "7", "1000"])
def test_each_message_has_its_receipt(broker: RunningBroker, window: str) -> None:
    report = load(broker.port, "--window", window, "--producers", "2")
    assert report["deliveries"] == MESSAGES
    assert 0 < report["receipt_us"]["p50"] <= report["receipt_us"]["max"]


def test_messages_are_sent_at_a_rate_and_not_before_their_time(broker: RunningBroker) -> None:
    report = load(broker.port, "--rate", "1000", "--producers", "2", "--messages", "300")
    assert report["deliveries"] == 300
    assert report["seconds"] >= 0.299


@pytest.mark.parametrize("window", ["0", "10"])
def test_a_queue_that_is_filled_is_drained_later(broker: RunningBroker, window: str) -> None:
    name = ("--destination", f"/queue/filled-{window}", "--producers", "2")
    filled = load(broker.port, "--phase", "fill", "--window", window, *name)
    assert filled["deliveries"] == 0
    assert ("receipt_us" in filled) == (window != "0")
    drained = load(broker.port, "--phase", "drain", "--ack", "client-individual", *name)
    assert drained["deliveries"] == MESSAGES


def test_connections_come_and_go(broker: RunningBroker) -> None:
    given = ("--port", str(broker.port), "--destination", "/queue/churn", "--messages", "50")
    report = run("churn", *given, "--parallel", "4")
    assert report["messages"] == 50
    assert 0 < report["latency_us"]["p50"]
    drained = run("stomp", *given, "--phase", "drain", "--producers", "4", "--unordered")
    assert drained["deliveries"] == 50
    assert 0 < drained["first_s"] <= drained["seconds"]


def test_more_producers_than_messages_are_no_obstacle(broker: RunningBroker) -> None:
    report = run("churn", "--port", str(broker.port), "--messages", "2", "--parallel", "4")
    assert report["messages"] == 2


@pytest.mark.matrix
def test_connections_are_held_until_somebody_has_looked(broker: RunningBroker) -> None:
    given = ("--port", str(broker.port), "--messages", "40", "--parallel", "16")
    with broker.client() as other, held(*given) as report:
        assert report["messages"] == 40
        other.send("/queue/held", b"x")  # other clients are still served
    assert report["per_second"] == pytest.approx(40 / report["seconds"], rel=0.05)


def test_connections_that_open_too_slowly_become_fewer(broker: RunningBroker) -> None:
    given = ("--port", str(broker.port), "--messages", "1000000", "--parallel", "2")
    with held(*given, "--most", "0.05") as report:
        assert 1 <= report["messages"] < 1_000_000


def is_closed_by(port: int) -> bool:
    """Return True if a server has closed a connection that its client has not closed."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[2:4] == [f"0100007F:{port:04X}", "08"] for line in lines)


def test_an_idle_connection_that_is_closed_is_told() -> None:
    with (
        ScriptedServer(connected) as server,
        pytest.raises(GeneratorError, match="has closed"),
        held("--port", str(server.port), "--messages", "1"),
    ):
        assert wait_until(lambda: is_closed_by(server.port), 30)


def test_an_idle_connection_that_is_sent_something_is_told() -> None:
    def talkative(line: Line) -> None:
        line.frame()
        line.send(b"CONNECTED\nversion:1.2\n\n\0MESSAGE\nmessage-id:1\n\n\0")
        line.hold()

    with (
        ScriptedServer(talkative) as server,
        pytest.raises(GeneratorError, match="MESSAGE came"),
        held("--port", str(server.port), "--messages", "1"),
    ):
        pytest.fail("nothing is open")


def test_idle_connections_that_are_not_answered_are_told() -> None:
    given = ("--messages", "1", "--timeout", "0.1")
    with (
        ScriptedServer(Line.hold) as server,
        pytest.raises(GeneratorError, match="not answered"),
        held("--port", str(server.port), *given),
    ):
        pytest.fail("nothing is open")


@pytest.mark.matrix
@pytest.mark.parametrize("mode", ["run", "held"])
def test_a_run_that_takes_too_long_is_ended(mode: str) -> None:
    with (
        ScriptedServer(Line.hold) as server,
        pytest.raises(GeneratorError, match=re.escape("it has taken more than 0.2 s")),
    ):
        if mode == "run":
            run("stomp", "--port", str(server.port), most_s=0.2)
        else:
            with held("--port", str(server.port), most_s=0.2):
                pytest.fail("nothing is open")


# Faults to be detected.


def is_fifth(frame: Raw) -> bool:
    """Return True for the message to which the fault is applied."""
    return frame.command == b"MESSAGE" and FIFTH in frame.body


class Harmless(Fault):
    """Changes nothing."""


class Loses(Fault):
    """Loses a message."""

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        """Return all but one."""
        return [] if is_fifth(frame) else [frame]


class LosesTheLast(Fault):
    """Loses the last message."""

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        """Return all but one."""
        return [] if b" %010d " % (MESSAGES - 1) in frame.body else [frame]


class Doubles(Fault):
    """Delivers a message twice."""

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        """Return one of them twice."""
        return [frame] * (1 + is_fifth(frame))


class Swaps(Fault):
    """Delivers a message after the next one."""

    held: Raw | None = None

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        """Return one of them after the next message."""
        if frame.command != b"MESSAGE":
            # Other data, such as the line end after the NUL.
            return [frame]
        if is_fifth(frame):
            self.held = frame
            return []
        held, self.held = self.held, None
        return [frame] if held is None else [frame, held]


class Spoils(Fault):
    """Changes the last byte of a body."""

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        """Return one of them changed."""
        if is_fifth(frame):
            frame.body = frame.body[:-1] + b"!"
        yield frame


class Shortens(Fault):
    """Removes the last byte of a body."""

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        """Return one of them shortened."""
        if is_fifth(frame):
            frame.put_body(frame.body[:-1])
        yield frame


class Invents(Fault):
    """Changes a message to one that was never sent."""

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        """Return one of them changed."""
        if is_fifth(frame):
            frame.body = frame.body.replace(FIFTH, b" 9999999999 ")
        yield frame


class Miscounts(Fault):
    """Sends a content-length that is too large."""

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        """Return one of them with another header."""
        if is_fifth(frame):
            frame.put("content-length", str(len(frame.body) + 1))
        yield frame


class Confirms(Fault):
    """Sends a RECEIPT twice."""

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        """Return one of them twice."""
        return [frame] * (1 + (frame.get("receipt-id") == "0000000005"))


class ConfirmsNothing(Fault):
    """Sends a RECEIPT that was not requested."""

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        """Return one of them changed."""
        if frame.get("receipt-id") == "0000000005":
            frame.put("receipt-id", "other")
        yield frame


class Leaves(Fault):
    """Closes the connection at DISCONNECT without its RECEIPT, as Artemis can do."""

    is_leaving = False

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Notice DISCONNECT."""
        self.is_leaving = frame.command == b"DISCONNECT"
        yield frame

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        """Return nothing after DISCONNECT."""
        return [] if self.is_leaving else [frame]


class Refuses(Fault):
    """Answers ERROR."""

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        """Return an ERROR for one of them."""
        return [Raw(b"ERROR", [b"message:no more"], b"why")] if is_fifth(frame) else [frame]


class Leads(Fault):
    """Delivers messages of another queue."""

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Return all of them for the first queue."""
        if frame.command == b"SEND":
            frame.put("destination", re.sub("1$", "0", frame.get("destination") or ""))
        yield frame


def test_where_order_does_not_matter_a_duplicate_does(broker: RunningBroker) -> None:
    with ScriptedServer(behind(Swaps, broker.host, broker.port)) as server:
        assert load(server.port, "--unordered")["deliveries"] == MESSAGES
    assert "a duplicate" in message_of(broker, Doubles, "--unordered")


def message_of(broker: RunningBroker, fault: type[Fault], *arguments: str) -> str:
    """Return the generator's error for a broker with a fault."""
    with ScriptedServer(behind(fault, broker.host, broker.port)) as server:
        with pytest.raises(GeneratorError) as caught:
            load(server.port, *arguments)
        return str(caught.value)


def test_a_proxy_alone_makes_no_difference(broker: RunningBroker) -> None:
    with ScriptedServer(behind(Harmless, broker.host, broker.port)) as server:
        assert load(server.port, "--window", "100")["deliveries"] == MESSAGES


@pytest.mark.parametrize("shape", ["", "--topic --consumers 2", "--ack client-individual"])
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Loses, f"1 of {MESSAGES} messages of producer 0 to .* are lost, or late: the .* number 5"),
        (Doubles, "got message 5 of producer 0, which had been delivered: a duplicate"),
        (Swaps, "got message 5 of producer 0 after number 6: out of order"),
        (Spoils, "got a wrong body: that of message 5 of producer 0 is spoilt"),
        (Shortens, "got a wrong body: 99 octets, not 100"),
        (Invents, "got a wrong body, which begins with 0000 9999999999 "),
        (Miscounts, "a frame has no NUL where its content-length of 101 says"),
        (Refuses, "the broker answers ERROR: no more; why"),
    ],
)
def test_a_fault_is_told(broker: RunningBroker, fault: type[Fault], told: str, shape: str) -> None:
    assert re.search(told, message_of(broker, fault, *shape.split()))


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Confirms, "got a receipt for message 5 that it has not asked for, or has got before"),
        (ConfirmsNothing, "a RECEIPT came for other, which nobody asked for"),
    ],
)
def test_a_wrong_receipt_is_told(broker: RunningBroker, fault: type[Fault], told: str) -> None:
    assert told in message_of(broker, fault, "--window", "100")


def test_a_message_for_another_queue_is_told(broker: RunningBroker) -> None:
    arguments = ("--producers", "2", "--consumers", "2", "--destinations", "2")
    assert ", which was sent elsewhere" in message_of(broker, Leads, *arguments)


def test_a_last_message_that_never_comes_is_told(broker: RunningBroker) -> None:
    message = message_of(broker, LosesTheLast, "--timeout", "5")
    assert f"are lost, or late: the first is number {MESSAGES - 1}" in message


def test_a_broker_that_delivers_nothing_is_told() -> None:
    with ScriptedServer(receipts) as server, pytest.raises(GeneratorError, match="are lost"):
        load(server.port, "--timeout", "1")


def test_a_broker_that_does_not_confirm_is_told() -> None:
    def silent(line: Line) -> None:
        connected(line)
        line.hold()

    with ScriptedServer(silent) as server, pytest.raises(GeneratorError, match="not all receipts"):
        load(server.port, "--phase", "fill", "--window", "1", "--timeout", "1")


def test_a_broker_that_does_not_answer_is_told() -> None:
    with ScriptedServer(Line.hold) as server, pytest.raises(GeneratorError, match="not answered"):
        load(server.port, "--timeout", "1")


def test_a_broker_that_closes_is_told() -> None:
    with ScriptedServer(connected) as server, pytest.raises(GeneratorError, match="has closed"):
        load(server.port)


def test_a_consumer_that_has_all_may_leave_without_a_receipt(broker: RunningBroker) -> None:
    queue = f"/queue/leaving-{next(numbers)}"
    load(broker.port, "--phase", "fill", "--destination", queue)
    with ScriptedServer(behind(Leaves, broker.host, broker.port)) as server:
        report = load(server.port, "--phase", "drain", "--destination", queue)
    assert report["deliveries"] == MESSAGES


def test_a_producer_needs_the_receipt_of_its_disconnect(broker: RunningBroker) -> None:
    message = message_of(broker, Leaves, "--phase", "fill")
    assert "the broker has closed the connection of producer 0" in message


def test_nobody_who_listens_is_told(unused_port: int) -> None:
    with pytest.raises(GeneratorError, match=f"port {unused_port} cannot be connected to"):
        load(unused_port)


@pytest.fixture
def unused_port() -> int:
    """Return a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("stomp --body 35", "35 is not a whole number from 36 to"),
        ("stomp --messages x", "x is not a whole number"),
        ("stomp --phase middle", "--phase is both, fill or drain, not middle"),
        ("stomp --topic --destinations 2", "--topic has one destination"),
        ("stomp --consumers 2 --destinations 2", "needs a producer"),
        ("stomp --timeout 0", "--timeout is a number of seconds above 0"),
        ("beanstalk", "beanstalk needs a --window"),
        ("smtp", "there is no mode smtp"),
        ("", "one mode is needed"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: str, told: str) -> None:
    with pytest.raises(GeneratorError, match=re.escape(told)):
        run(*arguments.split())


def test_a_machine_without_compiler_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GeneratorError, match="install a C compiler"):
        generator()


# The other protocols, and the comparison.


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        *((relay, cell) for relay in ("relay-c", "relay-twisted")
          for cell in ("queue-1-1-auto", "queue-4-4-auto", "topic-1-10", "queue-1-1-auto-64k",
                       "queue-1-1-auto-single")),
        *(("beanstalkd", cell)
          for cell in ("queue-1-1-ind", "queue-4-4-ind", "persistent-1", "persistent-1000-consumer",
                       "queue-1-1-ind-64k")),
        *(("stompkit", cell)
          for cell in ("persistent-100", "persistent-100-equal", "churn", "queue-4-4-ind",
                       "queue-4-4-ind-equal", "queue-1-1-ind-single")),
        ("stompkit-postgresql", "persistent-100"),
    ],
)  # fmt: skip
def test_a_cell_runs_with_a_peer(name: str, cell: str) -> None:
    peer, chosen = PEER[name], CELL[cell]
    assert not peer.lacks(chosen)
    with Machine() as machine:
        try:
            report = machine.run(peer, chosen, MESSAGES)
        except Missing as reason:
            raise missing(str(reason)) from None
    assert report["messages"] == MESSAGES
    assert report["deliveries"] in (0, MESSAGES * (chosen.consumers if "topic" in cell else 1))
    is_filled = cell.startswith("persistent-1") and not chosen.consumers
    assert ("drain_per_second" in report) == is_filled
    assert report["broker_cpu_s"] >= 0
    assert report["others_cores"] >= 0


def test_cells_are_chosen_by_patterns() -> None:
    assert [cell.name for cell in choose(["churn", "queue-1-1-auto*"]) if cell.is_varied] == [
        "queue-1-1-auto", "queue-1-1-auto-single", "queue-1-1-auto-1k", "queue-1-1-auto-16k",
        "queue-1-1-auto-64k", "queue-1-1-auto-1m", "churn",
    ]  # fmt: skip
    assert len({cell.name for cell in CELLS}) == len(CELLS)
    with pytest.raises(ValueError, match="no cell is called nothing-"):
        choose(["churn", "nothing-*"])


def test_each_cell_with_messages_has_a_form_with_equal_heads() -> None:
    varied = [cell for cell in CELLS if cell.is_varied]
    equal = {cell.name: cell for cell in CELLS if not cell.is_varied}
    assert {cell.name for cell in varied if f"{cell.name}-equal" not in equal} == {"idle"}
    for cell in varied:
        if cell.name != "idle":
            form = equal.pop(f"{cell.name}-equal")
            assert replace(form, name=cell.name, about=cell.about, is_varied=True) == cell
    assert not equal
    assert not any(cell.is_headline for cell in CELLS if cell.name.endswith(("-equal", "-single")))


def made_run(per_second: float) -> dict[str, Any]:
    """Return a report of a run that took a second."""
    return {
        "per_second": per_second, "seconds": 1.0, "broker_cpu_s": per_second / 1e5,
        "generator_cpu_s": 0.25, "others_cores": per_second / 1e4,
        "latency_us": {"p50": per_second, "p99": 2 * per_second, "p99.9": 3 * per_second},
    }  # fmt: skip


@pytest.fixture
def results() -> list[Result]:
    """Two brokers, of which the second is half as fast, and a faulty one."""
    cell = CELL["queue-1-1-auto"]
    peers = [PEER[name] for name in ("stompkit", "activemq", "rabbitmq")]
    runs = [[1_000, 3_000, 2_000], [900, 1_000, 1_500], []]
    return [
        Result(cell, peer, [made_run(each) for each in rates], "" if rates else "it is lost")
        for peer, rates in zip(peers, runs, strict=True)
    ]


def test_a_cell_that_a_peer_cannot_do_says_why() -> None:
    for peer in PEERS:
        lacking = {cell.name: peer.lacks(cell) for cell in CELLS}
        assert not all(lacking.values()), f"{peer.name} is never measured"
    assert PEER["beanstalkd"].lacks(CELL["topic-1-10"]) == "it has no topics"
    assert PEER["coilmq"].lacks(CELL["queue-1-1-ind"])
    assert not PEER["coilmq"].lacks(CELL["queue-1-1-auto"])
    assert not any(PEER["stompkit"].lacks(cell) for cell in CELLS)


@pytest.mark.matrix
def test_a_backlog_survives_a_kill_and_is_emptied() -> None:
    # A budget of zero: the minimum number of messages.
    with Machine() as machine:
        report = machine.run_extreme(PEER["stompkit"], CELL["backlog"], 1e-9)
    assert report["messages"] == 5_000
    assert report["disk_bytes"] > 5_000 * 100
    assert report["memory_before_bytes"] > 0
    assert report["restart_s"] > 0
    assert report["drain_per_second"] > 0


def test_the_rate_is_half_of_what_the_slowest_can() -> None:
    peers: list[Peer] = [PEER["relay-c"], PEER["stompkit"], PEER["beanstalkd"]]
    with Machine() as machine:
        found = list(measure(machine, [CELL["latency-half"]], peers, 1, 0.05))
    first, second, third = found
    assert first.cell.is_varied
    assert not first.fault
    assert not second.fault
    assert first.cell == second.cell
    assert first.cell.rate >= 1
    assert f"{first.cell.rate:,} messages a second: half of what " in first.cell.about
    assert third.lacks
    assert third.runs == []


def test_a_broker_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failed broker is restarted for the next cell."""
    peers: list[Peer] = [PEER["relay-c"], PEER["stompkit"]]
    cells = [CELL["queue-1-1-auto"], CELL["queue-4-4-auto"]]
    with Machine() as machine:
        machine.start(peers[1], cells[0])
        [running] = machine._running.values()
        running.stop()
        found = list(measure(machine, cells, peers, 1, 0.05))
    assert [bool(result.fault) for result in found] == [False, True, False, False]
    assert [len(result.runs) for result in found] == [1, 0, 1, 1]


def test_a_table_has_medians_and_ratios_to_the_first(results: list[Result]) -> None:
    _, _, title, _, first, second, third = lines(results)
    assert title.startswith("queue-1-1-auto: ")
    name, *figures = first.split()
    assert (name, figures) == (
        "stompkit", ["2,000", "1,000", "3,000", "1.00", "1.000", "25%", "2,000/4,000/6,000"],
    )  # fmt: skip
    assert second.split()[:5] == ["activemq", "1,000", "900", "1,500", "0.50"]
    assert third == "  rabbitmq FAILED: it is lost"


def test_a_busy_machine_is_mentioned(results: list[Result]) -> None:
    for made in results[1].runs:
        made["others_cores"] = 0.7
    mentioned = [line for line in lines(results) if "others" in line]
    assert mentioned == [f"{'':16}meanwhile others kept 0.7 cores busy"]


def test_what_a_peer_cannot_do_is_in_the_table() -> None:
    result = Result(CELL["topic-1-10"], PEER["beanstalkd"], lacks="it has no topics")
    assert list(lines([result]))[-1].split(None, 1) == [
        "beanstalkd", "not measured: it has no topics",
    ]  # fmt: skip


def test_extremes_have_tables_of_their_own() -> None:
    report = {
        **made_run(5_000), "messages": 10_000, "memory_before_bytes": 10 << 20,
        "memory_bytes": 20 << 20, "disk_bytes": 2_000_000, "restart_s": 1.5,
        "drain_per_second": 250.0,
    }  # fmt: skip
    for kind, wanted in (
        ("backlog", "10,000 5,000 1.00 1.000 10.0 20.0 1,049 200 1.50 250"),
        ("idle", "10,000 5,000 1.00 1.000 10.0 20.0 1.0"),
    ):
        result = Result(CELL[kind], PEER["stompkit"], [report])
        row = next(line for line in lines([result]) if line.startswith("  stompkit"))
        assert row.split()[1:] == wanted.split()


def drawn(cell: str, broker: str, rate: int, *runs: float) -> dict[str, Any]:
    """Return a result as in the JSON."""
    made = {"cell": cell, "kind": CELL[cell].kind, "about": "<about>", "rate": rate}
    made["is_headline"] = CELL[cell].is_headline
    return made | {"broker": broker, "runs": [made_run(each) for each in runs]}


def shapes(svg: str, tag: str) -> list[ElementTree.Element]:
    return [each for each in ElementTree.fromstring(svg).iter() if each.tag.endswith(f"}}{tag}")]


def test_bars_show_medians_over_a_logarithmic_scale() -> None:
    cell = "queue-1-1-auto"
    svg = throughput_plot(
        [
            drawn(cell, "stompkit", 0, 100_000, 10_000, 100),
            drawn(cell, "activemq", 0, 1_000),
            drawn(cell, "rabbitmq", 0, 100_000),
            drawn(cell, "coilmq", 0, 100),
            drawn(cell, "relay-c", 0, 1_000_000),
            drawn(cell, "beanstalkd", 0),
            drawn("latency-1000", "stompkit", 1_000, 1_000),
            drawn("idle", "stompkit", 0, 1_000),
        ]
    )
    bars = [each for each in shapes(svg, "rect") if each.get("class") == "bar"]
    stompkit, activemq, rabbitmq, coilmq = (float(bar.attrib["width"]) for bar in bars)
    assert rabbitmq - stompkit == pytest.approx(stompkit - activemq, abs=0.2)
    assert stompkit - activemq == pytest.approx(activemq - coilmq, abs=0.2)


def test_the_picture_is_of_the_headline_unless_only_other_forms_were_measured() -> None:
    names = ["queue-1-1-auto", "queue-1-1-auto-equal", "queue-1-1-auto-single"]
    results = [drawn(name, "stompkit", 0, 1_000) for name in names]
    for chosen, many in ((results, 1), (results[1:], 2)):
        bars = [each for each in shapes(throughput_plot(chosen), "rect") if each.get("class")]
        assert len(bars) == many


def test_latencies_are_dots_from_the_median_to_the_slowest() -> None:
    results = [drawn("latency-1000", "stompkit", 1_000, 10, 1_000, 100), drawn("churn", "a", 0, 9)]
    dots = shapes(latency_plot(results), "circle")
    first, second, third = (float(dot.attrib["cx"]) for dot in dots)
    assert first < second < third


def test_nothing_is_no_picture() -> None:
    for plot in (throughput_plot, latency_plot):
        with pytest.raises(ValueError, match="nothing was measured"):
            plot([])


def test_a_comparison_is_printed_and_written(tmp_path: Path) -> None:
    made = tmp_path / "made.json"
    cells = "queue-1-1-auto,topic-1-10,latency-1000,idle"
    done = programs.run(
        "__main__", "--quick", "--seconds", "0.1", "--cells", cells, "--brokers",
        "stompkit,relay-c", "--rounds", "2", "--json", str(made),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(made.read_text())["results"]
    pairs = [(each["cell"], each["broker"]) for each in found]
    assert pairs == [(cell, peer) for cell in cells.split(",") for peer in ("stompkit", "relay-c")]
    assert not any(each["fault"] for each in found)
    assert [len(each["runs"]) for each in found] == [2, 2, 2, 2, 2, 2, 1, 0]
    assert done.stdout.count("  relay-c ") == 4
    drawing = programs.run("pictures", "--brokers", str(made), "--into", str(tmp_path / "drawn"))
    assert (drawing.returncode, drawing.stderr) == (0, "")
    # The background is a rectangle, too; relays are not drawn.
    for name, tag, many in (("throughput", "rect", 3), ("latency", "circle", 3)):
        svg = (tmp_path / "drawn" / f"{name}.svg").read_text()
        assert len(shapes(svg, tag)) == many


def test_growth_is_drawn(tmp_path: Path) -> None:
    made = tmp_path / "growth.json"
    figures = {"queues_1_us": 5.0, "queues_10_us": 6.0, "queues_ratio": 1.2}
    made.write_text(json.dumps({"figures": figures}))
    done = programs.run("pictures", "--growth", str(made), "--into", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    [line] = shapes((tmp_path / "growth.svg").read_text(), "polyline")
    assert len(line.attrib["points"].split()) == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"figures": {}}'])
def test_what_cannot_be_drawn_is_refused(tmp_path: Path, text: str) -> None:
    made = tmp_path / "growth.json"
    made.write_text(text)
    done = programs.run("pictures", "--growth", str(made), "--into", str(tmp_path))
    assert done.returncode == 2
    assert not (tmp_path / "growth.svg").exists()
    assert "growth" in done.stderr
    assert "Traceback" not in done.stderr


def test_cells_and_brokers_are_listed() -> None:
    done = programs.run("__main__", "--list")
    assert done.returncode == 0
    rows = [(cell.name, cell.about) for cell in CELLS] + [(peer.name, peer.about) for peer in PEERS]
    for name, about in rows:
        assert re.search(rf"^  {re.escape(name)}  +{re.escape(about)}$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--cells queue-2-2", "no cell is called queue-2-2; --list tells them"),
        ("--brokers hornetq", "no broker is called hornetq; known: stompkit, "),
        ("--brokers hornetq:2", "no broker is called hornetq:2; known: stompkit, "),
        ("--brokers rabbitmq:new", "'rabbitmq:new': 'new' is no version; expected numbers"),
        ("--brokers coilmq:1", "'coilmq:1': only activemq, artemis, rabbitmq can be launched in a"),
        ("--brokers beanstalkd:1", "beanstalkd:1: beanstalkd has no versions to choose from"),
        ("--brokers beanstalkd --cells churn", "none of these brokers can be measured in any"),
    ],
)
def test_unknown_names_are_refused(arguments: str, told: str) -> None:
    done = programs.run("__main__", *arguments.split())
    assert done.returncode == 2
    assert told in done.stderr


def test_brokers_that_are_missing_are_left_out_unless_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    given = ("--quick", "--seconds", "0.1", "--cells", "queue-1-1-ind")
    done = programs.run("__main__", *given, "--brokers", "beanstalkd")
    assert (done.returncode, done.stdout) == (2, "")
    assert "apt-get install beanstalkd" in done.stderr
    done = programs.run("__main__", *given)
    assert done.returncode == 0
    assert "skipped: beanstalkd is not installed: apt-get install beanstalkd" in done.stderr
    assert "skipped: activemq is not installed: " in done.stderr
    assert "  stompkit " in done.stdout
