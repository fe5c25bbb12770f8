"""A broker with a console, as a process, and the console in a browser."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from stompkit.testing.launching.polling import wait_until
from tests.browser import Chromium
from tests.server.processes import (
    DEADLINE_S,
    LOOPBACK,
    TWIST,
    Client,
    Process,
    announced,
    processes,
)

__all__ = ["VIEWS", "Console", "Operated", "operated"]

VIEWS: Final = (
    *("overview", "destinations", "dead-letters", "connections", "durables", "frames"),
    "access",
)


class Operated:
    """A broker whose console and API are enabled."""

    def __init__(self, process: Process, announce: Path, token: str = "") -> None:
        """Wait until the broker listens."""
        self.process = process
        self.token = token
        self.endpoint = announced(process, announce)[0]
        admin = json.loads(announce.read_text(encoding="utf-8"))["admin"][0]
        self.url = f"http://{admin['host']}:{admin['port']}/"

    def client(self) -> Client:
        """Return a new client that is connected."""
        return Client(self.endpoint)

    def send(self, destination: str, *bodies: str) -> None:
        """Send messages, and wait for their receipts."""
        with self.client() as client:
            for body in bodies:
                assert client.send(destination, body).startswith(b"RECEIPT")

    def kill_letter(self, queue: str, *bodies: str) -> None:
        """Send messages to a queue and refuse each, so that they become dead letters."""
        self.send(queue, *bodies)
        with self.client() as client:
            frames = [client.subscribe(queue), *(client.receive() for _ in bodies[1:])]
            for frame in frames:
                ack = frame.split(b"\nack:")[1].split(b"\n")[0]
                assert client.ask(b"NACK\nid:%s\nreceipt:n\n\n\0" % ack).startswith(b"RECEIPT")
        self.wait_ready(f"/dlq/{queue.split('/', 2)[2]}", len(bodies))

    def get(self, path: str) -> Any:
        """Return the decoded response of the API."""
        request = urllib.request.Request(f"{self.url}api/v1/{path}")
        if self.token:
            request.add_header("authorization", f"Bearer {self.token}")
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return json.load(answer)

    def ready(self, name: str) -> int:
        """Return the number of ready messages in a queue; 0 if there is no queue."""
        found = self.get("destinations?limit=1000")["destinations"]
        return sum(int(each["ready"]) for each in found if each["name"] == name)

    def wait_ready(self, name: str, number: int) -> None:
        """Wait until a queue has *number* ready messages."""
        assert wait_until(lambda: self.ready(name) == number, DEADLINE_S), self.ready(name)


@contextmanager
def operated(directory: Path, settings: str = "", *, token: str = "") -> Iterator[Operated]:
    """Run a broker whose messages become dead letters after one delivery."""
    files = [directory / name for name in ("announce", "token", "settings.toml")]
    lines = ['[admin]\nendpoints = ["tcp:0:interface=127.0.0.1"]']
    if token:
        files[1].write_text(token, encoding="ascii")
        lines.append(f"token_file = {json.dumps(str(files[1]))}")
    if "[broker]" not in settings:
        lines.append("[broker]\nmax_deliveries = 1")
    files[2].write_text("\n".join([*lines, settings]), encoding="utf-8")
    options = ["--config", str(files[2]), "--endpoint", LOOPBACK, "--announce", str(files[0])]
    with processes(directory) as start:
        yield Operated(start(TWIST, *options), files[0], token)


class Console:
    """The console of a broker, operated like a user does."""

    def __init__(self, browser: Chromium, broker: Operated) -> None:
        """Store the browser; no page is opened yet."""
        self.browser = browser
        self.broker = broker

    def open(self, view: str = "overview", *, width: int = 1280, height: int = 900) -> None:
        """Load the page, and wait until it shows live data."""
        self.browser.open(self.broker.url, f"/{view}", width=width, height=height)
        self.wait("document.getElementById('state').dataset.state === 'live'")

    def wait(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        is_so = wait_until(lambda: self.browser.ask(f"Boolean({condition})"), DEADLINE_S)
        assert is_so, f"{condition}\n{self.text()}\n{self.browser.complaints()}"

    def text(self, selector: str = "body") -> str:
        """Return the visible text of an element, empty if there is none."""
        text = self.browser.ask(f"document.querySelector({json.dumps(selector)})?.innerText")
        return str(text or "")

    def wait_text(self, text: str, selector: str = "body") -> None:
        """Wait until an element contains a text."""
        found = wait_until(lambda: text in self.text(selector), DEADLINE_S)
        assert found, f"no {text!r} in {selector}:\n{self.text()}\n{self.browser.complaints()}"

    def click(self, selector: str, text: str = "") -> None:
        """Click on the element with a text, as soon as it is visible and enabled."""
        seen = (
            f"[...document.querySelectorAll({json.dumps(selector)})].some(each => !each.disabled"
            f" && each.checkVisibility() && each.textContent.includes({json.dumps(text)}))"
        )
        self.wait(seen)
        self.browser.click(selector, text)

    def reconnect(self) -> None:
        """Make the page connect, unless it has already done so by itself and hidden the button."""
        self.browser.ask("document.getElementById('try-now').click()")

    def focused(self) -> str:
        """Return the text, or the name, of the element with the focus."""
        here = "document.activeElement"
        return str(self.browser.ask(f"({here}.innerText || {here}.name || '').trim()"))

    def tab_to(self, text: str) -> None:
        """Press Tab until the element with a text has the focus."""
        for _ in range(60):
            if self.focused() == text:
                return
            self.browser.press("Tab")
        raise AssertionError(f"Tab does not lead to {text!r}")
