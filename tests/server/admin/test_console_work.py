"""Publishing, ages, connections, long names, and messages about what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.browser import Chromium
from tests.ports import free_ports
from tests.server.admin.consoles import Console, Operated, operated
from tests.server.processes import LOOPBACK, TWIST, Process, announced, processes

LONG = "/queue/" + "averylongname." * 57


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    """A broker for all tests; each test uses other queues."""
    with operated(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def console(browser: Chromium, broker: Operated) -> Console:
    """The console of the broker, not yet opened."""
    browser.emulate()
    return Console(browser, broker)


def enter(console: Console, name: str, text: str) -> None:
    """Type into a field of the dialog."""
    console.browser.ask(f"document.querySelector('dialog [name={name}]').focus()")
    console.browser.write(text)


# Publishing.


def test_a_message_is_published(console: Console) -> None:
    console.open("destinations")
    console.click("main button", "Publish")
    console.wait("document.activeElement.name === 'destination'")
    console.browser.write("/queue/published")
    enter(console, "type", "application/json")
    enter(console, "headers", "colour: blue\nempty:\nurl: http://x")
    enter(console, "body", '{"a": 1}')
    console.click("dialog button", "Publish")
    console.wait_text("A message to /queue/published is published", "#notices")
    [message] = console.broker.get("messages?name=/queue/published")["messages"]
    headers = dict(message["headers"])
    assert message["body"] == '{"a": 1}'
    assert headers["content-type"] == "application/json"
    assert (headers["colour"], headers["empty"], headers["url"]) == ("blue", "", "http://x")
    console.wait_text("/queue/published", "tbody")


def test_a_message_is_published_by_keys_into_the_open_queue(console: Console) -> None:
    console.broker.send("/queue/keyed", "a")
    console.open("destinations?name=/queue/keyed")
    console.wait("document.querySelector('.pane [data-action=publish]')")
    console.browser.ask("document.querySelector('.pane [data-action=publish]').focus()")
    console.browser.press("Enter")
    console.wait("document.activeElement.name === 'body'")
    console.browser.write("two\nlines")
    console.tab_to("Publish")
    console.browser.press("Enter")
    console.wait("document.querySelectorAll('.messages li').length === 2")
    assert console.broker.ready("/queue/keyed") == 2


def test_what_was_typed_is_kept_until_the_broker_has_accepted_it(console: Console) -> None:
    console.open("destinations")
    console.click("main button", "Publish")
    enter(console, "destination", "/nowhere/a")
    enter(console, "body", "precious")
    enter(console, "headers", "no header at all")
    console.click("dialog button", "Publish")
    console.wait_text("Line 1 of the headers is not NAME: VALUE.", "dialog [role=alert]")
    console.browser.ask("document.querySelector('dialog [name=headers]').value = ''")
    console.click("dialog button", "Publish")
    console.wait_text("is unknown", "dialog [role=alert]")
    console.browser.ask("document.querySelector('dialog [name=headers]').value = 'a: x\\0y'")
    console.click("dialog button", "Publish")
    console.wait_text("The message is not valid", "dialog [role=alert]")
    assert console.browser.ask("document.querySelector('dialog [name=body]').value") == "precious"
    console.browser.press("Escape")
    console.wait("!document.querySelector('dialog')")
    assert console.focused() == "Publish…"


# Ages.


def test_messages_have_an_age(console: Console) -> None:
    console.broker.send("/queue/aged", "a")
    console.open("destinations?name=/queue/aged")
    console.wait_text(" s old", ".messages summary")
    console.click(".messages summary")
    console.wait_text("received", ".messages .headers")


def test_the_age_of_a_message_from_before_the_start_is_a_lower_bound(
    browser: Chromium, tmp_path: Path
) -> None:
    settings = f'[store]\npath = "{tmp_path}/data"\n'
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with operated(tmp_path / "one", settings) as first:
        first.send("/queue/old", "a")
    with operated(tmp_path / "two", settings) as second:
        console = Console(browser, second)
        console.open("destinations?name=/queue/old")
        console.wait_text("over ", ".messages summary")


# Connections.


def test_a_connection_has_details(console: Console) -> None:
    with console.broker.client() as client:
        client.ask(b"SUBSCRIBE\nid:1\ndestination:/queue/read\nack:client\nreceipt:s\n\n\0")
        [own] = [
            each
            for each in console.broker.get("connections")["connections"]
            if each["subscriptions"]
        ]
        console.open("connections")
        console.click("td.address a", own["address"])
        console.wait_text("/queue/read", ".pane")
        shown = console.text(".pane")
        for text in (own["address"], own["session"], "STOMP 1.2", "Open transactions", "client"):
            assert text in shown
        assert f"id={own['id']}" in console.browser.ask("location.hash")
        console.browser.press("Escape")
        console.wait("!document.querySelector('.pane')")
        assert console.focused() == own["address"]
        console.open(f"connections?id={own['id']}")
        console.wait_text("/queue/read", ".pane")
    console.wait_text("This connection has ended", ".pane")


@pytest.mark.matrix
def test_a_list_that_lacks_connections_says_so(console: Console) -> None:
    with ExitStack() as clients:
        for _ in range(1_000):
            clients.enter_context(console.broker.client())
        console.open("connections")
        console.wait_text("of 1,000", ".pages")
        assert "Only the oldest" not in console.text("main")
        newest = clients.enter_context(console.broker.client())
        newest.ask(b"SUBSCRIBE\nid:1\ndestination:/queue/newest\nreceipt:s\n\n\0")
        console.wait_text("Only the oldest 1,000 of 1,001 are shown", "main")
        all_of_them = console.broker.get("connections?limit=1000&offset=1000")["connections"]
        address = all_of_them[0]["address"]
        console.browser.press("/")
        console.browser.write(address)
        console.wait_text(address, "tbody")
        assert "Only the oldest" not in console.text("main")


# Long names.


@pytest.mark.parametrize("width", [360, 1280])
def test_a_long_name_takes_two_lines_and_can_be_read_whole(width: int, console: Console) -> None:
    console.broker.send(LONG, "a")
    console.open("destinations?contains=averylong", width=width)
    console.wait("document.querySelector('td.name a')")
    lines = (
        "(element => element.getBoundingClientRect().height"
        " / parseFloat(getComputedStyle(element).lineHeight))"
    )
    assert console.browser.ask(f"{lines}(document.querySelector('td.name a'))") <= 2.1
    assert console.browser.ask("document.querySelector('td.name a').title") == LONG
    console.click("td.name a")
    console.wait("document.querySelector('.pane h2')")
    assert console.browser.ask(f"{lines}(document.querySelector('.pane h2'))") <= 2.1
    console.click(".pane summary", "Whole name")
    console.wait(f"document.querySelector('.pane details code').innerText === {json.dumps(LONG)}")
    console.click(".pane button", "Purge")
    console.wait("document.querySelector('dialog[open]')")
    assert console.browser.ask(f"{lines}(document.querySelector('dialog h2'))") <= 2.1
    console.browser.press("Escape")


# Charts.


@pytest.mark.parametrize(
    ("values", "is_spiky", "top"),
    [
        ("Array(300).fill(10)", False, 10),
        ("Array.from({length: 300}, (_, i) => i === 7 ? 5000 : 10)", True, 12.5),
        # Nothing is flattened if there is nothing else.
        ("Array.from({length: 300}, (_, i) => i === 7 ? 5000 : 0)", False, 5000),
        # A long peak is no spike.
        ("Array.from({length: 300}, (_, i) => i < 30 ? 5000 : 10)", False, 5000),
        ("Array.from({length: 300}, (_, i) => i === 7 ? 25 : 10)", False, 25),
        ("[]", False, 0),
    ],
)
def test_one_spike_does_not_flatten_a_chart(
    values: str, *, is_spiky: bool, top: float, console: Console
) -> None:
    console.open()
    found = console.browser.ask(f"import('/charts.js').then(({{scale}}) => scale({values}))")
    assert (found["isSpiky"], found["top"]) == (is_spiky, top)


def test_a_spike_is_marked_and_shown_whole_on_demand(console: Console) -> None:
    console.open()
    drawn = """import('/charts.js').then(({chart}) => {
        const made = chart('Rates', [{label: 'in', kind: 'first'}]);
        made.element.id = 'made';
        document.querySelector('main').append(made.element);
        made.draw([Array.from({length: 300}, (_, i) => i === 200 ? 5000 : 30 + i % 5)], 1);
    })"""
    console.browser.ask(drawn)
    assert console.text("#made .top") == "60"
    assert console.browser.ask("document.querySelector('#made .spikes').getAttribute('d')")
    console.click("#made button", "Peak 5,000")
    assert console.text("#made .top") == "6,000"
    assert not console.browser.ask("document.querySelector('#made .spikes').getAttribute('d')")
    console.click("#made button", "Usual values")
    assert console.text("#made .top") == "60"


# What is missing.


@pytest.mark.parametrize("page", ["nosuch", "destination?name=x", "<img src=x>"])
def test_an_unknown_page_is_said_to_be_unknown(page: str, console: Console) -> None:
    console.open(page)
    console.wait_text("No such page", "main h1")
    assert "nosuch" in console.text("main") or page != "nosuch"
    assert console.browser.ask("document.querySelector('main img')") is None
    assert console.browser.ask("document.querySelector('[role=tab][aria-selected=true]')") is None
    console.click("main a", "overview")
    console.wait("document.querySelector('main').className === 'view-overview'")


def test_notices_about_an_absent_broker_go_when_it_is_back(
    browser: Chromium, tmp_path: Path
) -> None:
    with free_ports() as [port], processes(tmp_path) as start:
        announce = tmp_path / "announce"
        options = ["--endpoint", LOOPBACK, "--announce", str(announce)]
        options += ["--admin", f"tcp:{port}:interface=127.0.0.1"]

        def started() -> Process:
            announce.unlink(missing_ok=True)
            process = start(TWIST, *options)
            announced(process, announce)
            return process

        process = started()
        broker = Operated(process, announce)
        console = Console(browser, broker)
        broker.send("/queue/a", "x")
        console.open("destinations?name=/queue/a")
        console.wait("document.querySelector('.pane [data-action=pause]')")
        process.kill()
        console.wait_text("Connection lost", "#state")
        for _ in range(3):
            console.click(".pane button", "Pause")
            console.wait_text("The broker does not answer", "#notices")
        # The same is said once.
        assert browser.ask("document.querySelectorAll('#notices .wrong').length") == 1
        started()
        console.reconnect()
        console.wait("document.getElementById('state').dataset.state === 'live'")
        console.wait("!document.querySelector('#notices .wrong')")
