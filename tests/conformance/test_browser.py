"""The HTML reports of real runs in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stompkit.conformance.report import Report
from stompkit.conformance.report.html import to_html
from stompkit.conformance.report.html_matrix import to_matrix
from stompkit.testing import RunningBroker
from tests.browser import Chromium
from tests.conformance.broken_messages import send_needs_no_destination
from tests.conformance.command import read_report, run_command
from tests.conformance.proxy import behind
from tests.conformance.reports import a_report
from tests.conformance.scripted import ScriptedServer

PNG = b"\x89PNG"
#: A phone, a screen where the parts of the header just fit beside each other, and a desktop.
WIDTHS = (400, 721, 1280)
PAGES = ("single.html", "matrix.html")
#: Some cases of each chapter and kind, both passing and failing; the last two have a profile.
CASES = ("1.2/send", "1.2/connect", "behaviour/1.?/ack/unknown", "behaviour/ack/settled-already")

#: Number of rows or cells of a table that are visible at present.
VISIBLE = """[...document.querySelectorAll('{selector}')]
    .filter(each => each.checkVisibility()).length"""
#: True if the target of the address is open, on the screen, and not behind the header.
ARRIVED = """(() => {
    const target = document.querySelector(':target');
    const box = target.getBoundingClientRect();
    const header = document.querySelector('header').getBoundingClientRect();
    const details = target.closest('details');
    return target.checkVisibility() && (!details || details.open)
        && box.top >= Math.max(0, header.bottom) && box.top < innerHeight;
})()"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, broker: RunningBroker) -> list[Report]:
    """Reports of a run on our broker, and of one on a broker that breaks a rule."""
    folder = tmp_path_factory.mktemp("reports")
    made = []
    with ScriptedServer(behind(send_needs_no_destination, broker.host, broker.port)) as careless:
        for name, address, status in (
            ("good", f"{broker.host}:{broker.port}", 0),
            ("bad", careless.address, 1),
        ):
            run = ("--mq", address, "--quiet-time", "0.1", "--json", f"{name}.json")
            done = run_command(*run, *CASES, cwd=folder)
            assert done.status == status, done.told
            made.append(read_report(folder / f"{name}.json"))
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, reports: list[Report]) -> Path:
    """A folder with the pages of these reports, and with pages of very long texts."""
    path = tmp_path_factory.mktemp("pages")
    (path / "single.html").write_bytes(to_html(reports[1]))
    (path / "matrix.html").write_bytes(to_matrix(reports))
    long = [a_report("x" * 500), a_report("word " * 100)]
    (path / "long-single.html").write_bytes(to_html(long[0]))
    (path / "long-matrix.html").write_bytes(to_matrix(long))
    return path


@pytest.fixture(autouse=True)
def _on_a_screen(browser: Chromium) -> Iterator[None]:
    yield
    browser.emulate()


@pytest.mark.parametrize("page", PAGES)
def test_page_is_shown_without_a_complaint(page: str, browser: Chromium, folder: Path) -> None:
    """Neither the light nor the dark scheme causes messages on the console."""
    shots = []
    for scheme in ("light", "dark"):
        browser.emulate(color_scheme=scheme)
        browser.open(folder / page)
        shots.append(browser.screenshot())
        assert browser.complaints() == []
    assert all(shot.startswith(PNG) for shot in shots)
    assert shots[0] != shots[1]


def test_what_a_page_says_on_the_console_would_be_noticed(
    browser: Chromium, tmp_path: Path
) -> None:
    page = tmp_path / "loud.html"
    page.write_text("<script>console.error('no'); undefined.x</script><img src='missing.png'>")
    browser.open(page)
    said = [each["method"] for each in browser.complaints()]
    assert set(said) >= {"Runtime.consoleAPICalled", "Runtime.exceptionThrown"}


def test_each_result_has_a_cell_and_details(
    browser: Chromium, folder: Path, reports: list[Report]
) -> None:
    browser.open(folder / "single.html")
    results = len(reports[1].results)
    assert browser.ask(VISIBLE.format(selector=".matrix a")) == results
    assert browser.ask(VISIBLE.format(selector="details.case > summary")) == results
    assert browser.ask(VISIBLE.format(selector=".profile tr")) == len(reports[1].profile()) > 0
    browser.open(folder / "matrix.html")
    cells = sum(len(report.results) for report in reports)
    assert browser.ask(VISIBLE.format(selector=".targets.marks td a")) == cells
    assert browser.ask(VISIBLE.format(selector="section[id]")) == results


@pytest.mark.matrix
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", [*PAGES, "long-single.html", "long-matrix.html"])
def test_page_is_as_wide_as_the_window(
    page: str, width: int, browser: Chromium, folder: Path
) -> None:
    """The page needs no horizontal scrolling, even with every case opened."""
    browser.open(folder / page, width=width)
    browser.ask("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert browser.ask("innerWidth") == width
    assert browser.ask("document.documentElement.scrollWidth") == width


@pytest.mark.matrix
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    ("page", "cell"),
    [
        ("single.html", ".matrix a.OK"),
        ("single.html", ".matrix a.FAILED"),
        ("single.html", ".findings a"),
        ("matrix.html", ".targets td a.OK"),
        ("matrix.html", ".targets td a.FAILED"),
        ("matrix.html", ".targets td a.INFORMATIONAL"),
        ("matrix.html", ".targets th a"),
    ],
)
def test_cell_leads_to_what_is_behind_it(
    page: str, cell: str, width: int, browser: Chromium, folder: Path
) -> None:
    """The target of the link is open then, and visible below the header."""
    browser.open(folder / page, width=width)
    closed = "document.querySelectorAll('details[open]').length"
    assert browser.ask(closed) == 0
    browser.ask(f"document.querySelector('{cell}').click()")
    assert browser.ask(ARRIVED)
    assert browser.ask(closed) <= 1


def test_address_of_a_case_opens_it(browser: Chromium, folder: Path) -> None:
    """A link to a case, as sent to other people, opens the case."""
    browser.open(folder / "single.html", "1.2/send/destination-required")
    assert browser.ask(ARRIVED)
    shown = browser.ask("document.querySelector('details[open]').innerText")
    for text in ("1.2/send/destination-required", "CONNECTED", "SEND needs destination."):
        assert text in shown


@pytest.mark.parametrize(
    ("page", "button", "rows", "kind"),
    [
        ("single.html", "show-bad", "details", ".bad"),
        ("single.html", "show-news", "details", ".news"),
        ("matrix.html", "show-bad", ".targets.marks tr:not(.chapter)", ".bad"),
        ("matrix.html", "show-bad", "section[id]", ".bad"),
        ("matrix.html", "show-differing", ".targets.words tbody tr", ".differs"),
        ("matrix.html", "show-differing", "section[id]", ".differs"),
    ],
)
def test_page_shows_what_was_asked_for(
    page: str, button: str, rows: str, kind: str, browser: Chromium, folder: Path
) -> None:
    browser.open(folder / page)
    everything = browser.ask(VISIBLE.format(selector=f"main {rows}"))
    some = browser.ask(VISIBLE.format(selector=f"main {rows}{kind}"))
    assert everything > some
    browser.ask(f"document.getElementById('{button}').click()")
    head = rows.startswith(".targets.marks")
    assert browser.ask(VISIBLE.format(selector=f"main {rows}")) == some + head
    assert browser.ask(VISIBLE.format(selector=f"main {rows}{kind}")) == some


def test_no_cell_leads_to_what_is_left_out(browser: Chromium, folder: Path) -> None:
    browser.open(folder / "single.html")
    browser.ask("document.getElementById('show-bad').click()")
    shown = """[...document.querySelectorAll('.matrix a')].filter(
        each => each.checkVisibility({visibilityProperty: true})).map(each => each.className)"""
    marks = browser.ask(shown)
    assert marks
    assert all("bad" in mark.split() for mark in marks)


@pytest.mark.matrix
@pytest.mark.parametrize("page", PAGES)
def test_what_is_shown_can_be_chosen_with_the_keyboard(
    page: str, browser: Chromium, folder: Path
) -> None:
    browser.open(folder / page)
    browser.ask("document.querySelector('input').focus()")
    browser.press("ArrowRight")
    assert browser.ask("document.querySelector('#show-bad').checked")
    assert browser.ask(VISIBLE.format(selector=":is(.single details, .several section).good")) == 0


def test_heads_of_columns_stay(browser: Chromium, folder: Path) -> None:
    browser.open(folder / "matrix.html", height=300)
    browser.ask("document.querySelector('.targets.marks tbody tr:last-child').scrollIntoView()")
    top = """[...document.querySelectorAll('.targets.marks thead th')].every(each => {
        const box = each.getBoundingClientRect();
        const seen = document.elementFromPoint(box.left + 9, box.top + 9);
        return box.top >= 0 && box.bottom < innerHeight && each.contains(seen);
    })"""
    assert browser.ask("scrollY") > 0
    assert browser.ask(top)


@pytest.mark.parametrize("page", PAGES)
def test_what_is_printed_is_what_is_not_ok(page: str, browser: Chromium, folder: Path) -> None:
    """All failures are printed expanded, without elements that only a screen can use."""
    browser.emulate("print")
    browser.open(folder / page, width=800)
    assert browser.ask(VISIBLE.format(selector="header, .log, details.good")) == 0
    assert browser.ask(VISIBLE.format(selector="details.bad dl")) > 0
