"""A headless Chromium that opens pages and answers questions about them.

The tests speak the Chrome DevTools Protocol with it over a pair of pipes. Messages are JSON, each
ended by NUL.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self, cast

import pytest

from stompkit.testing.plugin import settings_of

__all__ = ["Chromium", "browser", "chromium", "shared_browser"]

_PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Chromium reads its commands from descriptor 3 and answers on 4. When root runs it in a container,
#: it cannot have a sandbox, nor much shared memory. The pages are our own, so one process renders
#: all of them: starting another one for each page takes a tenth of the processor time.
_COMMAND: Final = (
    'exec "$@" --headless --no-sandbox --disable-dev-shm-usage --disable-gpu --no-first-run'
    " --hide-scrollbars --process-per-site --renderer-process-limit=1"
    " --remote-debugging-pipe 3<&0 4>&1 0</dev/null 1>/dev/null 2>&1"
)
#: Time in seconds within which Chromium answers. The first answers on a busy machine are slow.
_LIMIT_S: Final = 60.0
_NUL: Final = b"\0"
#: Keys with a function besides their character: their Windows key code, and their text.
_KEYS: Final = {
    "Tab": (9, ""),
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    " ": (32, " "),
    "End": (35, ""),
    "Home": (36, ""),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
}


def chromium() -> str | None:
    """Return the path of Chromium, or ``None`` if it is not installed."""
    return next(filter(None, map(shutil.which, _PROGRAMS)), None)


class Chromium:
    """A browser with at most one page, as wide as a desktop screen; a context manager."""

    def __init__(self, program: str, profile: Path) -> None:
        """Start the browser without a page, with an empty directory as its profile."""
        self._process = subprocess.Popen(
            ["sh", "-c", _COMMAND, "sh", program, f"--user-data-dir={profile}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._number = 0
        self._received = b""
        self._session = ""
        #: Events received, oldest first.
        self._events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        """Return the browser itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the browser."""
        try:
            # Killing the browser would leave its subprocesses behind.
            self._call("Browser.close")
            self._process.wait(_LIMIT_S)
        finally:
            self._process.kill()
            self._process.communicate()

    @contextmanager
    def page(self) -> Iterator[Self]:
        """Have an empty page which shares nothing with pages before it, such as their storage."""
        context = self._call("Target.createBrowserContext")["browserContextId"]
        try:
            target = self._call("Target.createTarget", url="about:blank", browserContextId=context)
            attached = self._call(
                "Target.attachToTarget", targetId=target["targetId"], flatten=True
            )
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self._call(f"{domain}.enable")
            yield self
        finally:
            self._session = ""
            self._call("Target.disposeBrowserContext", browserContextId=context)

    def open(
        self, page: Path | str, fragment: str = "", *, width: int = 1280, height: int = 900
    ) -> None:
        """Load a file or URL in a window of *width* times *height* pixels.

        The events of the previous page are dropped.
        """
        address = page.as_uri() if isinstance(page, Path) else page
        # Leave the page first: a change of the fragment alone would not load the page again.
        for url in ("about:blank", address + (f"#{fragment}" if fragment else "")):
            self.resize(width, height)
            self._events.clear()
            self._call("Page.navigate", url=url)
            self._wait_for("Page.loadEventFired")

    def resize(self, width: int, height: int = 900) -> None:
        """Set the size of the window, in pixels."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def emulate(
        self, media: str = "", *, color_scheme: str = "light", reduced_motion: bool = False
    ) -> None:
        """Emulate ``print`` or a screen, a light or dark color scheme, and reduced motion."""
        features = [
            {"name": "prefers-color-scheme", "value": color_scheme},
            {
                "name": "prefers-reduced-motion",
                "value": "reduce" if reduced_motion else "no-preference",
            },
        ]
        self._call("Emulation.setEmulatedMedia", media=media, features=features)

    def ask(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, which may be a promise."""
        answer = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def trust_everybody(self) -> None:
        """Accept every certificate from now on."""
        self._call("Security.setIgnoreCertificateErrors", ignore=True)

    def press(self, key: str) -> None:
        """Press and release a key on the keyboard; a single character stands for its key."""
        number, text = _KEYS.get(key, (0, key if len(key) == 1 else ""))
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code="" if len(key) == 1 else key,
                windowsVirtualKeyCode=number,
                **({"text": text} if kind == "keyDown" else {}),
            )

    def write(self, text: str) -> None:
        """Insert text at the focus, as if it was pasted."""
        self._call("Input.insertText", text=text)

    def click(self, selector: str, text: str = "") -> None:
        """Click in the middle of the first visible element that matches a selector and a text.

        A page may move or replace the element before the click arrives, or between the press and
        the release of the button. Then the click is withheld from the element that is there
        instead, and tried again.
        """
        deadline = time.monotonic() + _LIMIT_S
        while not self._click(selector, text):
            assert time.monotonic() < deadline, f"{selector} {text!r} never stays in its place"

    def _click(self, selector: str, text: str) -> bool:
        place = self.ask(
            f"""(() => {{
                const element = [...document.querySelectorAll({json.dumps(selector)})].find(
                    each => each.checkVisibility() && each.textContent.includes({json.dumps(text)})
                );
                if (!element) return null;
                element.scrollIntoView({{block: "nearest", behavior: "instant"}});
                const box = element.getBoundingClientRect();
                const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
                const isHit = there => element.contains(there) || there?.contains(element);
                if (!isHit(document.elementFromPoint(x, y))) return null;
                window.wasClicked = false;
                let pressed = null, isJudged = false;
                const look = event => {{
                    if (event.type === "mousedown" && isHit(event.target)) pressed = event.target;
                    // The click on a label makes another one, on its input.
                    const isFirst = event.type === "click" && !isJudged;
                    if (isFirst) {{
                        isJudged = true;
                        window.wasClicked = event.target === pressed;
                    }}
                    if (!pressed || (isFirst && !window.wasClicked)) {{
                        event.preventDefault();
                        event.stopImmediatePropagation();
                    }}
                }};
                window.looking = new AbortController();
                for (const type of ["mousedown", "mouseup", "click"]) {{
                    const signal = window.looking.signal;
                    window.addEventListener(type, look, {{capture: true, signal}});
                }}
                return [x, y];
            }})()"""
        )
        assert place, f"{selector} {text!r} is not there, or behind something"
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self._call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=place[0],
                y=place[1],
                button="none" if kind == "mouseMoved" else "left",
                clickCount=0 if kind == "mouseMoved" else 1,
            )
        # Another page does not have this: the click has led there.
        return self.ask("(window.looking?.abort(), window.wasClicked)") is not False

    def screenshot(self, *, whole: bool = False) -> bytes:
        """Return the visible part of the page, or the ``whole`` page, as PNG."""
        shot = self._call("Page.captureScreenshot", captureBeyondViewport=whole)
        return base64.b64decode(shot["data"])

    def complaints(self) -> list[dict[str, Any]]:
        """Return the console messages of the page and the browser since the page was opened."""
        self.ask("0")  # earlier events arrive before the answer
        said = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        return [event for event in self._events if event["method"] in said]

    def _call(self, method: str, **parameters: object) -> dict[str, Any]:
        self._number += 1
        message: dict[str, object] = {
            "id": self._number,
            "method": method,
            "params": parameters,
        }
        if self._session:
            message["sessionId"] = self._session
        pipe = cast("IO[bytes]", self._process.stdin)
        data = json.dumps(message).encode() + _NUL
        while data:
            data = data[os.write(pipe.fileno(), data) :]
        answer = self._take(lambda each: each.get("id") == self._number)
        assert "error" not in answer, (method, answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def _wait_for(self, method: str) -> None:
        if not any(event["method"] == method for event in self._events):
            self._take(lambda each: each.get("method") == method)

    def _take(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read until a message matches; keep the events before it."""
        until = time.monotonic() + _LIMIT_S
        while True:
            message = self._next(until)
            if "method" in message:
                self._events.append(message)
            if is_it(message):
                return message

    def _next(self, until: float) -> dict[str, Any]:
        pipe = cast("IO[bytes]", self._process.stdout)
        while _NUL not in self._received:
            ready, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"Chromium does not answer in {_LIMIT_S:g} s"
            octets = os.read(pipe.fileno(), 1 << 16)
            assert octets, "Chromium has ended"
            self._received += octets
        line, _, self._received = self._received.partition(_NUL)
        message: dict[str, Any] = json.loads(line)
        return message


@pytest.fixture(scope="session")
def shared_browser(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Chromium]:
    """Yield Chromium; if it is missing, skip the test or fail it, as for a missing broker."""
    program = chromium()
    if program is None:
        outcome = pytest.fail if settings_of(pytestconfig).missing == "fail" else pytest.skip
        raise outcome.Exception("no Chromium: apt-get install chromium", pytrace=False)
    with Chromium(program, tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture(scope="module")
def browser(shared_browser: Chromium) -> Iterator[Chromium]:
    """Yield Chromium with a page of its own for each module of tests."""
    with shared_browser.page() as browser:
        yield browser
