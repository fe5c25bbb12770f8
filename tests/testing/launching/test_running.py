"""Actions of tests on a running broker."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stompkit.testing import (
    BrokerError,
    BrokerStartError,
    LaunchConfig,
    RunningBroker,
    given,
    launch,
)
from stompkit.testing.client import BrokerSaidError, ClientFailureError, NothingReceivedError
from stompkit.testing.launching.launch import launch_with
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.launching.ports import is_listening
from tests.effort import in_matrix
from tests.testing.launched import (
    ANSWERING,
    CONNECTED,
    LONG_S,
    ROOT,
    VERSIONS,
    Scripted,
    kill_from_outside,
    needs_proc,
    processes_below,
    require,
    states,
)

BROKERS = [
    "stompkit",
    "coilmq",
    in_matrix("activemq"),
    in_matrix("artemis"),
    in_matrix("rabbitmq"),
    *VERSIONS,
]
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can do that")


@pytest.fixture(scope="module", params=BROKERS)
def keeping(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """A broker of each kind with persistent messages."""
    with launch(LaunchConfig(name=require(request.param), persistent=True)) as broker:
        yield broker


@pytest.fixture
def broker(keeping: RunningBroker) -> Iterator[RunningBroker]:
    """The same, repaired for the next test."""
    yield keeping
    repair(keeping)


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningBroker]:
    """A broker with a fast start and persistent messages."""
    with launch(LaunchConfig(name=require("stompkit"), persistent=True)) as broker:
        yield broker


@pytest.fixture
def quick(shared: RunningBroker) -> Iterator[RunningBroker]:
    """The same, repaired for the next test."""
    yield shared
    repair(shared)


@pytest.fixture
def own() -> Iterator[RunningBroker]:
    """A broker that no other test uses."""
    with launch(LaunchConfig(name=require("stompkit"), persistent=True)) as broker:
        yield broker


def repair(broker: RunningBroker) -> None:
    """Restart the broker if needed, and use other names for the next test."""
    if broker.is_paused or not is_listening(broker.host, broker.port):
        broker.restart(kill=True)
    broker.free_disk()
    broker.reset()


def send(broker: RunningBroker, *bodies: str) -> None:
    """Send persistent messages, and wait for their receipts."""
    with broker.client() as client:
        for body in bodies:
            client.send(broker.queue(), body, persistent="true")


def received(broker: RunningBroker, number: int) -> list[str]:
    """Return this many messages, after checking that there are no more."""
    with broker.client() as client:
        client.timeout_s = LONG_S
        client.subscribe(broker.queue())
        bodies = [frame.body.decode() for frame in client.receive_many(number)]
        client.send(broker.queue(), "last")
        assert client.receive().body == b"last"
        return bodies


def drained(broker: RunningBroker) -> list[str]:
    """Return all messages of the broker's queue."""
    with broker.client() as client:
        client.timeout_s = LONG_S
        client.subscribe(broker.queue())
        client.send(broker.queue(), "last")
        bodies = []
        while (body := client.receive().body) != b"last":
            bodies.append(body.decode())
        return bodies


# Restart and kill.


def test_persistent_messages_survive_a_restart_and_connections_do_not(
    broker: RunningBroker,
) -> None:
    send(broker, "1", "2", "3")
    before = broker.port
    with broker.client() as client:
        broker.restart()
        client.wait_closed(LONG_S)
    assert broker.port == before
    assert received(broker, 3) == ["1", "2", "3"]


def test_a_killed_broker_is_gone_until_it_is_started_again(broker: RunningBroker) -> None:
    with broker.client() as client:
        broker.kill()
        client.wait_closed(LONG_S)
    assert not is_listening(broker.host, broker.port)
    with pytest.raises(ConnectionRefusedError):
        broker.client()
    broker.kill()
    broker.restart()
    # Some brokers may lose messages: RabbitMQ forgets a queue that was just created.
    assert received(broker, 0) == []


def test_persistent_messages_survive_a_restart_by_force(own: RunningBroker) -> None:
    send(own, "1", "2", "3")
    with own.client() as client:
        own.restart(kill=True)
        client.wait_closed(LONG_S)
    assert "Received SIGTERM" not in own.log
    assert received(own, 3) == ["1", "2", "3"]


def test_messages_in_memory_are_gone_after_a_restart() -> None:
    with launch(LaunchConfig(name=require("stompkit"))) as broker:
        send(broker, "1")
        broker.restart()
        assert received(broker, 0) == []


@linux_only
def test_nobody_else_gets_the_port_of_a_killed_broker(quick: RunningBroker) -> None:
    quick.kill()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((quick.host, quick.port))
    quick.restart()
    assert received(quick, 0) == []


def test_the_log_goes_on_after_a_restart(own: RunningBroker) -> None:
    own.restart()
    own.restart(kill=True)
    assert own.log.count("listening on") == 3


def test_a_restarted_broker_is_stopped_as_any_other(own: RunningBroker) -> None:
    own.restart()
    own.stop()
    assert not is_listening(own.host, own.port)
    assert own.log.count("listening on") == 2
    assert own.directory is not None
    assert not own.directory.exists()
    own.kill()
    with pytest.raises(BrokerError, match="has been stopped"):
        own.restart()


@needs_proc
def test_nothing_is_left_of_a_restarted_broker_when_the_tests_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    program = (
        "import signal\n"
        "from stompkit.testing import LaunchConfig, launch\n"
        f"broker = launch(LaunchConfig(name={require('stompkit')!r}))\n"
        "broker.restart()\n"
        "broker.pause()\n"
        "print('paused', flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as tests:
        assert tests.stdout is not None
        assert tests.stdout.readline() == b"paused\n"
        tests.kill()
    # A process that removes the folder need not wait for the broker's end.
    assert wait_until(lambda: not processes_below(tmp_path), LONG_S), processes_below(tmp_path)
    assert wait_until(lambda: not any(tmp_path.iterdir()), LONG_S)


def test_a_broker_that_does_not_start_again_is_reported_and_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spoilt = tmp_path / "spoilt"
    program = "import os, sys\nif os.path.exists(sys.argv[3]): sys.exit('no licence')\n"
    launcher = Scripted(program + ANSWERING, CONNECTED, str(spoilt))
    with launch_with(launcher, LaunchConfig(name="scripted")) as broker:
        spoilt.touch()
        with pytest.raises(BrokerStartError, match="no licence"):
            broker.restart()
        with pytest.raises(BrokerError, match="scripted does not run"):
            broker.pause()
        spoilt.unlink()
        broker.restart()
        assert is_listening(broker.host, broker.port)
        directory = broker.directory
    assert directory is not None
    assert (directory / "broker.log").exists(), "the message had said that it is kept"


# Pause.


def test_a_paused_broker_answers_when_it_goes_on(broker: RunningBroker) -> None:
    with broker.client() as client:
        broker.pause()
        was_paused = broker.is_paused
        if sys.platform == "linux":
            assert states(broker) == {"T"}
        client.timeout_s = 0.1
        with pytest.raises(NothingReceivedError):
            client.send(broker.queue(), "1")
        # The operating system accepts connections for the broker.
        assert is_listening(broker.host, broker.port)
        broker.resume()
        assert (was_paused, broker.is_paused) == (True, False)
        assert client.next_frame(LONG_S).command == "RECEIPT"


def test_a_paused_broker_can_be_restarted(broker: RunningBroker) -> None:
    send(broker, "1")
    broker.pause()
    broker.restart()
    assert not broker.is_paused
    assert received(broker, 1) == ["1"]


def test_a_paused_broker_can_be_stopped_in_order(own: RunningBroker) -> None:
    own.pause()
    own.stop()
    assert "Received SIGTERM" in own.log
    assert not is_listening(own.host, own.port)


def test_a_broker_that_has_been_killed_can_not_be_paused(quick: RunningBroker) -> None:
    quick.kill()
    with pytest.raises(BrokerError, match="stompkit does not run"):
        quick.pause()


# A full disk.


@linux_only
def test_what_a_broker_confirms_survives_a_full_disk(broker: RunningBroker) -> None:
    """The state of the broker meanwhile differs, so it is restarted."""
    send(broker, "1")
    with broker.client() as client:
        broker.fill_disk()
        client.timeout_s = LONG_S
        # Artemis may answer before it writes: such messages are lost although they were confirmed.
        for _ in range(10 if broker.name == "artemis" else 1):
            try:
                client.send(broker.queue(), "2", persistent="true")
            except ClientFailureError:
                break
        else:
            pytest.fail("everything is confirmed that cannot be kept")
    broker.free_disk()
    broker.restart()
    try:
        send(broker, "3")
    except ClientFailureError:
        # RabbitMQ 4.3 was seen to find no queue after such an end, and to refuse messages then.
        last = broker.log.rpartition("Starting RabbitMQ")[2]
        if "Recovering 0 queues of type rabbit_classic_queue" not in last:
            raise
        return
    # RabbitMQ blocks publishers long before its disk is full. It was seen to lose confirmed
    # messages if its alarm notices nothing, as here.
    possible = [["1", "3"], *([["3"]] if broker.name == "rabbitmq" else [])]
    assert drained(broker) in possible


@linux_only
def test_stompkit_refuses_messages_while_the_disk_is_full(quick: RunningBroker) -> None:
    send(quick, "1")
    new = quick.queue("new")
    quick.fill_disk()
    for queue in (quick.queue(), new) * 3:
        with quick.client() as client, pytest.raises(BrokerSaidError) as caught:
            client.send(queue, "refused", persistent="true")
        assert caught.value.frame is not None
        assert caught.value.frame.headers["stompkit-code"] == "store-full"
    quick.free_disk()
    send(quick, "2")
    with quick.client() as client:
        client.send(new, "3", persistent="true")
    quick.restart(kill=True)
    assert received(quick, 2) == ["1", "2"]
    with quick.client() as client:
        client.subscribe(new)
        assert client.receive().body == b"3"


@linux_only
def test_a_broker_that_is_started_again_finds_an_empty_disk(quick: RunningBroker) -> None:
    quick.fill_disk()
    quick.restart()
    send(quick, "1")
    assert received(quick, 1) == ["1"]


# An external broker.


def test_nothing_is_done_to_somebody_else_s_broker(quick: RunningBroker) -> None:
    other = given(quick.host, quick.port)
    for what in ("kill", "restart", "pause", "resume", "fill_disk", "free_disk"):
        with pytest.raises(BrokerError, match=f"given at {quick.url}: somebody else runs it"):
            getattr(other, what)()
    assert (other.is_paused, other.is_emulated, other.config) == (False, False, None)
    assert received(quick, 0) == []


def test_a_reset_gives_a_test_other_names_on_a_broker_that_goes_on(quick: RunningBroker) -> None:
    other = given(quick.host, quick.port)
    before = other.queue("a")
    with other.client() as client:
        client.send(before, "1")
        other.reset()
        assert other.queue("a") != before
        client.subscribe(before)
        assert client.receive().body == b"1"


# Names and clients.


def test_names_are_the_same_until_there_are_new_ones() -> None:
    broker, other = given("127.0.0.1", 1), given("127.0.0.1", 1)
    names = [broker.queue(), broker.queue("a"), broker.topic(), broker.topic("a")]
    assert names == [broker.queue(), broker.queue("a"), broker.topic(), broker.topic("a")]
    assert [name.rpartition("-")[2] for name in names] == ["queue", "a", "topic", "a"]
    assert [name[:7] for name in names] == ["/queue/"] * 2 + ["/topic/"] * 2
    assert set(names).isdisjoint([other.queue(), other.queue("a"), other.topic()])
    broker.new_names()
    assert set(names).isdisjoint([broker.queue(), broker.queue("a"), broker.topic()])


def test_names_follow_the_templates() -> None:
    broker = given("127.0.0.1", 1, queue_template="jms.{}.q", topic_template="t://{}")
    assert broker.queue("a").startswith("jms.")
    assert broker.queue("a").endswith("-a.q")
    assert broker.topic("a").startswith("t://")


def test_a_client_logs_in_as_the_broker_was_told() -> None:
    config = LaunchConfig(name=require("stompkit"), login="joe", passcode="s3cret")
    with launch(config) as broker:
        with broker.client("1.1", client_id="c") as client:
            assert client.version == "1.1"
        with pytest.raises(ClientFailureError):
            broker.client(passcode="wrong")


def test_a_broker_tells_what_it_was_launched_by(quick: RunningBroker) -> None:
    assert quick.config is not None
    assert (quick.config.persistent, quick.config.control) == (True, False)
    assert quick.server_address == (quick.host, quick.port)


def test_a_broker_without_frames_says_how_to_have_them(quick: RunningBroker) -> None:
    with pytest.raises(BrokerError, match=r"LaunchConfig\(frames=True\)"):
        _ = quick.frames


def test_a_broker_without_control_says_how_to_have_it(quick: RunningBroker) -> None:
    with pytest.raises(BrokerError, match=r"LaunchConfig\(control=True\)"):
        _ = quick.clock


# Frames.


@pytest.fixture
def tapped() -> Iterator[RunningBroker]:
    """A broker with recorded frames."""
    config = LaunchConfig(name=require("stompkit"), frames=True, login="joe", passcode="s3cret")
    with launch(config) as broker:
        yield broker


def test_frames_are_recorded_in_front_of_the_broker(tapped: RunningBroker) -> None:
    assert tapped.server_address[0] == tapped.host
    assert tapped.server_address[1] != tapped.port
    with tapped.client() as client:
        client.send(tapped.queue("a"), "hello")
    frame = tapped.frames.wait_for("SEND", destination=tapped.queue("a"), timeout_s=LONG_S)
    assert (frame.direction, frame.body) == ("received", b"hello")
    assert tapped.frames.find("RECEIPT")[0].direction == "sent"
    assert "s3cret" not in tapped.frames.text()


def test_a_broker_behind_its_tap_has_the_port_asked_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        config = LaunchConfig(name=require("stompkit"), frames=True, port=port)
        with pytest.raises(BrokerStartError, match=f"port {port} is in use"):
            launch(config)
    with launch(config) as broker:
        assert broker.port == port
        broker.client().close()
        broker.frames.wait_for("CONNECTED")


def test_nobody_gets_through_to_a_killed_broker(tapped: RunningBroker) -> None:
    with tapped.client() as client:
        tapped.kill()
        client.wait_closed(LONG_S)
    with pytest.raises(ConnectionRefusedError):
        tapped.client()
    before = tapped.server_address
    tapped.restart()
    assert tapped.server_address == before
    tapped.frames.clear()
    tapped.client().close()
    tapped.frames.wait_for("CONNECTED", timeout_s=LONG_S)


@needs_proc
def test_a_broker_that_ends_by_itself_ends_the_connections_behind_its_tap(
    tapped: RunningBroker,
) -> None:
    with tapped.client() as client:
        kill_from_outside(tapped)
        client.wait_closed(LONG_S)
    tapped.restart()
    tapped.client().close()


def test_a_reset_cuts_connections_and_forgets_frames(tapped: RunningBroker) -> None:
    with tapped.client() as client:
        client.send(tapped.queue(), "1")
        tapped.reset()
        client.wait_closed(LONG_S)
    assert tapped.frames.all == []


def test_frames_can_be_looked_at_when_the_broker_has_stopped(tapped: RunningBroker) -> None:
    tapped.client().close()
    tapped.stop()
    tapped.frames.wait_for("CONNECTED", timeout_s=LONG_S)
    assert not is_listening(tapped.host, tapped.port)


def test_frames_of_somebody_else_s_broker_are_recorded(quick: RunningBroker) -> None:
    with given(quick.host, quick.port, frames=True) as other:
        assert other.server_address == (quick.host, quick.port)
        with other.client() as client:
            client.send(quick.queue(), "1")
            other.frames.wait_for("SEND")
            other.reset()
            client.wait_closed(LONG_S)
    assert not is_listening(other.host, other.port)
    assert received(quick, 1) == ["1"]


def test_a_proxy_goes_with_the_broker(own: RunningBroker) -> None:
    first, second = own.proxy(seed=3), own.proxy()
    assert first.seed == 3
    with given(first.host, first.port).client() as client:
        first.drop("SEND", times=1)
        client.send(own.queue(), "lost", receipt=False)
        client.send(own.queue(), "kept")
    assert received(own, 1) == ["kept"]
    second.stop()
    own.stop()
    assert not is_listening(first.host, first.port)


# Messages that tests control.


@pytest.fixture
def told() -> Iterator[RunningBroker]:
    """A broker with a control socket."""
    config = LaunchConfig(name=require("stompkit"), control=True, persistent=True)
    with launch(config) as broker:
        yield broker


def test_a_reset_of_a_broker_under_control_leaves_nothing(told: RunningBroker) -> None:
    destination = told.queue()
    with told.client() as client:
        client.send(destination, "1")
        told.clock.advance(3600)
        told.reset()
        client.wait_closed(LONG_S)
    assert told.queue() != destination
    assert told.clock.now() == pytest.approx(time.time(), abs=LONG_S)
    with told.client() as client:
        client.subscribe(destination)
        client.receive_nothing()
    told.restart()
    with told.client() as client:
        client.subscribe(destination)
        client.receive_nothing()


def test_time_passes_for_the_broker_when_a_test_says_so(told: RunningBroker) -> None:
    before = told.clock.now()
    with told.client() as client:
        client.send(told.queue(), "1", delay="3600000")
        client.subscribe(told.queue())
        client.receive_nothing()
        told.clock.advance(3600)
        assert client.receive(LONG_S).body == b"1"
    assert told.clock.now() - before >= 3600
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(BrokerError, match=r"clock\.reset\(\) returns it"):
            told.clock.advance(wrong)


def test_a_broker_tells_what_it_has_and_who_is_there(told: RunningBroker) -> None:
    orders = told.queue("orders")
    assert orders not in told.destinations()
    with told.client("1.1") as client:
        for body in ("a", "b", "c"):
            client.send(orders, body)
        client.subscribe(orders, ack="client-individual", headers={"prefetch-count": "1"})
        client.receive()
        found = told.destinations()[orders]
        assert (found.kind, found.ready, found.in_flight, found.consumers) == ("queue", 2, 1, 1)
        (session,) = told.sessions()
        assert (session.version, session.subscriptions, session.in_flight) == ("1.1", 1, 1)
        assert session.peer == "127.0.0.1"


def test_control_is_had_again_after_a_restart(told: RunningBroker) -> None:
    told.clock.advance(1)
    told.restart(kill=True)
    told.clock.advance(1)
    told.clock.reset()
    told.kill()
    with pytest.raises(BrokerError, match="could not be asked for advance"):
        told.clock.advance(1)
    # Without an answer the clock may have moved, so a repair has to reset it.
    assert told.clock.is_moved


def test_what_the_broker_can_not_do_is_told(told: RunningBroker) -> None:
    with pytest.raises(BrokerError, match="could not do advance"):
        told.clock.advance(-1)
    told.pause()
    with pytest.raises(BrokerError, match="is paused and cannot be asked for reset"):
        told.reset()


def test_control_works_in_a_directory_with_a_long_name(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 100)
    config = LaunchConfig(name=require("stompkit"), control=True, directory=directory)
    with launch(config) as broker:
        broker.reset()
        assert (directory / "control").is_socket()


def test_a_broker_has_the_quirks_that_it_was_launched_with() -> None:
    config = LaunchConfig(name=require("stompkit"), quirks="morbidq", control=True)
    with launch(config) as broker:
        with broker.client() as client:
            assert set(client.connected) == {"session"}
            broker.reset()
            client.wait_closed(LONG_S)
        broker.restart()
        with broker.client() as client:
            assert set(client.connected) == {"session"}


def test_quirks_that_there_are_not_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    require("stompkit")
    with pytest.raises(BrokerStartError, match=r"64 \(Error: --quirk: 'nonsense' is neither") as e:
        launch(LaunchConfig(quirks="nonsense"))
    # The help of the broker is in its log, and is not shown.
    assert "--heart-beat" in e.value.attempt.log
    assert "--heart-beat" not in str(e.value)
    assert "what to try" not in str(e.value)
    with pytest.raises(
        BrokerStartError, match=r"leave out the arguments that were added: --nosuch"
    ):
        launch(LaunchConfig(arguments=("--nosuch",)))
