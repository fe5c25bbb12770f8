"""The link to a broker: order, receipts, failover, back-pressure, secrets."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from multiprocessing import get_context
from pathlib import Path
from queue import Queue

import pytest

from stompkit.client import BrokerError, ClientClosedError, LoginRefusedError
from stompkit.client.blocking import BrokerUrl, Delivery, Inbox, Link, LinkClosedError
from stompkit.frames import LocalProtocolError
from stompkit.replication.model.frames import Packet
from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.proxy import Proxy
from tests.ports import free_ports
from tests.replication.brokers import connect
from tests.server.secured import secured

#: Brokers without these features have separate tests: those of consumers, in
#: tests/replication/broker.
pytestmark = pytest.mark.stomp_requires("ack", "client-individual", "receipt")

LONG_S = 60.0


@pytest.fixture
def link(stomp_broker: RunningBroker) -> Iterator[Link]:
    with connect(stomp_broker) as link:
        yield link


def packet(body: bytes, **headers: str) -> Packet:
    return Packet(headers, body)


def bodies(inbox: Inbox, count: int) -> list[bytes]:
    """Receive *count* messages, acknowledge them and return their bodies."""
    found: list[bytes] = []
    for _ in range(count):
        delivery = inbox.get(LONG_S)
        assert delivery is not None, f"{len(found)} of {count} have come"
        found.append(delivery.body)
        delivery.ack()
    return found


def rest(inbox: Inbox) -> Iterator[Delivery]:
    """Yield the messages that arrive without a wait; the broker may have lost an earlier ack."""
    while (delivery := inbox.get(1.0)) is not None:
        yield delivery


def test_what_is_sent_arrives_in_order(link: Link, stomp_broker: RunningBroker) -> None:
    queue = stomp_broker.queue("numbers")
    inbox = link.subscribe(queue)
    numbers = [str(number).encode() for number in range(300)]
    futures = [link.send(queue, [packet(number)]) for number in numbers]
    for future in futures:
        future.result(LONG_S)
    assert bodies(inbox, 300) == numbers
    assert inbox.get(0) is None


def test_packets_of_one_call_are_confirmed_together(
    link: Link, stomp_broker: RunningBroker
) -> None:
    queue = stomp_broker.queue("parts")
    future = link.send(queue, [packet(b"1", part="1"), packet(b"2", part="2")])
    future.result(LONG_S)
    inbox = link.subscribe(queue)
    for number in ("1", "2"):
        delivery = inbox.get(LONG_S)
        assert delivery is not None
        assert (delivery.body.decode(), delivery.headers["part"]) == (number, number)
    link.send(queue, []).result(0)


def test_what_cannot_be_sent_fails_alone(link: Link, stomp_broker: RunningBroker) -> None:
    queue = stomp_broker.queue("mistakes")
    inbox = link.subscribe(queue)
    packets = [packet(b"%d" % number) for number in range(5)]
    packets[1] = packet(b"1", broken="\0")
    packets[2] = packet(b"2", broken=2)  # type: ignore[arg-type]  # what the check is for
    packets[3] = packet("3")  # type: ignore[arg-type]  # what the check is for
    # They are sent in one iteration of the link's reactor.
    futures = [link.send(queue, [each]) for each in packets]
    errors = [type(future.exception(LONG_S)) for future in futures]
    assert errors == [type(None), LocalProtocolError, TypeError, TypeError, type(None)]
    whole = link.send(queue, packets)
    assert isinstance(whole.exception(LONG_S), LocalProtocolError | TypeError)
    link.flush(LONG_S)
    assert bodies(inbox, 4) == [b"0", b"4", b"0", b"4"]


def test_packets_of_a_group_arrive_in_order_and_are_confirmed(
    link: Link, stomp_broker: RunningBroker
) -> None:
    queues = [stomp_broker.queue("even"), stomp_broker.queue("odd")]
    futures = [
        link.send(queues[number // 5 % 2], [packet(b"%d" % number)], group=str(number // 7 % 3))
        for number in range(500)
    ]
    for future in futures:
        future.result(LONG_S)
    for index, queue in enumerate(queues):
        expected = [b"%d" % number for number in range(500) if number // 5 % 2 == index]
        assert bodies(link.subscribe(queue), len(expected)) == expected


def test_a_packet_that_cannot_be_sent_fails_its_group_only(
    link: Link, stomp_broker: RunningBroker
) -> None:
    queue = stomp_broker.queue("numbers")
    bad = link.send(queue, [packet(b"1", **{"": "no name"})], group="a")
    others = [link.send(queue, [packet(b"2")], group=group) for group in ("b", "")]
    with pytest.raises(LocalProtocolError):
        bad.result(LONG_S)
    for future in others:
        future.result(LONG_S)
    assert bodies(link.subscribe(queue), 2) == [b"2", b"2"]


def test_what_is_not_acknowledged_comes_to_the_next(
    link: Link, stomp_broker: RunningBroker
) -> None:
    queue = stomp_broker.queue("unsettled")
    inbox = link.subscribe(queue, prefetch=10)
    link.send(queue, [packet(b"1"), packet(b"2")])
    first, second = inbox.get(LONG_S), inbox.get(LONG_S)
    assert first is not None
    assert second is not None
    first.ack()
    link.close()
    with connect(stomp_broker) as other:
        assert bodies(other.subscribe(queue), 1) == [b"2"]
    assert second.is_stale
    second.ack()  # harmless


def test_a_refused_message_is_delivered_again() -> None:
    """Our broker redelivers a refused message; others may drop it."""
    with launch(LaunchConfig()) as broker, connect(broker) as link:
        queue = broker.queue("refused")
        inbox = link.subscribe(queue)
        link.send(queue, [packet(b"1")])
        delivery = inbox.get(LONG_S)
        assert delivery is not None
        delivery.nack()
        assert bodies(inbox, 1) == [b"1"]


def test_without_acknowledgements_nothing_is_kept(stomp_broker: RunningBroker) -> None:
    queue = stomp_broker.queue("automatic")
    with connect(stomp_broker, receipts=False) as link:
        inbox = link.subscribe(queue, ack=False)
        link.send(queue, [packet(b"1")]).result(LONG_S)
        delivery = inbox.get(LONG_S)
        assert delivery is not None
        assert not delivery.is_stale
        delivery.ack()
    stomp_broker.frames.wait_for("DISCONNECT", timeout_s=LONG_S)
    stomp_broker.frames.expect_none("ACK")


def test_an_inbox_holds_no_more_than_is_wanted(link: Link, stomp_broker: RunningBroker) -> None:
    """Back-pressure: the broker keeps the rest."""
    queue = stomp_broker.queue("many")
    inbox = link.subscribe(queue, prefetch=10)
    for number in range(100):
        link.send(queue, [packet(str(number).encode())])
    link.flush(LONG_S)
    first = inbox.get(LONG_S)
    assert first is not None
    assert len(stomp_broker.frames.find("MESSAGE", destination=queue)) <= 10
    first.ack()
    assert len(bodies(inbox, 99)) == 99


def test_sending_waits_for_room_and_goes_on(stomp_broker: RunningBroker) -> None:
    with connect(stomp_broker, max_messages=5, max_bytes=100) as link:
        futures = [link.send(stomp_broker.queue("room"), [packet(b"x" * 60)]) for _ in range(50)]
        futures.append(link.send(stomp_broker.queue("room"), [packet(b"x" * 1000)] * 7))
        link.flush(LONG_S)
        assert all(future.done() for future in futures)


def test_the_next_host_is_taken_where_the_first_is_dead(stomp_broker: RunningBroker) -> None:
    with free_ports() as (port,), connect(stomp_broker, f"127.0.0.1:{port}") as link:
        link.wait_connected(LONG_S)
        assert link.is_connected
        link.send(stomp_broker.queue("failover"), [packet(b"1")]).result(LONG_S)


def test_what_was_sent_survives_a_lost_connection(
    stomp_broker: RunningBroker, stomp_proxy: Proxy
) -> None:
    queue = stomp_broker.queue("again")
    with connect(stomp_broker, at=[stomp_proxy]) as link:
        inbox = link.subscribe(queue)
        link.send(queue, [packet(b"1")]).result(LONG_S)
        assert bodies(inbox, 1) == [b"1"]
        stomp_proxy.disconnect()
        link.send(queue, [packet(b"2")]).result(LONG_S)
        assert b"2" in {*bodies(inbox, 1), *(delivery.body for delivery in rest(inbox))}


def test_a_refused_login_is_told_and_ends_the_link() -> None:
    with launch(LaunchConfig(login="me", passcode="right")) as broker:
        host = f"{broker.host}:{broker.port}"
        with Link([host], login="me", passcode="s3cr3t") as link:
            with pytest.raises(LinkClosedError) as refused:
                link.wait_connected(LONG_S)
            assert "s3cr3t" not in f"{refused.value} {link!r}"
            with pytest.raises(LinkClosedError):
                link.send("/queue/a", [packet(b"")]).result(LONG_S)
                link.send("/queue/a", [packet(b"")])


def test_a_refused_message_fails_its_future() -> None:
    with launch(LaunchConfig()) as broker, connect(broker) as link:
        future = link.send("nonsense without a slash", [packet(b"")])
        with pytest.raises(BrokerError):
            future.result(LONG_S)


def test_a_closed_link_takes_nothing_and_ends_its_thread(stomp_broker: RunningBroker) -> None:
    before = set(threading.enumerate())
    link = connect(stomp_broker)
    inbox = link.subscribe(stomp_broker.queue("closed"))
    link.close()
    link.close()
    with pytest.raises(LinkClosedError):
        link.send("/queue/a", [packet(b"")])
    with pytest.raises(LinkClosedError):
        inbox.get(LONG_S)
    with pytest.raises(LinkClosedError):
        link.subscribe("/queue/a")
    inbox.close()
    assert set(threading.enumerate()) == before


@pytest.fixture
def unreachable() -> Iterator[str]:
    """Address on which nothing listens."""
    with free_ports() as (port,):
        yield f"127.0.0.1:{port}"


def test_waiting_for_a_broker_that_never_comes_ends_in_time(unreachable: str) -> None:
    link = Link([unreachable])
    with pytest.raises(TimeoutError):
        link.wait_connected(0.01)
    link.send("/queue/a", [packet(b"")])
    with pytest.raises(TimeoutError, match="1 messages"):
        link.flush(0.01)
    link.close(timeout_s=0.01)


def test_messages_go_over_tls_to_whom_one_trusts(tmp_path: Path) -> None:
    with secured(tmp_path) as broker:
        url = f"stomps://{broker.host}:{broker.port}"
        with BrokerUrl.parse(f"{url}?ca={broker.authorities}").link() as link:
            inbox = link.subscribe("/queue/secrets")
            link.send("/queue/secrets", [packet(b"secret" * 50_000)]).result(LONG_S)
            assert bodies(inbox, 1) == [b"secret" * 50_000]
        with BrokerUrl.parse(url).link() as link:
            with pytest.raises(TimeoutError):
                link.wait_connected(1.0)


# Twisted still passes client certificates as pyOpenSSL objects.
@pytest.mark.filterwarnings("ignore:Passing pyOpenSSL:DeprecationWarning")
def test_a_broker_can_ask_for_a_certificate(tmp_path: Path) -> None:
    with secured(tmp_path, asks_for_certificates=True) as broker:
        endpoint = f"tls:{broker.host}:{broker.port}:trustRoots={broker.authorities}"
        with Link([f"{endpoint}:certificate={broker.client}"]) as link:
            link.wait_connected(LONG_S)
        with Link([f"{endpoint}:certificate={broker.client}:privateKey={broker.client}"]) as link:
            link.wait_connected(LONG_S)
        with Link([endpoint]) as link, pytest.raises(TimeoutError):
            link.wait_connected(1.0)


def test_the_url_of_brokers_is_read() -> None:
    url = BrokerUrl.parse("stomp://me:p%40ss@a:61614,b,[::1]:5/topic/x%20y?vhost=/v")
    assert url.hosts == ("a:61614", "b:61613", "[::1]:5")
    assert url.destination == "/topic/x y"
    assert (url.login, url.passcode, url.virtual_host, url.tls) == ("me", "p@ss", "/v", False)
    assert "p@ss" not in repr(url)
    for text in ("STOMP://a:1,b", "stomp://a:1,stomp://b", "failover:(stomp://a:1,stomp://b/)"):
        assert BrokerUrl.parse(text) == BrokerUrl.parse("stomp://a:1,b:61613")
    with pytest.raises(ValueError, match="differ in more than their hosts"):
        BrokerUrl.parse("failover:(stomp://a:1,stomps://b)")
    plain = BrokerUrl.parse("stomps://mq")
    assert (plain.hosts, plain.destination, plain.login, plain.tls) == (
        ("mq:61613",),
        "",
        None,
        True,
    )


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("mq:61613", "URL of a broker"),
        ("http://mq", "URL of a broker"),
        ("stomp://mq/a?b=1", "URL of a broker"),
        ("", "URL of a broker"),
        ("stomp://", "'' is not HOST:PORT"),
        ("stomp://mq:", "'mq:' is not HOST:PORT"),
        ("stomp://[::1", "'[::1' is not HOST:PORT"),
        ("stomp://mq:x", "'x' is not a port: 1 to 65535"),
        ("stomp://mq:0", "'0' is not a port"),
    ],
)
def test_a_url_that_is_none_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        BrokerUrl.parse(url)


@pytest.mark.parametrize("place", ["mq:x", "mq:0", "[::1", "mq/a?b=1"])
@pytest.mark.parametrize("passcode", ["s3cr3t", "s3cr3t/", "s3cr3t:1/", "s3cr3t?", "s3cr3t,"])
def test_no_refusal_of_a_url_quotes_its_passcode(place: str, passcode: str) -> None:
    with pytest.raises(ValueError, match="URL of a broker") as refused:
        BrokerUrl.parse(f"stomp://me:{passcode}@{place}")
    assert "s3cr3t" not in str(refused.value)


def test_an_inbox_holds_no_more_octets_than_are_wanted(
    link: Link, stomp_broker: RunningBroker
) -> None:
    """Large messages wait with the client, which stops reading when it has enough."""
    queue = stomp_broker.queue("large")
    for number in range(20):
        link.send(queue, [packet(bytes([number]) * 1000)])
    link.flush(LONG_S)
    inbox = link.subscribe(queue, prefetch=100, max_bytes=3000)
    first = inbox.get(LONG_S)
    assert first is not None
    assert wait_until(lambda: len(stomp_broker.frames.find("MESSAGE", destination=queue)) == 20, 30)
    # The reply to this comes after all of them.
    link.send(stomp_broker.queue("answered"), [packet(b"")]).result(LONG_S)
    assert 2000 <= inbox.size <= 4000
    first.ack()
    assert bodies(inbox, 19) == [bytes([number]) * 1000 for number in range(1, 20)]


def test_what_has_come_is_taken_at_once(link: Link, stomp_broker: RunningBroker) -> None:
    queue = stomp_broker.queue("taken")
    arrived = threading.Event()
    inbox = link.subscribe(queue, on_arrival=arrived.set)
    assert inbox.take(10) == []
    link.send(queue, [packet(str(number).encode()) for number in range(300)]).result(LONG_S)
    assert arrived.wait(LONG_S)
    found: list[Delivery] = []
    while len(found) < 300:
        taken = inbox.take(70, LONG_S)
        assert 1 <= len(taken) <= 70
        found += taken
    assert [each.body for each in found] == [str(number).encode() for number in range(300)]
    assert inbox.take(10, 0.01) == []
    inbox.ack(found)
    link.close()
    with connect(stomp_broker) as other:
        assert other.subscribe(queue).get(1.0) is None
    with pytest.raises(LinkClosedError):
        inbox.take(10, LONG_S)


def test_taking_makes_room_for_more(link: Link, stomp_broker: RunningBroker) -> None:
    queue = stomp_broker.queue("room")
    inbox = link.subscribe(queue, prefetch=20, max_bytes=500)
    for number in range(100):
        link.send(queue, [packet(str(number).encode().ljust(100))])
    found: list[bytes] = []
    while len(found) < 100:
        taken = inbox.take(15, LONG_S)
        assert taken, f"{len(found)} have come"
        inbox.ack(taken)
        found += [each.body.strip() for each in taken]
    assert found == [str(number).encode() for number in range(100)]


@pytest.mark.stomp_requires("cumulative-ack", "1.1")
def test_one_acknowledgement_of_many_is_enough_in_the_mode_client(
    link: Link, stomp_broker: RunningBroker
) -> None:
    queue = stomp_broker.queue("cumulative")
    inbox = link.subscribe(queue, ack="client")
    link.send(queue, [packet(str(number).encode()) for number in range(50)]).result(LONG_S)
    found: list[Delivery] = []
    while len(found) < 50:
        found += inbox.take(50, LONG_S)
    inbox.ack(found)
    link.close()
    assert len(stomp_broker.frames.find("ACK")) == 1
    with connect(stomp_broker) as other:
        assert other.subscribe(queue).get(1.0) is None


def test_a_message_larger_than_the_bound_of_an_inbox_arrives(
    link: Link, stomp_broker: RunningBroker
) -> None:
    queue = stomp_broker.queue("larger")
    inbox = link.subscribe(queue, max_bytes=10)
    for number in (b"1", b"2", b"3"):
        link.send(queue, [packet(number * 1000)])
    assert bodies(inbox, 3) == [b"1" * 1000, b"2" * 1000, b"3" * 1000]


def test_who_waits_for_room_can_be_told_to_stop(unreachable: str) -> None:
    link = Link([unreachable], max_messages=1)
    sent = link.send("/queue/a", [packet(b"")])
    failure: Future[None] = Future()

    def send() -> None:
        try:
            link.send("/queue/a", [packet(b"")])
        except LinkClosedError as error:
            failure.set_exception(error)

    threading.Thread(target=send, daemon=True).start()
    link.stop()
    with pytest.raises(LinkClosedError):
        failure.result(LONG_S)
    assert not sent.done(), "what was sent goes on"
    link.close(timeout_s=0.01)
    with pytest.raises(ClientClosedError):
        sent.result(0)


def test_several_threads_can_close_a_link(unreachable: str) -> None:
    link = Link([unreachable])
    threads = [
        threading.Thread(target=link.close, kwargs={"timeout_s": 0.1}, daemon=True)
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
        assert not thread.is_alive()
    link.closed.result(0)


#: Calls of a link that wait, given an inbox without messages and a future that is not done.
WAITS: dict[str, Callable[[Link, Inbox, Future[None]], object]] = {
    "close": lambda link, inbox, future: link.close(),
    "flush": lambda link, inbox, future: link.flush(),
    "subscribe": lambda link, inbox, future: link.subscribe("/queue/a", timeout_s=None),
    "result": lambda link, inbox, future: future.result(),
    "exception": lambda link, inbox, future: future.exception(LONG_S),
    "closed": lambda link, inbox, future: link.closed.result(),
    "get": lambda link, inbox, future: inbox.get(),
    "take": lambda link, inbox, future: inbox.take(9, LONG_S),
    "close of an inbox": lambda link, inbox, future: inbox.close(),
}


@pytest.mark.parametrize("call", WAITS.values(), ids=WAITS)
def test_a_callback_that_would_wait_for_ever_is_told_so(
    link: Link,
    stomp_broker: RunningBroker,
    call: Callable[[Link, Inbox, Future[None]], object],
) -> None:
    """Callbacks run in the only thread that could end the wait."""
    found: Future[str] = Future()
    is_ready = threading.Event()
    inbox = link.subscribe(stomp_broker.queue("waiting"))

    def wait(_: Future[None]) -> None:
        is_ready.wait(LONG_S)
        try:
            # The waiting callback keeps this message from being confirmed.
            call(link, inbox, link.send(stomp_broker.queue("callbacks"), [packet(b"2")]))
        except RuntimeError as error:
            found.set_result(str(error))

    stomp_broker.pause()
    link.send(stomp_broker.queue("callbacks"), [packet(b"1")]).add_done_callback(wait)
    stomp_broker.resume()
    is_ready.set()
    assert "wait in another thread" in found.result(LONG_S)


def test_a_callback_can_take_what_has_arrived(link: Link, stomp_broker: RunningBroker) -> None:
    queue = stomp_broker.queue("arrived")
    found: Future[list[bytes]] = Future()

    def take() -> None:
        if not found.done():
            assert inboxes[0].get(0) is not None
            found.set_result([each.body for each in inboxes[0].take(9, 0)])

    inboxes = [link.subscribe(queue, on_arrival=take)]
    link.send(queue, [packet(b"1")])
    assert found.result(LONG_S) == []


def test_a_subscription_whose_caller_is_interrupted_is_left(
    link: Link, stomp_broker: RunningBroker
) -> None:
    queue = stomp_broker.queue("interrupted")

    def interrupted() -> bool:
        raise KeyboardInterrupt

    link.wait_connected(LONG_S)
    stomp_broker.pause()
    with pytest.raises(KeyboardInterrupt):
        link.subscribe(queue, stop=interrupted)
    stomp_broker.resume()
    inbox = link.subscribe(queue)
    link.send(queue, [packet(b"%d" % number) for number in range(4)])
    assert bodies(inbox, 4) == [b"0", b"1", b"2", b"3"]


def test_what_was_sent_can_not_be_cancelled(link: Link, stomp_broker: RunningBroker) -> None:
    future = link.send(stomp_broker.queue("kept"), [packet(b"1")])
    assert not future.cancel()
    future.result(LONG_S)


def test_why_a_link_has_given_up_is_told() -> None:
    with launch(LaunchConfig(login="me", passcode="right")) as broker:
        host = f"{broker.host}:{broker.port}"
        with Link([host], login="me", passcode="s3cr3t") as link:
            with pytest.raises(LoginRefusedError) as refused:
                link.closed.result(LONG_S)
            assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize("passcode", ["s3cr3t/x", "s3cr3t?x", "x/s3cr3t", "x?s3cr3t"])
def test_a_passcode_that_is_not_encoded_is_not_quoted(passcode: str) -> None:
    with pytest.raises(ValueError, match="percent-encoded") as refused:
        BrokerUrl.parse(f"stomp://me:{passcode}@mq/queue/a")
    assert "s3cr3t" not in str(refused.value)


def test_who_wants_to_know_is_told_of_each_connection(
    stomp_broker: RunningBroker, stomp_proxy: Proxy
) -> None:
    """The callback runs after the subscriptions, so replies to what it sends arrive on them."""
    heard: Queue[Exception | None] = Queue()
    queue = stomp_broker.queue("told")
    with connect(
        stomp_broker,
        at=[stomp_proxy],
        on_connected=lambda: heard.put(None),
        on_disconnected=heard.put,
    ) as link:
        assert heard.get(timeout=LONG_S) is None
        inbox = link.subscribe(queue)
        stomp_proxy.disconnect()
        assert isinstance(heard.get(timeout=LONG_S), Exception)
        assert heard.get(timeout=LONG_S) is None
        link.send(queue, [packet(b"1")])
        assert bodies(inbox, 1) == [b"1"]
    assert isinstance(heard.get(timeout=LONG_S), ClientClosedError)


def test_a_fork_of_the_process_has_no_link(link: Link, stomp_broker: RunningBroker) -> None:
    queue = stomp_broker.queue("forked")
    inbox = link.subscribe(queue)
    link.send(queue, [packet(b"1")]).result(LONG_S)
    delivery = inbox.get(LONG_S)
    assert delivery is not None
    link.send(queue, [packet(b"2")]).result(LONG_S)
    calls: list[Callable[[], object]] = [
        lambda: link.send(queue, [packet(b"3")]),
        link.flush,
        link.closed.result,
        lambda: link.subscribe(queue),
        inbox.get,
        delivery.ack,
    ]

    def call_all() -> None:
        for call in calls:
            with pytest.raises(LinkClosedError, match="create another link after the fork"):
                call()
        inbox.close()
        link.close()

    child = get_context("fork").Process(target=call_all, daemon=True)
    child.start()
    child.join(LONG_S)
    assert child.exitcode == 0
    delivery.ack()
    assert bodies(inbox, 1) == [b"2"]
