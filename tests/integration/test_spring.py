"""A Spring application whose STOMP relay is connected to the broker, and Spring's STOMP clients.

The application is in ``spring``, with the pages that talk to it; docs/howto/spring.rst has the
table of these scenarios. All tests share two Java virtual machines, each with an instance of the
application, and one broker. Tests that break a broker or need other settings use separate ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from stompkit.frames import Frame
from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing.launching.polling import wait_until
from tests.integration.spring.application import (
    DEADLINE_S,
    Instance,
    SpringClient,
    SpringError,
    SpringProcess,
    build,
)
from tests.integration.spring.browser import TRANSPORTS, Browser
from tests.maven import BuildMissing
from tests.optional import report_missing
from tests.ports import free_ports
from tests.server.certificates import Authority

pytestmark = pytest.mark.matrix

#: RabbitMQ's names, for which most such applications are written, are also supported.
SETTINGS = '[broker]\ndialect = "rabbitmq"\n'
#: An application with all rights, and pages that may subscribe to topics.
RIGHTS = """
[[rights]]
destination = ">"
users = ["shop"]
allow = ["create", "read", "write"]

[[rights]]
destination = "/topic/>"
users = ["pages"]
allow = ["create", "read"]
"""
#: A text that any split cuts within a character.
LARGE = "ä€\U0001f680" * 60_000

Brokers = Callable[..., RunningBroker]
Pages = Callable[..., Browser]
Start = Callable[..., Instance]
Connect = Callable[..., SpringClient]


@pytest.fixture(scope="module")
def archive(pytestconfig: pytest.Config) -> Path:
    """The application's archive. The tests are skipped without Maven, Java or Maven's packages."""
    try:
        return build()
    except BuildMissing as missing:
        report_missing(pytestconfig, str(missing), "maven")


@pytest.fixture(scope="module")
def machines(
    archive: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[SpringProcess]]:
    """Two Java virtual machines."""
    folder = tmp_path_factory.mktemp("spring")
    processes = [SpringProcess(archive, folder / f"{number}.log") for number in (1, 2)]
    yield processes
    for process in processes:
        process.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """The broker of all tests that do not break it."""
    settings = tmp_path_factory.mktemp("broker") / "settings.toml"
    settings.write_text(SETTINGS, encoding="utf-8")
    arguments = ("--config", str(settings))
    with launch(LaunchConfig(websocket=True, control=True, arguments=arguments)) as running:
        yield running
        assert "Traceback" not in running.log, running.log.partition("Traceback")[2][:5000]


@pytest.fixture(scope="module")
def instances(machines: list[SpringProcess], broker: RunningBroker) -> list[Instance]:
    """Two instances of the application with that broker."""
    instances = [process.start("shared", broker) for process in machines]
    for instance in instances:
        instance.wait_for_broker()
    return instances


@pytest.fixture
def one(instances: list[Instance]) -> Instance:
    """The first instance."""
    return instances[0]


@pytest.fixture
def two(instances: list[Instance]) -> Instance:
    """The second instance."""
    return instances[1]


@pytest.fixture
def start(machines: list[SpringProcess]) -> Iterator[Start]:
    """A function that starts instances for one test, alternating between the virtual machines."""
    numbers = count()
    with ExitStack() as stack:

        def start(*brokers: RunningBroker, **settings: object) -> Instance:
            number = next(numbers)
            process = machines[number % len(machines)]
            instance = process.start(f"own-{number}", *brokers, **settings)
            stack.callback(instance.stop)
            return instance

        yield start


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    """A function that launches brokers for one test."""
    numbers = count()
    with ExitStack() as stack:

        def launched(settings: str = SETTINGS, *more: str, **config: object) -> RunningBroker:
            path = tmp_path / f"settings-{next(numbers)}.toml"
            path.write_text(settings, encoding="utf-8")
            arguments = ("--config", str(path), *more)
            running = launch(LaunchConfig(arguments=arguments, **config))  # type: ignore[arg-type]  # any of them
            stack.enter_context(running)
            return running

        yield launched


@pytest.fixture
def page() -> Iterator[Pages]:
    """A function that connects pages to an instance, and closes those that are left."""
    with ExitStack() as stack:

        def connect(instance: Instance, user: str | None = None, **options: str) -> Browser:
            browser = Browser.connect(instance.port, user, **options)
            stack.callback(browser.cut)
            return browser

        yield connect


@pytest.fixture
def client(machines: list[SpringProcess]) -> Iterator[Connect]:
    """A function that connects Spring's clients, and disconnects them."""
    numbers = count()
    with ExitStack() as stack:

        def connect(**options: object) -> SpringClient:
            name = f"client-{next(numbers)}"
            connected = SpringClient(machines[0], name, **options)  # type: ignore[arg-type]  # any of them
            stack.callback(connected.close)
            return connected

        yield connect


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A unique name for destinations and users."""
    return str(request.node.name).translate(str.maketrans("[-", "__", "]"))


def eventually(condition: Callable[[], object]) -> None:
    assert wait_until(condition, DEADLINE_S)


def wait_for_sessions(broker: RunningBroker, expected: int) -> None:
    """Wait until the broker has this many sessions; those of cut pages end later."""
    found = wait_until(lambda: len(broker.sessions()) == expected, DEADLINE_S)
    assert found, broker.sessions()


def refused(port: int, user: str | None = None) -> Frame:
    """Return the ERROR that a page receives for its CONNECT, before its connection ends."""
    browser = Browser(port, user)
    [error] = browser.wait_for_end()
    assert error.command == "ERROR"
    browser.cut()
    return error


# Topics and queues.


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_page_gets_what_another_page_sends_to_a_topic(
    one: Instance, two: Instance, page: Pages, name: str, transport: str
) -> None:
    # If the broker offers heart-beats, Spring disables SockJS's own. Without any, it would not
    # notice the end of a stream.
    options = {"transport": transport, "heart_beat": "0,1000"}
    here, there = page(one, **options), page(two, **options)
    for each in (here, there):
        each.subscribe(f"/topic/{name}")
    text = "Grüße, 世界 \U0001f680"
    here.send(f"/topic/{name}", text)
    for each in (here, there):
        message = each.receive()
        assert message.headers["destination"] == f"/topic/{name}"
        assert message.headers["subscription"] == "0"
        assert message.headers["content-type"] == "application/json"
        assert json.loads(message.body) == {"text": text}


def test_a_handler_broadcasts_to_the_room_that_the_destination_names(
    one: Instance, two: Instance, page: Pages, name: str
) -> None:
    pages = [page(one), page(two)]
    for each in pages:
        each.subscribe(f"/topic/room.{name}")
    pages[0].send(f"/app/room.{name}", "hello")
    assert [each.text() for each in pages] == [f"{name}: hello"] * 2


def test_the_application_sends_to_pages_of_all_instances(
    one: Instance, two: Instance, page: Pages, name: str
) -> None:
    pages = [page(one), page(two)]
    for each in pages:
        each.subscribe("/topic/prices.*." + name)
    one.send(f"/topic/prices.gold.{name}", "1 €")
    two.send(f"/topic/prices.tin.{name}", "2 €")
    assert [sorted([each.text(), each.text()]) for each in pages] == [["1 €", "2 €"]] * 2


def test_pages_get_messages_of_the_application_in_their_order(
    one: Instance, two: Instance, page: Pages, name: str
) -> None:
    here, there = page(one), page(two)
    for each in (here, there):
        each.subscribe(f"/topic/{name}")
    texts = [str(number) for number in range(300)]
    for text in texts:
        one.send(f"/topic/{name}", text)
    for each in (here, there):
        assert [each.text() for _ in texts] == texts


def test_pages_of_two_instances_share_the_work_of_a_queue(
    one: Instance, two: Instance, page: Pages, name: str
) -> None:
    here, there = page(one), page(two)
    for each in (here, there):
        each.subscribe(f"/queue/{name}", ack="client-individual", prefetch_count="1")
    for text in ("first", "second"):
        one.send(f"/queue/{name}", text)
    mine, theirs = here.receive(), there.receive()
    assert {mine.body, theirs.body} == {b'{"text":"first"}', b'{"text":"second"}'}
    here.ask("ACK", {"id": mine.headers["ack"]})
    there.ask("NACK", {"id": theirs.headers["ack"]})
    again = {here, there}
    # The rejected message is redelivered, to either page.
    eventually(lambda: any(each.has_frame() for each in again))
    [last] = [each for each in again if each.has_frame()]
    message = last.receive()
    assert message.body == theirs.body
    assert message.headers["redelivered"] == "true"


def test_a_message_comes_again_if_its_page_is_gone(
    one: Instance, two: Instance, page: Pages, name: str
) -> None:
    here, there = page(one), page(two)
    here.subscribe(f"/queue/{name}", ack="client-individual")
    here.send(f"/queue/{name}", "work")
    assert here.text() == "work"
    there.subscribe(f"/queue/{name}", ack="client-individual")
    here.cut()
    again = there.receive()
    assert again.headers["redelivered"] == "true"
    there.ask("ACK", {"id": again.headers["ack"]})


def test_large_bodies_and_all_characters_of_headers_arrive(
    one: Instance, two: Instance, page: Pages, name: str
) -> None:
    here, there = page(one), page(two)
    there.subscribe(f"/topic/{name}")
    special = "a:b\\c\nd\r"
    headers = {"destination": f"/topic/{name}", "content-type": "text/plain", "x": special}
    here.ask("SEND", headers, LARGE.encode())
    message = there.receive()
    assert message.headers["x"] == special
    assert message.body == LARGE.encode()


# Sessions.


def test_disconnect_is_answered_and_ends_the_connection_of_the_relay(
    one: Instance, broker: RunningBroker, page: Pages, name: str
) -> None:
    wait_for_sessions(broker, 2)
    browser = page(one, name)
    browser.subscribe(f"/topic/{name}")
    assert name in one.connected
    wait_for_sessions(broker, 3)
    browser.disconnect()
    wait_for_sessions(broker, 2)
    browser.cut()
    eventually(lambda: name in one.disconnected)


def test_a_mistake_ends_only_the_session_that_made_it(
    one: Instance, page: Pages, name: str
) -> None:
    careless, other = page(one), page(one)
    other.subscribe(f"/topic/{name}")
    destination = f"/topic/{name}.*"
    careless.write("SEND", {"destination": destination, "receipt": "mistake"}, b"x")
    error = careless.wait_for_end()[0]
    assert error.command == "ERROR"
    assert error.headers["stompkit-code"] == "bad-destination"
    assert error.headers["receipt-id"] == "mistake"
    assert careless.code == 1002
    one.send(f"/topic/{name}", "still here")
    assert other.text() == "still here"


def test_a_mistake_of_the_application_ends_the_system_connection_until_it_reconnects(
    start: Start, brokers: Brokers, page: Pages
) -> None:
    instance = start(brokers())
    instance.wait_for_broker()
    browser = page(instance)
    browser.subscribe("/topic/news")
    instance.send("/topic/*", "to a pattern")
    eventually(lambda: instance.availability == [True, False, True])
    instance.send("/topic/news", "after it")
    assert browser.text() == "after it"


def test_another_destination_than_those_of_the_relay_is_not_sent_to_the_broker(
    one: Instance, broker: RunningBroker, page: Pages, name: str
) -> None:
    browser = page(one)
    browser.write("SUBSCRIBE", {"id": "1", "destination": f"/other/{name}", "receipt": "never"})
    browser.subscribe(f"/topic/{name}")
    browser.send(f"/topic/{name}", "x")
    assert browser.text() == "x"
    assert f"/other/{name}" not in broker.destinations()


# Users.


def test_an_answer_goes_to_all_sessions_of_the_user_or_to_one(
    one: Instance, page: Pages, name: str
) -> None:
    first, second, other = page(one, name), page(one, name), page(one, f"other of {name}")
    for each in (first, second, other):
        each.subscribe("/user/queue/answers")
    first.send("/app/answer.all", "hello")
    for each in (first, second):
        message = each.receive()
        assert message.headers["destination"] == "/user/queue/answers"
        assert message.body == f'{{"text":"{name}: hello"}}'.encode()
    second.send("/app/answer.one", "hello")
    assert second.text() == "only you: hello"
    # Neither of the others has received anything else.
    for each in (first, other):
        each.send("/app/answer.one", "and me")
        assert each.text() == "only you: and me"


def test_an_error_of_a_handler_goes_to_the_sender_only(
    one: Instance, page: Pages, name: str
) -> None:
    first, second = page(one, name), page(one, name)
    for each in (first, second):
        each.subscribe("/user/queue/errors")
    first.send("/app/fail", "no reason")
    assert first.text() == "failed: no reason"
    second.send("/app/fail", "another")
    assert second.text() == "failed: another"


def test_a_subscription_to_the_application_is_answered_without_the_broker(
    one: Instance, broker: RunningBroker, page: Pages
) -> None:
    browser = page(one)
    browser.write("SUBSCRIBE", {"id": "1", "destination": "/app/greeting"})
    assert browser.text() == "hello"
    assert not [each for each in broker.destinations() if "greeting" in each]


def test_a_user_of_another_instance_is_reached_once(
    one: Instance, two: Instance, page: Pages, name: str
) -> None:
    browser = page(two, name)
    browser.subscribe("/user/queue/notes")
    one.send_to_user(name, "/queue/notes", "from the other instance")
    message = browser.receive()
    assert message.headers["destination"] == "/user/queue/notes"
    assert message.body == b'{"text":"from the other instance"}'
    # A message to an unknown user is dropped, and the relay continues.
    one.send_to_user(f"nobody of {name}", "/queue/notes", "lost")
    one.send_to_user(name, "/queue/notes", "second")
    assert browser.text() == "second"
    two.send_to_user(name, "/queue/notes", "from the same instance")
    assert browser.text() == "from the same instance"
    assert one.availability == two.availability == [True]


def test_the_registry_has_the_users_of_all_instances(
    one: Instance, start: Start, broker: RunningBroker, page: Pages, name: str
) -> None:
    third = start(broker)
    third.wait_for_broker()
    page(one, f"one of {name}")
    browser = page(third, f"third of {name}")
    page(third, f"third of {name}")

    def users(instance: Instance) -> dict[str, int]:
        return {user: number for user, number in instance.users.items() if user.endswith(name)}

    both = {f"one of {name}": 1, f"third of {name}": 2}
    eventually(lambda: users(one) == users(third) == both)
    browser.disconnect()
    browser.cut()
    both[f"third of {name}"] = 1
    eventually(lambda: users(one) == users(third) == both)


def test_the_queue_of_a_user_is_gone_with_the_session(
    one: Instance, broker: RunningBroker, page: Pages, name: str
) -> None:
    browser = page(one, name)
    browser.subscribe(f"/user/queue/{name}")

    def queues() -> list[str]:
        return [each for each in broker.destinations() if each.startswith(f"/queue/{name}-user")]

    assert len(queues()) == 1
    one.send_to_user(name, f"/queue/{name}", "read")
    assert browser.text() == "read"
    browser.cut()
    eventually(lambda: not queues())
    # The end of the session is known, so that this creates no queue without a consumer.
    eventually(lambda: name in one.disconnected)
    one.send_to_user(name, f"/queue/{name}", "too late")
    other = page(one)
    other.subscribe(f"/topic/{name}")
    one.send(f"/topic/{name}", "behind it")
    assert other.text() == "behind it"
    assert not queues()


@pytest.mark.parametrize("destination", ["/queue/*", "/queue/notes-user{}", "/queue/#"])
def test_a_page_may_not_listen_to_the_queue_of_another_user(
    one: Instance, page: Pages, name: str, destination: str
) -> None:
    """The broker would allow it: all sessions are those of the relay."""
    browser = page(one, name)
    browser.subscribe("/user/queue/notes")
    spy = page(one)
    spy.write("SUBSCRIBE", {"id": "0", "destination": destination})
    [error] = spy.wait_for_end()
    assert error.command == "ERROR"
    one.send_to_user(name, "/queue/notes", "a secret")
    assert browser.text() == "a secret"


def test_names_of_rabbitmq_are_understood(one: Instance, page: Pages, name: str) -> None:
    browser = page(one, name)
    browser.subscribe("/user/exchange/amq.direct/notes", auto_delete="true", durable="false")
    one.send_to_user(name, "/exchange/amq.direct/notes", "a note")
    message = browser.receive()
    assert message.headers["destination"] == "/user/exchange/amq.direct/notes"
    # A topic stores no messages, so that users' topics leave no rest.
    browser.subscribe("/user/topic/notes", "3")
    one.send_to_user(name, "/topic/notes", "another note")
    assert browser.text() == "another note"
    browser.subscribe(f"/exchange/amq.topic/{name}.#", "1")
    browser.send(f"/topic/{name}.a.b", "a topic")
    assert browser.text() == "a topic"
    browser.subscribe(f"/amq/queue/{name}", "2")
    browser.send(f"/queue/{name}", "a queue")
    assert browser.text() == "a queue"


def test_a_request_is_answered_through_a_temporary_queue(
    one: Instance, two: Instance, page: Pages, name: str
) -> None:
    asking, answering = page(one), page(two)
    answering.subscribe(f"/queue/{name}")
    asking.send(f"/queue/{name}", "2+2", reply_to="/temp-queue/answers")
    request = answering.receive()
    answering.send(request.headers["reply-to"], "4")
    answer = asking.receive()
    assert answer.headers["subscription"] == "/temp-queue/answers"
    assert answer.body == b'{"text": "4"}'


# Heart-beats.


def test_heart_beats_go_from_page_to_broker_and_back(one: Instance, page: Pages, name: str) -> None:
    browser = page(one, heart_beat="1000,1000")
    assert browser.connected.headers["heart-beat"] == "1000,1000"
    for _ in range(5):
        # Without its own heart-beats the page would have been disconnected before the last.
        browser.wait_for_beat()
        browser.beat()
    browser.subscribe(f"/topic/{name}")


def test_a_page_that_is_silent_in_spite_of_its_promise_is_given_up(
    one: Instance, page: Pages, name: str
) -> None:
    browser = page(one, name, heart_beat="1000,0")
    error = browser.wait_for_end()[0]
    assert error.command == "ERROR"
    assert error.headers["stompkit-code"] == "heart-beat-timeout"
    eventually(lambda: name in one.disconnected)


def test_messages_to_the_application_keep_the_connection_of_the_relay(
    one: Instance, page: Pages, name: str
) -> None:
    """A client that sends messages need not send heart-beats, but the broker receives neither."""
    browser = page(one, heart_beat="6000,1000")
    for _ in range(15):
        browser.wait_for_beat()
        browser.send("/app/ignore", "not for the broker")
    browser.subscribe(f"/topic/{name}")


def test_the_system_connection_notices_that_the_broker_is_silent(
    start: Start, brokers: Brokers, page: Pages
) -> None:
    broker = brokers(control=True)
    instance = start(broker, heart_beat=1000)
    instance.wait_for_broker()
    broker.pause()
    instance.wait_for_broker(is_available=False)
    broker.resume()
    instance.wait_for_broker()
    assert instance.availability == [True, False, True]
    browser = page(instance)
    browser.subscribe("/topic/news")
    instance.send("/topic/news", "again")
    assert browser.text() == "again"


# The end of a broker, and other brokers.


def test_the_relay_reconnects_after_the_broker_has_been_restarted(
    start: Start, brokers: Brokers, page: Pages
) -> None:
    broker = brokers(persistent=True)
    one, two = start(broker), start(broker)
    for instance in (one, two):
        instance.wait_for_broker()
    one.send("/queue/orders", "kept")
    browser = page(two, "joe")
    browser.subscribe("/topic/news")
    broker.kill()
    for instance in (one, two):
        instance.wait_for_broker(is_available=False)
    error = browser.wait_for_end()[0]
    assert (error.command, error.headers["message"]) == ("ERROR", "Connection to broker closed.")
    with pytest.raises(SpringError, match="Message broker not active"):
        one.send("/topic/news", "not sent")
    assert refused(two.port).headers["message"] == "Broker not available."
    broker.restart()
    for instance in (one, two):
        instance.wait_for_broker()
    browser = page(two, "joe")
    browser.subscribe("/queue/orders")
    assert browser.text() == "kept"
    # The relay has renewed its own subscriptions.
    browser.subscribe("/user/queue/notes", "1")
    one.send_to_user("joe", "/queue/notes", "a note")
    assert browser.text() == "a note"
    assert one.availability == two.availability == [True, False, True]


def test_the_application_may_start_before_the_broker(
    machines: list[SpringProcess], page: Pages, brokers: Brokers
) -> None:
    with free_ports() as [port]:
        instance = machines[0].start("early", addresses=f"127.0.0.1:{port}")
        assert refused(instance.port).headers["message"] == "Broker not available."
        brokers(port=port)
        instance.wait_for_broker()
        browser = page(instance)
        browser.subscribe("/topic/news")
        instance.stop()


def test_the_relay_goes_on_to_another_broker(start: Start, brokers: Brokers, page: Pages) -> None:
    first, second = brokers(), brokers()
    instance = start(first, second)
    instance.wait_for_broker()
    page(instance).subscribe("/topic/news")
    first.kill()
    eventually(lambda: instance.availability == [True, False, True])

    def connected() -> Browser | None:
        # Each connection uses the next of the two brokers.
        browser = Browser(instance.port)
        if browser.frame().command == "CONNECTED":
            return browser
        browser.cut()
        return None

    browser = wait_until(connected, DEADLINE_S)
    assert browser is not None
    browser.subscribe("/topic/news")
    instance.send("/topic/news", "by the second")
    assert browser.text() == "by the second"
    browser.cut()


def test_the_login_of_the_relay_is_the_only_one(
    start: Start, brokers: Brokers, page: Pages
) -> None:
    broker = brokers(login="relay", passcode="secret")
    instance = start(broker, login="relay", passcode="secret")
    wrong = start(broker, login="relay", passcode="wrong")
    instance.wait_for_broker()
    # For the broker the client is the relay, whatever a page sends.
    browser = page(instance, "joe")
    assert browser.connected.headers["user-name"] == "joe"
    browser.subscribe("/topic/news")
    assert refused(wrong.port).headers["message"] == "Broker not available."
    assert wrong.availability == []
    eventually(lambda: "not-authenticated" in broker.log)


def test_pages_may_do_less_than_the_application(
    start: Start, brokers: Brokers, page: Pages
) -> None:
    broker = brokers(
        SETTINGS + RIGHTS, "--auth", "memory:pages:secret", login="shop", passcode="secret"
    )
    instance = start(
        broker, login="shop", passcode="secret", client_login="pages", client_passcode="secret"
    )
    instance.wait_for_broker()
    browser, curious, busy = page(instance, "joe"), page(instance), page(instance)
    browser.subscribe("/topic/news")
    browser.subscribe("/user/topic/answers", "1")
    curious.write("SUBSCRIBE", {"id": "0", "destination": "/queue/orders"})
    busy.send("/topic/news", "not from a page")
    for each in (curious, busy):
        assert each.wait_for_end()[0].headers["stompkit-code"] == "not-authorised"
    instance.send("/topic/news", "from the application")
    assert browser.text() == "from the application"
    instance.send_to_user("joe", "/topic/answers", "for joe")
    assert browser.text() == "for joe"


def test_virtual_hosts_keep_applications_apart(start: Start, brokers: Brokers, page: Pages) -> None:
    broker = brokers(SETTINGS + 'hosts = ["shop", "blog"]\n', vhost="shop")
    shop, blog = start(broker, virtual_host="shop"), start(broker, virtual_host="blog")
    pages = {}
    for instance in (shop, blog):
        instance.wait_for_broker()
        pages[instance] = page(instance)
        pages[instance].subscribe("/topic/news")
    shop.send("/topic/news", "of the shop")
    blog.send("/topic/news", "of the blog")
    assert pages[shop].text() == "of the shop"
    assert pages[blog].text() == "of the blog"
    other = start(broker, virtual_host="other")
    assert refused(other.port).headers["message"] == "Broker not available."


def test_the_relay_speaks_tls(start: Start, brokers: Brokers, page: Pages, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with free_ports() as [port]:
        endpoint = f"stomps:{port}:interface=127.0.0.1:certificate={authority.server()}"
        brokers(SETTINGS, "--endpoint", endpoint)
        address = f"127.0.0.1:{port}"
        instance = start(addresses=address, certificate=str(authority.file))
        instance.wait_for_broker()
        browser = page(instance)
        browser.subscribe("/topic/news")
        instance.send("/topic/news", "in private")
        assert browser.text() == "in private"


def test_an_instance_that_ends_leaves_nothing_in_the_broker(
    machines: list[SpringProcess], one: Instance, broker: RunningBroker, page: Pages, name: str
) -> None:
    wait_for_sessions(broker, 2)
    third = machines[1].start("third", broker)
    third.wait_for_broker()
    browser = page(third, name)
    browser.subscribe("/user/queue/notes")
    wait_for_sessions(broker, 4)
    eventually(lambda: name in one.users)
    third.stop()
    browser.wait_for_end()
    wait_for_sessions(broker, 2)
    assert not [each for each in broker.destinations() if each.startswith("/queue/notes-user")]


# Spring as a client.


@pytest.fixture(params=["tcp", "websocket"])
def connect(
    request: pytest.FixtureRequest, client: Connect, broker: RunningBroker
) -> Callable[..., SpringClient]:
    """A function that connects Spring's client to the broker, by TCP or WebSocket."""

    def connect(to: RunningBroker = broker, **options: object) -> SpringClient:
        if request.param == "tcp":
            options.pop("limit", None)
            return client(broker=to, **options)
        return client(url=to.ws_url, **options)

    return connect


def test_a_spring_client_sends_receives_and_acknowledges(connect: Connect, name: str) -> None:
    client = connect()
    client.subscribe(f"/queue/{name}", ack="client-individual")
    client.send(f"/queue/{name}", b"good", receipt="sent")
    client.send(f"/queue/{name}", "wörse".encode(), receipt="sent-2")
    good, worse = client.receive(), client.receive()
    assert (good.body, worse.body) == (b"good", "wörse".encode())
    client.acknowledge(good)
    client.acknowledge(worse, is_consumed=False)
    again = client.receive()
    assert again.body == worse.body
    assert again.headers["redelivered"] == "true"
    client.acknowledge(again)


def test_a_spring_client_keeps_its_connection_by_heart_beats(
    connect: Connect, broker: RunningBroker, name: str
) -> None:
    client = connect(heart_beat=(1000, 1000))
    beating = broker.client(version="1.2", heart_beat="1000,1000")
    with beating:
        # Another session waits for as long as the client could take.
        for _ in range(5):
            beating.wait_for_beat()
    assert client.is_connected
    client.subscribe(f"/topic/{name}")


def test_a_spring_client_gets_many_messages_at_once(
    connect: Connect, one: Instance, broker: RunningBroker, name: str
) -> None:
    """Together they exceed Tomcat's limit of a WebSocket message, but each is smaller."""
    with broker.client() as sender:
        for number in range(200):
            sender.send(f"/queue/{name}", b"%03d" % number * 100)
        client = connect()
        client.subscribe(f"/queue/{name}")
        bodies = [client.receive().body[:3] for _ in range(200)]
    assert bodies == [b"%03d" % number for number in range(200)]


def test_a_spring_client_gets_a_large_message(connect: Connect, name: str) -> None:
    client = connect(limit=2 * 1024 * 1024)
    client.subscribe(f"/queue/{name}")
    client.send(f"/queue/{name}", LARGE.encode(), content_type="text/plain;charset=UTF-8")
    assert client.receive().body == LARGE.encode()


def test_a_spring_client_is_told_why_it_is_refused(connect: Connect, name: str) -> None:
    client = connect()
    client.send(f"/topic/{name}.*", b"x")
    end = client.end()
    assert end["stompkit-code"] == "bad-destination"
    eventually(lambda: not client.is_connected)


def test_a_spring_client_notices_the_end_of_the_broker_and_connects_again(
    connect: Connect, brokers: Brokers
) -> None:
    broker = brokers(websocket=True, persistent=True)
    client = connect(broker)
    client.subscribe("/queue/orders")
    broker.kill()
    assert "lost" in client.end()
    with pytest.raises(SpringError):
        connect(broker)
    broker.restart()
    client = connect(broker)
    client.subscribe("/queue/orders")
    client.send("/queue/orders", b"x", receipt="sent")
    assert client.receive().body == b"x"
