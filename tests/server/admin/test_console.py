"""The console, operated with a mouse and with a keyboard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stompkit.testing.launching.polling import wait_until
from tests.browser import Chromium
from tests.server.admin.asking import DEADLINE_S
from tests.server.admin.consoles import VIEWS, Console, Operated, operated
from tests.server.processes import CONNECT, tcp

MARKUP = "<script>window.hit=1</script><img src=x onerror=window.hit=2>"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    """A broker for all tests; each test uses other queues."""
    with operated(tmp_path_factory.mktemp("broker")) as running:
        running.send("/queue/plain", "x")
        running.kill_letter("/queue/refused", "x")
        yield running


@pytest.fixture
def console(browser: Chromium, broker: Operated) -> Console:
    """The console of the broker, not yet opened."""
    browser.emulate()
    return Console(browser, broker)


def opened(name: str) -> str:
    """Return the path of the view of one destination."""
    return f"destinations?name={name}"


@pytest.mark.parametrize("view", VIEWS)
def test_view_is_shown_without_a_complaint(view: str, console: Console) -> None:
    """The browser's console has neither errors nor violations of the security policy."""
    console.open(view)
    console.wait("document.querySelector('main').childElementCount > 0")
    assert console.browser.ask("document.querySelector('[role=tab][aria-selected=true]').hash") == (
        f"#/{view}"
    )
    assert console.browser.complaints() == []


def test_queue_is_purged_by_clicks(console: Console) -> None:
    console.broker.send("/queue/clicked", *"abc")
    console.open("destinations")
    console.click("td.name a", "/queue/clicked")
    console.click(".pane button", "Purge")
    console.wait_text("3 messages will be deleted", "dialog")
    console.click("dialog button", "Purge")
    console.wait_text("3 messages purged from /queue/clicked", "#notices")
    console.wait_text("It does not exist", ".pane")
    assert console.broker.ready("/queue/clicked") == 0


def test_queue_is_purged_by_keys(console: Console) -> None:
    """The keyboard works from the first view to the last notice, and back to the list."""
    console.broker.send("/queue/other", "c")
    with console.broker.client() as client:
        client.ask(b"SUBSCRIBE\nid:1\ndestination:/queue/keyed\nselector:FALSE\nreceipt:s\n\n\0")
        console.broker.send("/queue/keyed", *"ab")
        _purge_by_keys(console)
    assert console.broker.ready("/queue/keyed") == 0
    assert console.broker.ready("/queue/other") == 1


def _purge_by_keys(console: Console) -> None:
    console.open()
    console.browser.press("2")
    # The address changes before the view does.
    console.wait("document.querySelector('main [name=contains]')")
    console.browser.press("/")
    assert console.focused() == "contains"
    console.browser.write("keyed")
    console.wait("document.querySelectorAll('td.name a').length === 1")
    console.tab_to("/queue/keyed")
    console.browser.press("Enter")
    console.wait("document.activeElement.id === 'pane-title'")
    console.tab_to("Purge…")
    console.browser.press("Enter")
    console.wait("document.querySelector('dialog[open]')")
    # Pressing Enter by mistake does nothing.
    assert console.focused() == "Cancel"
    console.tab_to("Purge")
    console.browser.press("Enter")
    console.wait_text("2 messages purged", "#notices")
    # The consumer keeps the queue, and the focus returns to the button.
    assert console.focused() == "Purge…"
    console.browser.press("Escape")
    console.wait("!document.querySelector('.pane')")
    assert console.focused() == "/queue/keyed"


@pytest.mark.parametrize("answer", ["Cancel", "Escape"])
def test_nothing_is_purged_where_the_question_is_not_answered(
    answer: str, console: Console
) -> None:
    console.broker.send("/queue/kept", "a")
    before = console.broker.ready("/queue/kept")
    console.open(opened("/queue/kept"))
    console.click(".pane button", "Purge")
    console.wait("document.querySelector('dialog[open]')")
    if answer == "Cancel":
        console.click("dialog button", "Cancel")
    else:
        console.browser.press("Escape")
    console.wait("!document.querySelector('dialog')")
    assert console.broker.ready("/queue/kept") == before


def test_chosen_dead_letter_is_retried(console: Console) -> None:
    """The message goes to the consumers of the queue; the others stay dead letters."""
    console.broker.kill_letter("/queue/tried", "first", "second")
    console.open("dead-letters")
    console.click("td.name a", "/dlq/tried")
    console.wait("document.querySelectorAll('.messages li').length === 2")
    console.click(".messages input")
    console.click(".pane section button", "Retry 1")
    console.wait_text("1 message sent back", "#notices")
    console.wait("document.querySelectorAll('.messages li').length === 1")
    with console.broker.client() as client:
        assert client.subscribe("/queue/tried").endswith(b"\n\nfirst")
    assert console.broker.ready("/dlq/tried") == 1


def test_all_dead_letters_are_retried(console: Console) -> None:
    console.broker.kill_letter("/queue/all-tried", *"abc")
    console.open("dead-letters?name=/dlq/all-tried")
    console.click(".pane button", "Retry all")
    console.wait_text("3 messages sent back", "#notices")
    assert console.broker.ready("/queue/all-tried") == 3
    assert console.broker.ready("/dlq/all-tried") == 0


def test_chosen_messages_are_deleted(console: Console) -> None:
    console.broker.send("/queue/chosen", *"abc")
    console.open(opened("/queue/chosen"))
    console.wait("document.querySelectorAll('.messages li').length === 3")
    console.click(".messages input")
    console.click(".pane section button", "Delete 1")
    console.click("dialog button", "Delete")
    console.wait_text("1 message deleted", "#notices")
    console.wait("document.querySelectorAll('.messages li').length === 2")
    assert console.text(".messages").split()[0] == "b"


def test_messages_are_moved(console: Console) -> None:
    console.broker.send("/queue/from", *"abc")
    console.open(opened("/queue/from"))
    console.click(".pane button", "Move")
    console.wait("document.activeElement.name === 'to'")
    console.browser.write("/queue/to")
    console.tab_to("limit")
    console.browser.write("2")
    console.browser.press("Enter")
    console.wait_text("2 messages moved to /queue/to", "#notices")
    assert console.broker.ready("/queue/from") == 1
    assert console.broker.ready("/queue/to") == 2


def test_paused_queue_delivers_when_it_is_resumed(console: Console) -> None:
    console.broker.send("/queue/paused", "a")
    console.open(opened("/queue/paused"))
    console.click(".pane button", "Pause")
    console.wait_text("Resume", ".pane .actions")
    console.wait_text("paused", ".pane .badge")
    with console.broker.client() as client:
        receipt = client.ask(
            b"SUBSCRIBE\nid:1\ndestination:/queue/paused\nack:auto\nreceipt:s\n\n\0"
        )
        assert receipt.startswith(b"RECEIPT")
        console.click(".pane button", "Resume")
        assert client.receive().endswith(b"\n\na")
    console.wait_text("delivers again", "#notices")


def test_destination_is_deleted(console: Console) -> None:
    console.broker.send("/queue/deleted", "a")
    console.open(opened("/queue/deleted"))
    console.click(".pane button[data-action=delete]")
    console.click("dialog button", "Delete")
    console.wait_text("/queue/deleted is deleted", "#notices")
    console.wait("!document.querySelector('.pane')")
    assert console.broker.ready("/queue/deleted") == 0


def test_refusal_is_told(console: Console) -> None:
    """A destination with a consumer cannot be deleted: the console shows the broker's message."""
    with console.broker.client() as client:
        client.ask(b"SUBSCRIBE\nid:1\ndestination:/queue/busy\nreceipt:s\n\n\0")
        console.open(opened("/queue/busy"))
        console.click(".pane button[data-action=delete]")
        console.click("dialog button", "Delete")
        console.wait("document.querySelector('#notices [role=alert]')")
        assert "consumer" in console.text("#notices")


def test_nothing_of_a_message_is_ever_markup(console: Console) -> None:
    """The console escapes the names of destination and headers, their values, and the body."""
    name = f"/queue/{MARKUP}"
    with console.broker.client() as client:
        frame = f"SEND\ndestination:{name}\n{MARKUP}:{MARKUP}\nreceipt:r\n\n{MARKUP}\0"
        assert client.ask(frame.encode()).startswith(b"RECEIPT")
        client.ask(f"SUBSCRIBE\nid:{MARKUP}\ndestination:{name}\nack:client\n\n\0".encode())
        console.open("destinations")
        console.click("td.name a", name)
        console.click(".messages summary")
        console.wait("document.querySelector('.headers')")
        shown = console.text(".pane")
        assert shown.count(MARKUP) >= 5
        for view in VIEWS:
            console.open(view)
            console.wait("document.querySelector('main').childElementCount > 0")
            made = console.browser.ask("document.querySelectorAll('main script, main img').length")
            assert made == 0
            assert console.browser.ask("window.hit") is None


def test_page_takes_no_text_for_markup_even_if_told_to(console: Console) -> None:
    console.open()
    raised = console.browser.ask(
        "(() => { try { document.body.innerHTML = '<b>x</b>'; } catch (e) { return e.name; } })()"
    )
    assert raised == "TypeError"


def test_body_that_is_no_text_is_dumped(console: Console) -> None:
    with console.broker.client() as client:
        client.ask(b"SEND\ndestination:/queue/binary\ncontent-length:4\nreceipt:r\n\n\xff\x00AB\0")
    console.open(opened("/queue/binary"))
    console.click(".messages summary")
    console.wait_text("000000  ff 00 41 42", ".messages")
    assert "..AB" in console.text(".messages")


def test_what_is_sent_meanwhile_is_shown(console: Console) -> None:
    console.broker.send("/queue/live", "a")
    console.open("destinations?contains=/queue/live")
    console.wait("document.querySelector('td.ready')?.textContent === '1'")
    console.browser.ask("window.same = document.querySelector('td.ready')")
    console.broker.send("/queue/live", "b", "c")
    console.wait("document.querySelector('td.ready').textContent === '3'")
    # The row is changed in place, so the focus stays.
    assert console.browser.ask("window.same === document.querySelector('td.ready')")
    console.broker.send("/queue/live.new", "d")
    console.wait_text("/queue/live.new", "tbody")


def test_rates_are_drawn(console: Console) -> None:
    console.open()
    console.broker.send("/queue/drawn", *"abcdef")
    points = "document.querySelector('.chart polyline').getAttribute('points')"
    console.wait(f"{points}.split(' ').some(point => Number(point.split(',')[1]) < 100)")


def test_charts_begin_before_the_page_is_opened(console: Console) -> None:
    console.broker.send("/queue/before", *"abcdef")

    def remembered() -> list[float]:
        return [each["received"] for each in console.broker.get("history")["rates"]]

    assert wait_until(lambda: len(remembered()) > 10 and max(remembered()) > 0, DEADLINE_S)
    console.open()
    points = "document.querySelector('.chart polyline').getAttribute('points').split(' ')"
    console.wait(f"{points}.length > 10")
    console.wait(f"{points}.some(point => Number(point.split(',')[1]) < 100)")


def test_table_is_sorted_and_filtered(console: Console) -> None:
    console.broker.send("/queue/sorted.a", "1")
    console.broker.send("/queue/sorted.b", *"123")
    console.broker.send("/queue/sorted.c", *"12")
    console.open("destinations?contains=/queue/sorted")
    names = "[...document.querySelectorAll('td.name')].map(each => each.innerText.at(-1)).join('')"
    console.wait(f"{names} === 'abc'")
    console.click("th button", "Ready")
    console.wait(f"{names} === 'bca'")
    ready = "document.querySelector('th.ready').getAttribute('aria-sort')"
    assert console.browser.ask(ready) == "descending"
    console.click("th button", "Ready")
    console.wait(f"{names} === 'acb'")
    assert console.browser.ask(ready) == "ascending"
    console.browser.ask("location.reload()")
    console.wait(f"document.readyState === 'complete' && {names} === 'acb'")


def test_arrow_keys_go_from_row_to_row_and_from_tab_to_tab(console: Console) -> None:
    for name in "abc":
        console.broker.send(f"/queue/arrow.{name}", "1")
    console.open("destinations?contains=/queue/arrow")
    console.wait("document.querySelectorAll('td.name a').length === 3")
    console.browser.ask("document.querySelector('td.name a').focus()")
    for key, name in (("ArrowDown", "b"), ("End", "c"), ("ArrowUp", "b"), ("Home", "a")):
        console.browser.press(key)
        assert console.focused() == f"/queue/arrow.{name}"
    console.browser.ask("document.querySelector('[aria-selected=true]').focus()")
    steps = {"ArrowRight": "dead-letters", "End": "access", "Home": "overview"}
    for key, view in steps.items():
        console.browser.press(key)
        console.wait(f"document.querySelector('main').className === 'view-{view}'")
        assert console.browser.ask("document.activeElement.getAttribute('aria-selected')") == "true"


def test_connection_is_closed(console: Console) -> None:
    with console.broker.client() as client:
        client.ask(b"SUBSCRIBE\nid:1\ndestination:/queue/closed\nreceipt:s\n\n\0")
        found = console.broker.get("connections")["connections"]
        peer = max(found, key=lambda each: str(each["connected"]))["address"]
        console.open("connections")
        console.wait_text(peer, "tbody")
        console.browser.press("/")
        console.browser.write(peer)
        console.wait("document.querySelectorAll('tbody tr').length === 1")
        console.click("td.action button")
        console.click("dialog button", "Close it")
        console.wait_text("is closed", "#notices")
        assert client.receive().startswith((b"ERROR", b""))
    console.wait("document.querySelectorAll('tbody tr').length === 0")


def test_durable_subscription_is_deleted(console: Console) -> None:
    with console.broker.client() as client:
        client.ask(
            b"SUBSCRIBE\nid:reader\ndestination:/topic/news\ndurable:true\nauto-delete:false\n"
            b"receipt:s\n\n\0"
        )
        client.ask(b"DISCONNECT\nreceipt:d\n\n\0")
    assert len(console.broker.get("durables")["durables"]) == 1
    console.open("durables")
    console.click("td.action button", "Delete")
    console.click("dialog button", "Delete")
    console.wait_text("is deleted", "#notices")
    assert console.broker.get("durables")["durables"] == []


def test_frames_are_shown_held_and_cleared(console: Console) -> None:
    number = "document.querySelectorAll('.frames li').length"
    console.open("frames?destination=/queue/framed")
    console.wait_text("Waiting for frames", ".pages")
    console.broker.send("/queue/framed", "a")
    console.broker.send("/queue/elsewhere", "a")
    console.wait_text("/queue/framed", ".frames")
    console.click("button", "Pause")
    before = console.browser.ask(number)
    console.broker.send("/queue/framed", "b")
    console.wait_text("since the pause", ".pages")
    assert console.browser.ask(number) == before
    console.click("button", "Pause")
    console.wait(f"{number} > {before}")
    assert "/queue/elsewhere" not in console.text(".frames")
    console.click("button", "Clear")
    console.wait(f"{number} === 0")


def test_frames_of_one_command_can_be_asked_for(console: Console) -> None:
    console.open("frames?command=SEND")
    console.wait_text("Waiting for frames", ".pages")
    console.broker.send("/queue/commanded", "a")
    console.wait_text("/queue/commanded", ".frames")
    assert "CONNECT" not in console.text(".frames")


def test_no_passcode_is_among_the_frames(console: Console) -> None:
    console.open("frames")
    console.wait_text("Waiting for frames", ".pages")
    login = CONNECT.replace(b"\n\n", b"\nlogin:me\npasscode:geheim\n\n")
    with tcp(console.broker.endpoint) as client:
        client.sendall(login)
        console.wait_text("CONNECTED", ".frames")
    console.browser.ask("document.querySelectorAll('.frames details').forEach(e => e.open = true)")
    console.wait_text("passcode", ".frames")
    assert "geheim" not in console.text(".frames")


def test_pieces_of_the_stream_may_be_cut_anywhere(console: Console) -> None:
    console.open()
    text = (
        "retry: 5\r\n\r\n: hello\nid: 1\nevent: a\ndata: x\ndata:y\r\n\r\ndata: z: é\r\rdata: half"
    )
    found = console.browser.ask(
        f"""import("/live.js").then(({{parser}}) => {{
            const text = {json.dumps(text)};
            const seen = new Set();
            for (let size = 1; size <= text.length; size++) {{
                const told = [];
                const parse = parser((type, data) => told.push([type, data]));
                for (let at = 0; at < text.length; at += size) parse(text.slice(at, at + size));
                seen.add(JSON.stringify(told));
            }}
            return [...seen];
        }})"""
    )
    assert [json.loads(each) for each in found] == [[["a", "x\ny"], ["message", "z: é"]]]


@pytest.mark.matrix
def test_ten_thousand_destinations_take_a_page_of_rows(console: Console, tmp_path: Path) -> None:
    with operated(tmp_path) as broker, broker.client() as client:
        many = [f"SEND\ndestination:/queue/many.{n:05}\n\nx\0" for n in range(10_000)]
        client.ask("".join([*many, "SEND\ndestination:/queue/z\nreceipt:r\n\nx\0"]).encode())
        one = Console(console.browser, broker)
        one.open("destinations")
        one.wait_text("of 10,001", ".pages")
        assert one.browser.ask("document.querySelectorAll('tbody tr').length") == 50
        one.click(".pages button", "Next")
        one.wait_text("51\N{EN DASH}100 of", ".pages")
        one.browser.press("/")
        one.browser.write("many.09999")
        one.wait("document.querySelectorAll('tbody tr').length === 1")
        one.wait_text("/queue/many.09999", "tbody")
