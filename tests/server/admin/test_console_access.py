"""The console if a token is required, and while the broker is unavailable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Chromium
from tests.ports import free_ports
from tests.server.admin.consoles import Console, Operated, operated
from tests.server.processes import LOOPBACK, TWIST, announced, processes

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    """A broker that requires a token."""
    with operated(tmp_path_factory.mktemp("broker"), token=TOKEN) as running:
        yield running


@pytest.fixture
def console(browser: Chromium, broker: Operated) -> Console:
    """The console of the broker, which asks for the token."""
    browser.emulate()
    browser.open(broker.url)
    browser.ask("sessionStorage.clear()")
    browser.open(broker.url, "/connections")
    found = Console(browser, broker)
    found.wait("document.activeElement.id === 'token'")
    return found


def test_token_opens_the_console_where_one_wanted_to_go(console: Console) -> None:
    console.browser.write(TOKEN)
    console.browser.press("Enter")
    console.wait("document.getElementById('state').dataset.state === 'live'")
    console.wait_text("Connections", "main h1")


def test_token_is_kept_for_the_tab_alone(console: Console) -> None:
    console.browser.write(TOKEN)
    console.browser.press("Enter")
    console.wait("document.getElementById('state').dataset.state === 'live'")
    console.open("destinations")
    assert console.browser.ask("localStorage.length") == 0
    assert console.browser.ask("document.cookie") == ""
    assert TOKEN not in console.browser.ask("location.href + document.documentElement.outerHTML")


def test_wrong_token_is_told(console: Console) -> None:
    console.browser.write("no such token at all")
    console.browser.press("Enter")
    console.wait_text("does not accept this token", "#login [role=alert]")
    assert console.focused() == "token"
    assert console.browser.ask("sessionStorage.length") == 0


def test_signing_out_forgets_the_token(console: Console) -> None:
    console.browser.write(TOKEN)
    console.browser.press("Enter")
    console.click("#sign-out")
    console.wait("document.activeElement.id === 'token'")
    assert console.browser.ask("sessionStorage.length") == 0
    assert console.text("#login [role=alert]") == ""
    assert "Not signed in" in console.text("header")


def test_console_says_that_the_broker_is_gone_and_comes_back_with_it(
    browser: Chromium, tmp_path: Path
) -> None:
    with free_ports() as [port], processes(tmp_path) as start:
        announce = tmp_path / "announce"
        options = ["--endpoint", LOOPBACK, "--announce", str(announce)]
        options += ["--admin", f"tcp:{port}:interface=127.0.0.1"]
        process = start(TWIST, *options)
        console = Console(browser, Operated(process, announce))
        console.open("destinations")
        process.kill()
        announce.unlink()
        console.wait_text("Connection lost", "#state")
        console.wait_text("Try now", "header")
        again = start(TWIST, *options)
        announced(again, announce)
        console.reconnect()
        console.wait("document.getElementById('state').dataset.state === 'live'")
        Operated(again, announce).send("/queue/after", "x")
        console.wait_text("/queue/after", "tbody")
