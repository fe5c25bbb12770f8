"""The appearance of the console: at any width, light and dark, with enough contrast."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser import Chromium
from tests.server.admin.consoles import VIEWS, Console, Operated, operated

WIDTHS = (360, 720, 1280)
LONG = "/queue/" + "averylongname" * 12
PLACES = (*VIEWS, "destinations?name=/queue/plain", "dead-letters?name=/dlq/refused")

#: Text with too little contrast to its background: below 4.5 to 1, or 3 to 1 for large text, as
#: WCAG 2 computes it. Disabled elements are exempt.
TOO_PALE = """(() => {
    const channel = value =>
        (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    const parts = text => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const behind = element => {
        for (; element; element = element.parentElement) {
            const [r, g, b, a = 1] = parts(getComputedStyle(element).backgroundColor);
            if (a === 1) return [r, g, b];
        }
        return [255, 255, 255];
    };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found = [];
    let seen = 0;
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
        if (element.closest(':disabled, [aria-disabled=true], .unseen')) continue;
        seen += 1;
        const style = getComputedStyle(element);
        const both = [light(parts(style.color)), light(behind(element))].sort((a, b) => b - a);
        const ratio = (both[0] + 0.05) / (both[1] + 0.05);
        if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5))
            found.push([walker.currentNode.data, ratio, element.outerHTML.slice(0, 80)]);
    }
    return seen > 10 ? found : 'nothing to be read';
})()"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    """A broker with data for each view, some of it long."""
    with operated(tmp_path_factory.mktemp("broker")) as running, running.client() as client:
        running.send("/queue/plain", "x" * 500, "word " * 100)
        running.send(LONG, "x")
        running.kill_letter("/queue/refused", "x" * 300)
        client.ask(f"SUBSCRIBE\nid:{'i' * 90}\ndestination:{LONG}\nack:client\n\n\0".encode())
        yield running


@pytest.fixture
def console(browser: Chromium, broker: Operated) -> Iterator[Console]:
    """The console of the broker, in the light scheme unless a test changes it."""
    browser.emulate()
    yield Console(browser, broker)
    browser.emulate()


def arrive(console: Console, place: str, width: int = 1280) -> None:
    console.open(place, width=width)
    console.wait("document.querySelectorAll('main .card').length > 0")
    if "name=" in place:
        console.click(".messages summary")
        console.wait("document.querySelector('.messages pre')")
    elif place not in ("frames", "durables", "access"):
        console.wait("document.querySelectorAll('main tbody tr').length > 0")


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    """A view; its tests run one after the other."""
    return str(request.param)


@pytest.fixture
def arrived(place: str, console: Console) -> Console:
    """The console with the view, which is loaded only if no test before has left it open."""
    if console.browser.ask("location.hash") != f"#/{place}":
        arrive(console, place)
    return console


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_has_to_be_scrolled_sideways(width: int, arrived: Console) -> None:
    console = arrived
    console.browser.resize(width)
    assert console.browser.ask("innerWidth") == width
    assert console.browser.ask("document.documentElement.scrollWidth") == width
    beyond = "[...document.querySelectorAll('main *')].filter(each => each.checkVisibility()"
    beyond += " && each.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML)"
    assert console.browser.ask(beyond) == []


@pytest.mark.parametrize("action", ["Move", "Publish"])
def test_question_fits_on_a_phone(action: str, console: Console) -> None:
    arrive(console, "destinations?name=/queue/plain", 360)
    console.click(".pane button", action)
    console.wait("document.querySelector('dialog[open]')")
    box = console.browser.ask("document.querySelector('dialog').getBoundingClientRect().toJSON()")
    assert box["left"] >= 0
    assert box["right"] <= 360
    console.browser.press("Escape")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_details_of_a_connection_fit_and_can_be_read(
    scheme: str, width: int, console: Console
) -> None:
    console.browser.emulate(color_scheme=scheme, reduced_motion=True)
    arrive(console, "connections", width)
    console.click("td.address a")
    console.wait("document.querySelector('.pane tbody tr')")
    assert console.browser.ask("document.documentElement.scrollWidth") == width
    assert console.browser.ask(TOO_PALE) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_form_of_a_message_can_be_read(scheme: str, console: Console) -> None:
    console.browser.emulate(color_scheme=scheme, reduced_motion=True)
    arrive(console, "destinations?name=/queue/plain")
    console.click(".pane button", "Publish")
    console.wait("document.querySelector('dialog[open]')")
    assert console.browser.ask(TOO_PALE) == []
    console.browser.press("Escape")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_that_wcag_asks_for(scheme: str, arrived: Console) -> None:
    arrived.browser.emulate(color_scheme=scheme, reduced_motion=True)
    assert arrived.browser.ask(TOO_PALE) == []
    arrived.browser.emulate()


def test_page_is_dark_where_that_is_wanted(console: Console) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        console.browser.emulate(color_scheme=scheme)
        console.open()
        colours[scheme] = console.browser.ask("getComputedStyle(document.body).backgroundColor")
    light, dark = (
        sum(map(int, colours[scheme].strip("rgb()").split(","))) for scheme in ("light", "dark")
    )
    assert light > 600
    assert dark < 150


def test_focus_is_seen(console: Console) -> None:
    """The focus is visible on each element that Tab reaches, up to the end of the page."""
    arrive(console, "destinations")
    plain = []
    for _ in range(25):
        console.browser.press("Tab")
        found = console.browser.ask(
            "(() => { const e = document.activeElement; const s = getComputedStyle(e);"
            " return e === document.body ? null : [e.outerHTML.slice(0, 80), s.outlineStyle,"
            " parseFloat(s.outlineWidth)]; })()"
        )
        if found is None:
            break
        if found[1] == "none" or found[2] < 2:
            plain.append(found)
    assert plain == []


@pytest.mark.parametrize("calm", [False, True])
def test_nothing_moves_where_that_is_not_wanted(calm: bool, console: Console) -> None:  # noqa: FBT001
    console.browser.emulate(reduced_motion=calm)
    arrive(console, "destinations?name=/queue/plain")
    console.click(".pane button", "Pause")
    console.wait("document.querySelector('.notice')")
    moves = console.browser.ask("getComputedStyle(document.querySelector('.notice')).animationName")
    assert (moves == "none") is calm
    console.click(".pane button", "Resume")
