"""STOMP over WebSocket by stomp.js, in Node.js and in pages of a browser."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing.launching.polling import wait_until
from stompkit.testing.plugin import settings_of
from tests.browser import Chromium
from tests.integration.clients.driver import LIBRARIES, LibraryMissing
from tests.server.certificates import Authority
from tests.server.processes import DEADLINE_S, LOOPBACK, TWIST, Client, Process, processes

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "websocket"
ORDERS = "/queue/orders"
#: Runs the example in Node.js, whose versions up to 21 have no WebSocket.
NODE = """
import WebSocket from 'ws';
globalThis.WebSocket = WebSocket;
const {orders} = await import(process.cwd() + '/orders.mjs');
orders(...process.argv.slice(1), text => console.log(text));
"""
#: The items that the example's page has received.
ITEMS = "[...document.querySelectorAll('li')].map(item => item.textContent)"
#: Sends bytes and text of a page to itself; returns the number of unchanged ones.
ECHO = """
(async () => {
  const {Client} = await import('@stomp/stompjs');
  const octets = new Uint8Array(3000000).map((_, index) => (index * 7919) >> 3);
  const text = 'ä😀\\u0000'.repeat(100000);
  return await new Promise((resolve, reject) => {
    let good = 0;
    const client = new Client({
      brokerURL: WHERE,
      forceBinaryWSFrames: IS_BINARY,
      reconnectDelay: 0,
      onConnect: () => {
        client.subscribe('/queue/echo', message => {
          const body = message.binaryBody;
          if (message.headers.kind === 'octets'
            ? body.length === octets.length && body.every((each, index) => each === octets[index])
            : message.body === text) good += 1;
          if (message.headers.kind === 'text') {
            resolve(good);
            client.deactivate();
          }
        });
        const destination = '/queue/echo';
        client.publish({destination, binaryBody: octets, headers: {kind: 'octets'}});
        client.publish({destination, body: text, headers: {kind: 'text'}});
      },
      onStompError: frame => reject(new Error(frame.headers.message)),
      onWebSocketClose: event => reject(new Error(`closed: ${event.code} ${event.reason}`)),
    });
    client.activate();
  });
})()
"""
#: The protocol of an open WebSocket, or the code of its end.
OPEN = """
new Promise(resolve => {
  const socket = new WebSocket(WHERE, ['v11.stomp', 'v12.stomp']);
  socket.onopen = () => { resolve(socket.protocol); socket.close(); };
  socket.onclose = event => resolve(event.code);
})
"""


@pytest.fixture(scope="module")
def folder(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, with stomp.js beside it."""
    try:
        command = LIBRARIES["stomp.js-text"].install(tmp_path_factory.mktemp("pages"))
    except LibraryMissing as missing:
        outcome = pytest.fail if settings_of(pytestconfig).missing == "fail" else pytest.skip
        raise outcome.Exception(str(missing), pytrace=False) from None
    folder = Path(command[-1]).parent
    for each in EXAMPLES.iterdir():
        shutil.copy(each, folder)
    return folder


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[int]:
    """Port of the web server with the example."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """A broker that requires a login."""
    config = LaunchConfig(websocket=True, login="alice", passcode="secret")
    with launch(config) as running:
        yield running
    assert "Traceback" not in running.log


@contextmanager
def in_node(folder: Path, *arguments: str, **environment: str) -> Iterator[list[str]]:
    """Run the example in Node.js; return its output so far."""
    shown: list[str] = []
    process = subprocess.Popen(
        ["node", "--input-type=module", "-e", NODE, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = process.stdout
    reader = threading.Thread(target=lambda: shown.extend(line.rstrip("\n") for line in lines))
    reader.start()
    try:
        yield shown
    finally:
        process.kill()
        process.wait()
        reader.join()
        lines.close()


def place(broker: RunningBroker, order: str) -> None:
    with broker.client() as client:
        client.send(ORDERS, order.encode())


def ask(browser: Chromium, expression: str, **values: object) -> Any:
    """Evaluate code in the page, with values in place of names."""
    for name, value in values.items():
        expression = expression.replace(name, json.dumps(value))
    return browser.ask(expression)


def announced(process: Process, path: Path) -> tuple[dict[str, Any], int]:
    """Return the announced STOMP endpoint of a process, and its port for WebSockets."""
    process.wait_until(path.exists)
    document = json.loads(path.read_text(encoding="utf-8"))
    return document["endpoints"][0], document["websocket"][0]["port"]


# The example.


def test_the_documentation_shows_the_example() -> None:
    page = (EXAMPLES.parents[1] / "docs" / "howto" / "websocket.rst").read_text(encoding="utf-8")
    code = (EXAMPLES / "orders.mjs").read_text(encoding="utf-8")
    assert textwrap.indent(code, "    ") in page


def test_the_example_runs_in_node(folder: Path, broker: RunningBroker) -> None:
    place(broker, "one pizza")
    with in_node(folder, broker.ws_url, "alice", "secret") as shown:
        assert wait_until(lambda: shown == ["one pizza"], DEADLINE_S), shown
        url = broker.ws_url
        broker.kill()
        broker.restart()
        assert broker.ws_url == url
        place(broker, "another pizza")
        assert wait_until(lambda: shown == ["one pizza", "another pizza"], DEADLINE_S), shown


def test_the_example_tells_why_it_is_refused(folder: Path, broker: RunningBroker) -> None:
    with in_node(folder, broker.ws_url, "alice", "wrong") as shown:
        assert wait_until(lambda: shown, DEADLINE_S)
    assert shown[0].startswith("refused: ")


def test_the_example_runs_in_a_browser(browser: Chromium, site: int, broker: RunningBroker) -> None:
    place(broker, "one pizza")
    where = ",".join(quote(each, safe="") for each in (broker.ws_url, "alice", "secret"))
    browser.open(f"http://127.0.0.1:{site}/page.html", where)
    assert wait_until(lambda: browser.ask(ITEMS) == ["one pizza"], DEADLINE_S)
    broker.kill()
    broker.restart()
    place(broker, "another pizza")
    shown = ["one pizza", "another pizza"]
    assert wait_until(lambda: browser.ask(ITEMS) == shown, DEADLINE_S)


# Browsers.


@pytest.mark.parametrize("is_binary", [True, False], ids=["binary", "text"])
def test_large_bodies_come_back_to_a_page(browser: Chromium, site: int, *, is_binary: bool) -> None:
    with launch(LaunchConfig(websocket=True)) as broker:
        browser.open(f"http://127.0.0.1:{site}/page.html")
        assert ask(browser, ECHO, WHERE=broker.ws_url, IS_BINARY=is_binary) == 2


def test_pages_of_other_hosts_get_in_only_where_they_are_named(
    browser: Chromium, site: int, tmp_path: Path
) -> None:
    with processes(tmp_path) as start:
        ports = []
        for number, more in enumerate(([], ["--allow-origin", f"http://localhost:{site}"])):
            path = tmp_path / f"announce{number}"
            arguments = ["--endpoint", LOOPBACK, "--websocket", LOOPBACK, *more]
            process = start(TWIST, *arguments, "--announce", str(path))
            ports.append(announced(process, path)[1])
        seen = {}
        for host in ("127.0.0.1", "localhost"):
            browser.open(f"http://{host}:{site}/page.html")
            urls = [f"ws://127.0.0.1:{port}/" for port in ports]
            seen[host] = [ask(browser, OPEN, WHERE=url) for url in urls]
        assert seen == {"127.0.0.1": ["v12.stomp"] * 2, "localhost": [1006, "v12.stomp"]}


# TLS.


def test_wss(folder: Path, browser: Chromium, site: int, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    path = tmp_path / "announce"
    tls = f"stomps:0:interface=127.0.0.1:certificate={authority.server()}"
    with processes(tmp_path) as start:
        arguments = ["--endpoint", LOOPBACK, "--websocket", tls, "--announce", str(path)]
        process = start(TWIST, *arguments)
        plain, port = announced(process, path)
        url = f"wss://127.0.0.1:{port}/"
        with (
            Client(plain) as client,
            in_node(folder, url, "", "", NODE_EXTRA_CA_CERTS=str(authority.file)) as shown,
        ):
            assert client.send(ORDERS, "one pizza").startswith(b"RECEIPT")
            assert wait_until(lambda: shown == ["one pizza"], DEADLINE_S), process.log
        browser.open(f"http://127.0.0.1:{site}/page.html")
        assert ask(browser, OPEN, WHERE=url) == 1006
        browser.trust_everybody()
        assert ask(browser, OPEN, WHERE=url) == "v12.stomp"
        assert ask(browser, OPEN, WHERE=f"ws://127.0.0.1:{port}/") == 1006
        process.wait_for("the client sent an HTTP request without TLS")
        process.terminate()
        assert "Traceback" not in process.log
