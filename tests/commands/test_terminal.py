"""Commands escape control characters in data that they print."""

from __future__ import annotations

import json
import os
import pty
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit._commands.shared.message_lines import from_line, to_line
from stompkit._commands.shared.progress import Progress
from stompkit._common.text import json_line, shown, shown_lines

#: An 8-bit control sequence, a 7-bit one, a line end that only some know, a change of the text
#: direction, DEL, and characters that are not text.
NASTY = "\x9b31m \x1b]0;x\x07 \u2028 \u202e \x7f \udc80 \U000e0001"


def test_json_has_nothing_that_a_terminal_obeys() -> None:
    line = json_line({"name": NASTY, NASTY: ["caf\u00e9 \U0001f600"]})
    assert line.isprintable()
    assert "caf\u00e9 \U0001f600" in line
    assert json.loads(line) == {"name": NASTY, NASTY: ["caf\u00e9 \U0001f600"]}


def test_a_message_in_a_line_can_still_be_sent_again() -> None:
    body = "\x9b2J\u202ecaf\u00e9".encode()
    line = to_line({"destination": "/queue/a", "note": "\x9b2J"}, body)
    assert line.isprintable()
    message = from_line(line.encode())
    assert (message.body, message.headers["note"]) == (body, "\x9b2J")


@given(st.text(st.characters()))
def test_whatever_it_is(text: str) -> None:
    assert shown(text).isprintable()
    assert json_line(text).isprintable()
    assert json.loads(json_line(text)) == text


@pytest.mark.parametrize("text", [NASTY, "plain", "caf\u00e9"])
def test_text_that_can_be_printed_is_left_as_it_is(text: str) -> None:
    assert (shown(text) == text) is text.isprintable()


def test_the_line_ends_of_a_text_in_lines_stay() -> None:
    assert shown_lines("one\ntwo\x1b[2J\n") == "one\ntwo\\u001b[2J\n"


@pytest.fixture
def refusing() -> Iterator[str]:
    """HOST:PORT of a broker that refuses each login in words that a terminal obeys."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            with suppress(OSError):
                while True:
                    with listener.accept()[0] as client:
                        client.sendall(b"ERROR\nmessage:go away\x1b[2J\n\n\0")
                        client.shutdown(socket.SHUT_WR)
                        client.recv(65_536)

        thread = threading.Thread(target=refuse)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize(
    "command",
    [
        "spool run --from stomp://{}/queue/a {folder}/spool",
        "replicate --from stomp://{}/queue/a --to print --state-dir {folder}",
        "bridge --config {folder}/bridge.toml",
    ],
)
def test_words_of_a_broker_are_no_commands(refusing: str, tmp_path: Path, command: str) -> None:
    sites = "".join(f'[sites.{name}]\nurl = "stomp://{refusing}"\n' for name in ("a", "b"))
    route = '[[routes]]\nfrom = "a"\nto = "b"\nqueues = "/queue/a"\n'
    (tmp_path / "bridge.toml").write_text(sites + route)
    words = command.format(refusing, folder=tmp_path).split()
    with subprocess.Popen(
        [sys.executable, "-m", "stompkit", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as process:
        assert process.stderr is not None
        try:
            told = next(line for line in process.stderr if b"go away" in line)
        finally:
            process.kill()
    assert b"go away\\u001b[2J" in told


def test_progress_is_a_bar_up_to_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    try:
        with open(theirs, "w", encoding="utf-8", closefd=False) as file:
            monkeypatch.setattr(sys, "stderr", file)
            progress = Progress("sent", 200)
            for done, bar in ((50, f"[{'#' * 6}{'.' * 18}]  25%  50 "), (250, "#] 100%  250 ")):
                while not select.select([ours], [], [], 0.01)[0]:
                    progress(done)
                line = os.read(ours, 1024).decode()
                assert bar in line
                # The size of this terminal is unknown.
                assert line.endswith("/s")
            progress.end()
            assert os.read(ours, 1024).endswith(b"\r\x1b[K")
    finally:
        os.close(ours)
        os.close(theirs)
