"""Takes the pictures of the console: ``pictures/console-*.png``.

It starts a broker and clients that have it do what a shop might, lets them run for a while, so that
charts have something to show, and has a headless Chromium look on: light, dark and as narrow as a
phone. Run it at the root of the checkout after a change of the console: ``python -m
docs.make_screenshots``. Look at what it has made.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Final

from docs.png import smaller
from stompkit.testing.client import ClientFailureError, NothingReceivedError, StompClient
from tests.browser import Chromium, chromium
from tests.server.admin.consoles import Console, Operated, operated

__all__ = ["main"]

_SETTINGS: Final = """
[broker]
max_deliveries = 1
[store]
path = {data}
[auth]
checkers = ["memory:shop:shop", "memory:billing:billing"]
anonymous = true
[auth.groups]
services = ["shop", "billing"]
[[rights]]
destination = ">"
allow = ["create", "read", "write"]
groups = ["services"]
[[rights]]
destination = ">"
allow = ["create", "read", "write"]
[[rights]]
destination = "/queue/reports.>"
allow = ["admin"]
users = ["billing"]
"""
#: Names, messages sent per second, and seconds that a consumer needs for one; 0 for no consumer.
_QUEUES: Final = [
    ("/queue/orders.eu", 31.0, 0.030),
    ("/queue/orders.us", 18.0, 0.015),
    ("/queue/invoices", 9.0, 0.02),
    ("/queue/mail.outgoing", 14.0, 0.068),
    ("/queue/thumbnails", 5.0, 0.12),
    ("/queue/search.index", 22.0, 0.01),
    ("/queue/audit", 1.5, 0.0),
    ("/queue/reports.monthly", 0.4, 0.0),
]
_TOPICS: Final = [("/topic/prices.gold.eur", 12.0), ("/topic/prices.silver.eur", 7.0)]
_DESK, _PHONE = (1280, 860), (360, 780)
#: The pictures: a name, a view, a colour scheme, a size, and actions before.
_PICTURES: Final = [
    ("overview", "overview", "light", _DESK, ""),
    ("overview-dark", "overview", "dark", _DESK, ""),
    ("overview-phone", "overview", "light", _PHONE, ""),
    ("destinations", "destinations", "light", _DESK, ""),
    ("destinations-phone", "destinations", "dark", _PHONE, ""),
    ("destination-dark", "destinations?name=/queue/orders.eu", "dark", _DESK, ""),
    ("dead-letters", "dead-letters?name=/dlq/mail.outgoing", "light", _DESK, ".messages summary"),
    ("connection", "connections", "light", _DESK, "td.address a"),
    ("access", "access", "dark", _DESK, ""),
    ("frames", "frames", "light", _DESK, ""),
]
_LIMIT_BYTES: Final = 150 * 1024
#: Time in seconds in which the small charts of a list fill, before the picture is taken.
_LIST_S: Final = 20.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Take the pictures; return the exit status, 1 if one has become too large."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=310.0, help="how long clients run before")
    into = Path(__file__).parent / "pictures"
    parser.add_argument("--into", type=Path, default=into, metavar="DIR", help="where they go")
    names = [name for name, *_ in _PICTURES]
    parser.add_argument("--only", nargs="+", default=names, choices=names, help="by default all")
    options = parser.parse_args(arguments)
    program = chromium()
    if program is None:
        print("no Chromium: apt-get install chromium", file=sys.stderr)
        return 1
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings = _SETTINGS.format(data=json.dumps(str(folder / "data")))
        broker = stack.enter_context(operated(folder, settings))
        profile = folder / "profile"
        browser = stack.enter_context(Chromium(program, profile))
        console = Console(stack.enter_context(browser.page()), broker)
        shop = stack.enter_context(Shop(broker))
        console.open()
        shop.run_for(options.seconds)
        wanted = [each for each in _PICTURES if each[0] in options.only]
        sizes = [_take(console, options.into, *each) for each in wanted]
    return int(max(sizes) > _LIMIT_BYTES)


def _take(
    console: Console,
    into: Path,
    name: str,
    view: str,
    scheme: str,
    size: tuple[int, int],
    opened: str,
) -> int:
    """Take one picture of the page that was open all the time; return its size in bytes."""
    browser = console.browser
    browser.emulate(color_scheme=scheme, reduced_motion=True)
    browser.resize(*size)
    here = browser.ask("location.hash")
    browser.ask(f"location.hash = {json.dumps(f'#/{view}')}")
    if here != f"#/{view}":
        time.sleep(_LIST_S)
    if opened:
        console.click(opened)
    browser.ask("document.activeElement.blur()")
    browser.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    data = smaller(browser.screenshot())
    (into / f"console-{name}.png").write_bytes(data)
    print(f"console-{name}.png: {len(data) / 1024:.0f} KiB")
    return len(data)


class Shop:
    """Clients that send, consume and reject, each in a thread; a context manager."""

    def __init__(self, broker: Operated) -> None:
        """Prepare without starting anything."""
        self._broker = broker
        self._is_over = Event()
        self._threads: list[Thread] = []

    def __enter__(self) -> Shop:
        """Start the clients."""
        for name, rate, work_s in _QUEUES:
            self._begin(self._send, name, rate)
            if work_s:
                self._begin(self._read, name, work_s)
        for name, rate in _TOPICS:
            self._begin(self._send, name, rate)
        for _ in range(3):
            self._begin(self._read, "/topic/prices.>", 0.0)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the clients."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def run_for(self, seconds: float) -> None:
        """Keep the clients running for this time."""
        self._is_over.wait(seconds)

    def _begin(self, work: Callable[..., None], *about: object) -> None:
        def run() -> None:
            endpoint = self._broker.endpoint
            # The broker ends first.
            with suppress(ClientFailureError, OSError):
                user = random.choice(["shop", "billing"])
                with StompClient.connect(
                    endpoint["host"],
                    endpoint["port"],
                    login=user,
                    passcode=user,
                    headers={"client-id": f"{user}-{len(self._threads)}"},
                ) as client:
                    work(client, *about)

        self._threads.append(Thread(target=run, daemon=True))
        self._threads[-1].start()

    def _send(self, client: StompClient, name: str, rate: float) -> None:
        phase = random.uniform(0, math.tau)
        number = 1000
        while True:
            # The rate varies with the time.
            now = rate * (1 + 0.45 * math.sin(time.monotonic() / 23 + phase))
            if self._is_over.wait(random.expovariate(now)):
                return
            number += 1
            body = json.dumps(
                {
                    "order": number,
                    "customer": random.choice(["Ada", "Grace", "Edsger", "Barbara"]),
                    "lines": [{"sku": f"A-{number % 97}", "number": number % 5 + 1}],
                    "total": round(random.uniform(5, 400), 2),
                }
            )
            headers = {"content-type": "application/json", "kind": name.rsplit("/", 1)[1]}
            client.send(name, body, receipt=True, headers=headers)

    def _read(self, client: StompClient, name: str, work_s: float) -> None:
        is_queue = name.startswith("/queue/")
        ack = "client-individual" if is_queue else "auto"
        client.subscribe(name, ack=ack, receipt=True, headers={"prefetch-count": "20"})
        while not self._is_over.is_set():
            try:
                message = client.receive(0.5)
            except NothingReceivedError:
                continue
            if not is_queue:
                continue
            # Processing takes time, and sometimes fails.
            self._is_over.wait(work_s * random.uniform(0.6, 1.4))
            settle = client.nack if random.random() < 0.004 else client.ack
            settle(message, receipt=False)


if __name__ == "__main__":
    sys.exit(main())
