"""The console of a reader, and the users and rights that it shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Chromium
from tests.ports import free_ports
from tests.server.admin.consoles import VIEWS, Console, Operated, operated
from tests.server.processes import LOOPBACK, TWIST, Client, Process, announced, processes

OPERATOR = "the-token-of-an-operator"
READER = "the-token-of-a-reader"
#: Elements that change the broker; a reader must not see any.
CHANGES = "main [data-action], main [data-do], main td.action button, main input[type=checkbox]"
RULES = """
[auth]
checkers = ["memory:ann:sesame"]
anonymous = true
[auth.groups]
staff = ["ann", "<b>eve</b>"]
[[rights]]
destination = ">"
allow = ["create", "read", "write"]
[[rights]]
destination = "/queue/secret"
allow = ["admin"]
groups = ["staff"]
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    """A broker with two tokens, users and rights, and with data for each view."""
    folder = tmp_path_factory.mktemp("broker")
    reader = folder / "reader"
    reader.write_text(READER)
    # The first lines are still in the table of the admin port.
    settings = f"read_token_file = {json.dumps(str(reader))}\n[broker]\nmax_deliveries = 1\n{RULES}"
    with operated(folder, settings, token=OPERATOR) as running:
        running.send("/queue/plain", "x")
        running.kill_letter("/queue/refused", "x")
        with running.client() as client:
            client.ask(
                b"SUBSCRIBE\nid:r\ndestination:/topic/news\ndurable:true\nauto-delete:false\n"
                b"receipt:s\n\n\0"
            )
            yield running


@pytest.fixture
def console(browser: Chromium, broker: Operated) -> Console:
    """The console, at the question for the token."""
    browser.emulate()
    browser.open(broker.url)
    browser.ask("sessionStorage.clear()")
    browser.open(broker.url)
    found = Console(browser, broker)
    found.wait("document.activeElement.id === 'token'")
    return found


def sign_in(console: Console, token: str) -> None:
    console.browser.write(token)
    console.browser.press("Enter")
    console.wait("document.getElementById('state').dataset.state === 'live'")


def is_marked_read_only(console: Console) -> bool:
    return bool(console.browser.ask("document.getElementById('role').checkVisibility()"))


PLACES = (*VIEWS, "destinations?name=/queue/plain", "dead-letters?name=/dlq/refused")


def arrive(console: Console, place: str) -> None:
    console.open(place)
    if "name=" in place:
        console.wait("document.querySelector('.messages li')")
    elif place not in ("frames", "overview"):
        console.wait("document.querySelectorAll('main tbody tr').length > 0")


def test_a_reader_sees_everything_and_no_way_to_change_it(console: Console) -> None:
    sign_in(console, READER)
    assert is_marked_read_only(console)
    for place in PLACES:
        arrive(console, place)
        found = console.browser.ask(
            f"[...document.querySelectorAll({json.dumps(CHANGES)})]"
            ".filter(each => !['pause', 'clear'].includes(each.dataset.action)"
            " || !each.closest('.view-frames')).map(each => each.outerHTML)"
        )
        assert found == [], place
    assert console.browser.complaints() == []


def test_an_operator_has_all_actions(console: Console) -> None:
    sign_in(console, OPERATOR)
    assert not is_marked_read_only(console)
    arrive(console, "dead-letters?name=/dlq/refused")
    actions = console.browser.ask(
        "[...document.querySelectorAll('.pane [data-action]')].map(each => each.dataset.action)"
    )
    assert actions == ["publish", "retry", "pause", "move", "purge", "delete"]
    arrive(console, "connections")
    assert console.browser.ask("document.querySelectorAll('td.action button').length") > 0


def test_a_forged_page_of_a_reader_changes_nothing(console: Console) -> None:
    """A reader can show the buttons, but the broker refuses."""
    sign_in(console, READER)
    # Each answer of the broker sets the role again.
    forged = "Object.defineProperty(me, 'role', {get: () => 'operator', set: () => {}})"
    console.browser.ask(f"import('/api.js').then(({{me}}) => {{ {forged}; }})")
    console.browser.ask("location.hash = '#/destinations?name=/queue/plain'")
    console.click(".pane button", "Pause")
    console.wait_text("This token may read, and change nothing", "#notices")
    [found] = [
        each
        for each in console.broker.get("destinations")["destinations"]
        if each["name"] == "/queue/plain"
    ]
    assert not found["is_paused"]


def test_users_and_rights_are_shown(console: Console) -> None:
    sign_in(console, READER)
    with Client(console.broker.endpoint, "ann:sesame"):
        console.open("access")
        console.wait_text("/queue/secret")
        shown = console.text("main")
        assert "memory" in shown
        assert "sesame" not in shown
        # A name of a user is text.
        assert "<b>eve</b>" in shown
        assert "group staff" in shown
        console.browser.press("/")
        console.browser.write("secret")
        console.wait("document.querySelectorAll('main tbody tr').length === 1")


def test_a_role_that_has_changed_is_shown_when_the_broker_is_back(
    browser: Chromium, tmp_path: Path
) -> None:
    tokens = [tmp_path / "one", tmp_path / "two"]
    with free_ports() as [port], processes(tmp_path) as start:
        announce = tmp_path / "announce"

        def started(operator: str, reader: str) -> Process:
            for file, token in zip(tokens, (operator, reader), strict=True):
                file.write_text(token)
            announce.unlink(missing_ok=True)
            settings = tmp_path / "settings.toml"
            settings.write_text(
                f'[admin]\nendpoints = ["tcp:{port}:interface=127.0.0.1"]\n'
                f"token_file = {json.dumps(str(tokens[0]))}\n"
                f"read_token_file = {json.dumps(str(tokens[1]))}\n"
            )
            options = ["--endpoint", LOOPBACK, "--announce", str(announce)]
            process = start(TWIST, "--config", str(settings), *options)
            announced(process, announce)
            return process

        process = started(OPERATOR, READER)
        console = Console(browser, Operated(process, announce, OPERATOR))
        browser.open(console.broker.url, "/destinations")
        console.wait("document.activeElement.id === 'token'")
        sign_in(console, OPERATOR)
        console.wait("document.querySelector('main [data-action=publish]')")
        console.click("main button", "Publish")
        browser.ask("document.querySelector('dialog [name=destination]').value = '/queue/a'")
        process.kill()
        console.wait_text("Connection lost", "#state")
        console.click("dialog button", "Publish")
        console.wait_text("It may have published the message", "dialog [role=alert]")
        browser.press("Escape")
        started(READER, OPERATOR)
        console.reconnect()
        console.wait("document.getElementById('role').checkVisibility()")
        console.wait("!document.querySelector('main [data-action=publish]')")


def test_signing_in_again_changes_the_role(console: Console, tmp_path: Path) -> None:
    sign_in(console, READER)
    console.click("#sign-out")
    console.wait("document.activeElement.id === 'token'")
    sign_in(console, OPERATOR)
    console.wait("!document.getElementById('role').checkVisibility()")
