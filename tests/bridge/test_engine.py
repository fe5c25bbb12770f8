"""A bridge on a network in memory: routing; and its headers, names and file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import maybeDeferred

from stompkit._commands.bridge.command import main
from stompkit.bridge import HOPS, ID, Bridge, BridgeError, load, parse
from stompkit.bridge._dialects import DIALECTS, dialect_of
from stompkit.bridge._errors import MessageDroppedError, MessageRefusedError
from stompkit.bridge._full import FullDestination
from stompkit.bridge._headers import DeliveryKey, for_sink, forwarded, hops_of, identity
from stompkit.bridge._memory import Memory
from stompkit.bridge._names import canonical, named, spelled, template_mistake
from stompkit.bridge._sender import Sender
from stompkit.bridge._settings import Site
from stompkit.bridge._status import RouteStatus
from stompkit.client import Client
from stompkit.server.interfaces import Credentials, User
from stompkit.testing.memory import MemoryBroker
from stompkit.testing.memory._network import outcome_of
from tests.client.network import Network, ScriptedEndpoint, failed, result, waits

ROOT = Path(__file__).resolve().parents[2]
OURS = DIALECTS["stompkit"]
NOW_S = 1_700_000_000.0

SITES = {"a": {"url": "stomp://a"}, "b": {"url": "stomp://b"}}
ROUTE = {"from": "a", "to": "b", "queues": "/queue/orders"}


# Sending.


def sending(broker: ScriptedEndpoint, net: Network) -> tuple[Sender, Client]:
    senders: list[Sender] = []
    client = net.connected(broker, on_disconnected=lambda why: senders[0].disconnected(why))
    status = RouteStatus(name="r", source="a", to="b", destinations=[])
    senders.append(Sender(client, net.clock, float, FullDestination(status)))
    return senders[0], client


def test_messages_are_sent_in_order_and_confirmed_each() -> None:
    net = Network()
    broker = net.scripted()
    sender, _ = sending(broker, net)
    done = [sender.send("/queue/a", b"%d" % n, {"n": str(n)}) for n in range(3)]
    net.run()
    frames = broker.peer.take("SEND")
    assert [frame.body for frame in frames] == [b"0", b"1", b"2"]
    broker.peer.confirm(frames[1])
    net.run()
    assert [waits(each) for each in done] == [True, False, True]
    assert sender.count == 2


def test_an_error_that_names_a_message_refuses_that_alone() -> None:
    net = Network()
    broker = net.scripted()
    sender, _ = sending(broker, net)
    done = [sender.send("/queue/a", b"%d" % n, {}) for n in range(3)]
    net.run()
    broker.peer.refuse(broker.peer.take("SEND")[1], "too large")
    broker.obliging = True
    net.advance(60)
    assert "too large" in str(failed(done[1], MessageRefusedError))
    assert [outcome_of(done[0]), outcome_of(done[2])] == [None, None]


def test_an_error_that_names_nothing_is_held_against_who_is_alone_when_it_comes() -> None:
    net = Network()
    broker = net.scripted()
    sender, _ = sending(broker, net)
    done = [sender.send("/queue/a", b"%d" % n, {}) for n in range(4)]
    for _ in range(40):
        net.advance(5)
        for frame in broker.peer.take("SEND"):
            if frame.body == b"2":
                broker.peer.refuse(message="poison")
                break
            if len(broker.peers) > 1:
                broker.peer.confirm(frame)
    assert "poison" in str(failed(done[2], MessageRefusedError))
    for number in (0, 1, 3):
        result(done[number])
    assert sender.count == 0


@pytest.mark.parametrize("code", ["queue-full", "store-full", "store-failed"])
def test_a_broker_without_room_refuses_nothing_and_gets_all_in_order_later(code: str) -> None:
    net = Network()
    broker = net.scripted()
    sender, _ = sending(broker, net)
    done = [sender.send("/queue/a", b"%d" % n, {}) for n in range(4)]
    accepted: list[bytes] = []
    for attempt in range(30):
        net.advance(5)
        for frame in broker.peer.take("SEND"):
            if frame.body == b"2" and attempt < 10:
                broker.peer.refuse(frame, code=code)
                break
            broker.peer.confirm(frame)
            accepted.append(frame.body)
    assert accepted == [b"0", b"1", b"2", b"3"]
    assert [result(each) for each in done] == [None] * 4
    assert sender.count == 0


def test_what_is_dropped_is_not_sent_again() -> None:
    net = Network()
    broker = net.scripted()
    sender, _ = sending(broker, net)
    done = sender.send("/queue/a", b"x", {})
    net.run()
    broker.peer.drop()
    sender.drop()
    failed(done, MessageDroppedError)
    net.advance(60)
    assert broker.peer.take("SEND") == []
    assert sender.count == 0


# States.


@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("buffered", [False, True])
def test_a_route_says_which_broker_refuses_it(tmp_path: Path, side: str, buffered: bool) -> None:  # noqa: FBT001
    net = Network()
    endpoints = {name: net.scripted(None) if name == side else net.broker() for name in "ab"}
    refusing = endpoints[side]
    assert isinstance(refusing, ScriptedEndpoint)
    route = {**ROUTE, "buffer": str(tmp_path / "buffer")} if buffered else ROUTE
    bridge = Bridge(
        parse({"sites": SITES, "routes": [route]}),
        make_client=lambda site, **more: Client([endpoints[site.name]], reactor=net.clock, **more),
        clock=net.clock,
        run_in_thread=maybeDeferred,
    )
    bridge.start()
    net.run()
    headers = {"message": "Bad CONNECT"}
    refusing.peer.send("ERROR", headers, b"Virtual host 'x' access denied")
    net.run()
    assert bridge.status().routes[0].problem == (
        f"{side} at {side}:61613: Bad CONNECT: Virtual host 'x' access denied."
        " Add ?vhost=NAME to its URL"
    )
    bridge.stop()
    net.advance(60)


def test_a_route_waits_until_the_destination_accepts_the_login(tmp_path: Path) -> None:
    net = Network()
    accepts = False

    class Sometimes:
        """An authenticator."""

        def authenticate(self, _: Credentials, answer: Callable[[User | None], None]) -> None:
            """Accept or refuse."""
            answer(User("bridge") if accepts else None)

    there = MemoryBroker(clock=net.clock, authenticator=Sometimes())
    endpoints = {"a": net.broker(), "b": net.broker(there)}

    def make(site: Site, **settings: Any) -> Client:
        return Client([endpoints[site.name]], reactor=net.clock, **settings)

    bridge = Bridge(
        parse({"sites": SITES, "routes": [{**ROUTE, "buffer": str(tmp_path / "buffer")}]}),
        make_client=make,
        clock=net.clock,
        run_in_thread=maybeDeferred,
    )

    def states(count: int) -> list[str]:
        found: list[str] = []
        for _ in range(count):
            net.advance(0.25)
            found.append(bridge.status().routes[0].state)
        return found

    bridge.start()
    assert set(states(100)[1:]) == {"waiting"}
    assert "login" in bridge.status().routes[0].problem
    accepts = True
    assert states(100)[-1] == "running"
    assert not bridge.status().routes[0].problem
    bridge.stop()
    net.advance(1)


def test_a_route_reads_little_beyond_its_window_though_the_source_ignores_that() -> None:
    net = Network()
    endpoints = {name: net.scripted() for name in "ab"}
    endpoints["a"].obliging = True  # only what is awaited keeps a full client reading
    bridge = Bridge(
        parse({"sites": SITES, "routes": [{**ROUTE, "window": 5}]}),
        make_client=lambda site, **more: Client([endpoints[site.name]], reactor=net.clock, **more),
        clock=net.clock,
        run_in_thread=maybeDeferred,
    )
    bridge.start()
    net.run()
    source = endpoints["a"].peer
    (subscribe,) = source.take("SUBSCRIBE")
    for number in range(100):
        source.message(subscribe, number=number)
        net.run()
    assert len(endpoints["b"].peer.take("SEND")) == 5
    assert source.transport.incoming.count(b"\0") >= 85
    bridge.stop()
    net.advance(60)


# Headers.


def test_what_belongs_to_a_delivery_is_taken_away_and_all_else_kept() -> None:
    found = forwarded(
        {
            "message-id": "m1",
            "subscription": "1",
            "ack": "x",
            "redelivered": "true",
            "destination": "/queue/a",
            "content-length": "3",
            "content-type": "text/plain",
            "correlation-id": "c",
            "colour": "blue",
            "priority": "7",
            "persistent": "false",
            "timestamp": "17",
        },
        "a",
        DIALECTS["activemq"],
        NOW_S,
        persistent=True,
    )
    assert found == {
        "content-type": "text/plain",
        "correlation-id": "c",
        "colour": "blue",
        "priority": "7",
        "persistent": "false",
        ID: "a:m1",
        HOPS: "a",
    }


@pytest.mark.parametrize("name", ["", "transaction", "receipt", HOPS, ID])
@pytest.mark.parametrize("pad", ["{} ", " {}", "\t{}", "\x01{}\r", "\u00a0{}", "\x01\u00a0{}"])
def test_names_that_a_broker_may_trim_to_others_are_not_forwarded(name: str, pad: str) -> None:
    found = forwarded({pad.format(name): "forged", " a ": "b"}, "a", OURS, NOW_S, persistent=False)
    assert "forged" not in found.values()
    assert found[" a "] == "b"


def test_expiry_is_a_time_on_the_way_and_what_each_broker_takes_at_the_end() -> None:
    at = forwarded({"expiration": "5000"}, "a", OURS, NOW_S, persistent=False)
    assert at["expires"] == str(round(NOW_S * 1000) + 5000)
    assert for_sink(at, OURS, NOW_S)["expires"] == at["expires"]
    left = for_sink(at, DIALECTS["rabbitmq"], NOW_S + 3)
    assert (left["expiration"], "expires" in left) == ("2000", False)
    assert for_sink(at, DIALECTS["rabbitmq"], NOW_S + 9)["expiration"] == "1"
    assert "expires" not in forwarded({"expires": "0"}, "a", OURS, NOW_S, persistent=False)


def test_the_id_stays_the_same_over_all_hops() -> None:
    first = forwarded({"message-id": "m", "event-id": "e"}, "a", OURS, NOW_S, persistent=True)
    second = forwarded({**first, "message-id": "n"}, "b", OURS, NOW_S, persistent=True)
    assert first[ID] == second[ID] == "a:e"
    assert second[HOPS] == "a,b"
    assert identity({"message-id": "m"}, "a") == "a:m"
    assert identity({}, "a") == ""
    assert len(identity({"message-id": "m" * 10_000}, "a")) < 100


def test_the_broker_says_what_it_is() -> None:
    assert dialect_of("auto", {"server": "RabbitMQ/3.10.8"}).name == "rabbitmq"
    assert dialect_of("auto", {"server": "ActiveMQ/5.17.2"}).name == "activemq"
    assert not dialect_of("auto", {"server": "CoilMQ"}).durable
    assert dialect_of("artemis", {}).name == "artemis"


def flooded(routes: list[tuple[str, str]], start: str, most: int) -> Counter[str]:
    """Return how many times each site gets a message of a topic, hop by hop, as in a session."""
    waiting: list[tuple[str, dict[str, str]]] = [(start, {"message-id": "m"})]
    reached = Counter[str]()
    while waiting:
        at, headers = waiting.pop()
        reached[at] += 1
        assert reached.total() < 5000
        hops = hops_of(headers)
        assert at not in hops
        assert max(Counter(hops).values(), default=1) == 1
        assert len(hops) <= most
        for source, to in routes:
            if source == at and to not in hops and len(hops) < most:
                waiting.append((to, forwarded(headers, at, OURS, NOW_S, persistent=True)))
    return reached


@given(st.data())
def test_whatever_the_routes_no_message_returns_to_a_site_and_all_is_over(
    data: st.DataObject,
) -> None:
    sites = [f"s{n}" for n in range(data.draw(st.integers(2, 6)))]
    pairs = [(a, b) for a in sites for b in sites if a != b]
    routes = data.draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1))
    most = data.draw(st.integers(1, 6))
    start = data.draw(st.sampled_from(sites))
    reached = flooded(routes, start, most)
    near, edge = {start}, {start}
    for _ in range(most):
        edge = {b for a, b in routes if a in edge} - near
        near |= edge
    assert set(reached) == near  # every reachable destination receives it
    if most == 1:
        assert set(reached.values()) == {1}


@pytest.mark.parametrize(("most", "copies"), [(8, 2), (1, 1)])
def test_a_message_arrives_once_for_each_path(most: int, copies: int) -> None:
    triangle = [(a, b) for a in "abc" for b in "abc" if a != b]
    assert flooded(triangle, "a", most) == {"a": 1, "b": copies, "c": copies}
    star = [(a, b) for a, b in triangle if "a" in (a, b)]
    assert flooded(star, "a", most) == {"a": 1, "b": 1, "c": 1}


def test_memory_forgets_the_oldest() -> None:
    memory = Memory(2)
    keys = [DeliveryKey(name) for name in ("a", "b", "c", "")]
    for key in keys:
        memory.add(key)
    assert [key in memory for key in keys] == [False, True, True, False]


# Names.


def test_names_are_spelled_as_each_site_does() -> None:
    prefixes = {"/queue/": "jms.queue.", "/topic/": "jms.topic."}
    assert spelled("/queue/a.b", prefixes) == "jms.queue.a.b"
    assert canonical("jms.topic.c", prefixes) == "/topic/c"
    assert canonical("/queue/a", {}) == spelled("/queue/a", {}) == "/queue/a"
    assert named("/queue/{site}.{name}", "/topic/a.b", "s") == "/queue/s.a.b"
    assert named("{kind}x", "/topic/a", "s") == "/topic/x"
    assert template_mistake("/queue/{nam}")
    assert template_mistake("/queue/{name!r}")
    assert template_mistake("/queue/{name")
    assert not template_mistake("{destination}")


# The file.


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"naem": "x"}, "naem: unknown; did you mean name?"),
        ({"sites": {"a": {"url": "http://x"}}}, "[sites.a] url: the URL of a broker"),
        ({"sites": {**SITES, "c": {"url": "stomp://c", "dialect": "x"}}}, "[sites.c] dialect"),
        ({"sites": {**SITES, "c": {"url": "env:STOMPKIT_NONE"}}}, "no STOMPKIT_NONE"),
        ({"sites": {**SITES, "c d": {"url": "stomp://c"}}}, "[sites.c d]: a name is"),
        ({"routes": []}, "[[routes]]: missing"),
        ({"routes": [{**ROUTE, "windo": 1}]}, "[[routes]] #1 windo: unknown; did you mean window"),
        ({"routes": [{**ROUTE, "window": 0}]}, "[[routes]] #1 window: must be a whole number"),
        ({"routes": [{**ROUTE, "window": True}]}, "[[routes]] #1 window: must be a whole number"),
        ({"routes": [{**ROUTE, "to": "c"}]}, "there is no site c; there are: a, b"),
        ({"routes": [{**ROUTE, "to": "a"}]}, "from and to are the same site"),
        ({"routes": [{**ROUTE, "queues": "/topic/x"}]}, "/topic/x is no queue"),
        ({"routes": [{**ROUTE, "queues": []}]}, "names no destination"),
        ({"routes": [{**ROUTE, "both-ways": True}]}, "moved there and back"),
        ({"routes": [{**ROUTE, "destination": "{x}"}]}, "no field of a template"),
        ({"routes": [ROUTE, {**ROUTE, "name": "route1"}]}, "two are called route1"),
        ({"routes": ["x"]}, "[[routes]] #1: must be a table"),
        ({"metrics": "x"}, "metrics: 'x' is not HOST:PORT"),
    ],
)
def test_mistakes_in_a_file_are_told_with_their_place(
    change: dict[str, object], complaint: str
) -> None:
    with pytest.raises(BridgeError) as caught:
        parse({"sites": SITES, "routes": [ROUTE], **change})
    assert complaint in str(caught.value)


def test_the_example_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BERLIN", "PARIS", "HEAD"):
        monkeypatch.setenv(f"{name}_URL", f"stomp://me:s3cr3t@{name.lower()}")
    settings = load(ROOT / "examples" / "bridge" / "sites.toml")
    assert [leg.name for leg in settings.legs] == [
        "up-berlin-head",
        "up-paris-head",
        "down-head-berlin",
        "down-head-paris",
    ]
    assert settings.legs[0].buffer == Path("buffer/up-berlin-head")
    assert "s3cr3t" not in repr(settings)


def test_the_guide_shows_the_example() -> None:
    example = (ROOT / "examples" / "bridge" / "sites.toml").read_text()
    shown = (ROOT / "docs" / "howto" / "bridge.rst").read_text()
    assert (
        "".join(f"    {line}" if line.strip() else line for line in example.splitlines(True))
        in shown
    )


# The command.


def test_the_command_checks_what_it_is_given(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["--from", "stomp://a", "--to", "stomp://b", "--queue", "o", "--check"]) == 0
    assert capsys.readouterr().out == "route: /queue/o of a-61613 to b-61613\n"
    for arguments, complaint in (
        ([], "--config FILE is missing"),
        (["--from", "stomp://a", "--queue", "o"], "needed both"),
        (["--from", "stomp://a", "--to", "stomp://a", "--queue", "o"], "both sites are called"),
        (["--from", "stomp://x:s3cr3t@", "--to", "stomp://a", "--queue", "o"], "HOST:PORT"),
        (["--config", str(tmp_path / "none")], "No such file"),
        (["--status"], "--status needs"),
    ):
        assert main(arguments) == 2
        errors = capsys.readouterr().err
        assert complaint in errors
        assert "s3cr3t" not in errors
    assert main(["--status", "--status-file", str(tmp_path / "none")]) == 1
