"""What is read in a terminal: at most 80 columns, and nothing that is not meant for it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from stompkit.testing import RunningBroker
from tests.conformance.broken_sessions import OpenAfterError, error_says_nothing
from tests.conformance.command import BOUND_S, environment
from tests.conformance.conftest import Serve, Suite
from tests.conformance.proxy import behind
from tests.conformance.scripted import Line, connected, frame

QUICKLY = ("--timeout", "0.5")
CASES = (
    "1.?/error/message-header",
    "1.2/nack",
    "1.1/send/unprocessable-close",
    "1.0/error/body-detail",
)


def on_a_terminal(*arguments: str, cwd: Path) -> str:
    """Everything that the command writes to a terminal of 80 columns."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "stompkit.conformance", *arguments],
        cwd=cwd,
        env=environment(TERM="xterm"),
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    written = b""
    try:
        while octets := os.read(leader, 4_096):
            written += octets
    except OSError:  # how the other end of a terminal is closed
        pass
    os.close(leader)
    process.wait(BOUND_S)
    return written.decode("utf-8").replace("\r\n", "\n")


def test_terminal(serve: Serve, broker: RunningBroker, tmp_path: Path) -> None:
    """The line of progress shows the case that is run, and is gone in the end."""
    server = serve(behind(error_says_nothing, broker.host, broker.port))
    text = on_a_terminal("--mq", server.address, "--quiet-time", "0.1", *CASES, cwd=tmp_path)
    assert "\x1b" not in text
    pieces = re.split("[\r\n]", text)
    assert max(map(len, pieces)) <= 80
    steps = [piece.split() for piece in pieces if re.match(r"\d+/\d+ ", piece)]
    total = len(steps)
    assert [step[0] for step in steps] == [f"{n}/{total}" for n in range(1, total + 1)]
    assert steps[0][1] == "1.0/error/message-header"
    # What is left of each line, once it is overwritten, is all that was meant to stay.
    left = "\n".join(line.rpartition("\r")[2] for line in text.split("\n"))
    assert "1/" not in left.partition("NON-STRICT")[0]
    assert f"{total} cases, none failed" in left


def test_terminal_counts_failures(serve: Serve, broker: RunningBroker, tmp_path: Path) -> None:
    server = serve(behind(OpenAfterError, broker.host, broker.port))
    cases = ("1.1/send/unprocessable-close", "1.2/send/unprocessable-close")
    text = on_a_terminal("--mq", server.address, "--timeout", "0.5", *cases, cwd=tmp_path)
    assert "2/2  1 failed  1.2/send/unprocessable-close" in text


def talks_at_length(line: Line) -> None:
    """Whatever is told of this target is long: words, and one word."""
    connected(line, server="S/1 " + "word " * 50 + "x" * 200)
    for _ in line.frames():
        line.send(frame("ERROR", {"message": "no, " * 100 + "y" * 2_000}))


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_pipe(encoding: str, suite: Suite, serve: Serve) -> None:
    """Also where the output can't hold every character."""
    cases = ("1.?/begin", "1.?/nack", "1.?/abort")
    server = serve(talks_at_length)
    done = suite("--mq", server.address, *cases, PYTHONIOENCODING=encoding)
    assert done.status == 1, done.told
    assert max(map(len, done.out.splitlines())) <= 80
    assert not done.err


def test_reasons_for_unsupported_are_counted(suite: Suite, serve: Serve) -> None:
    def old(line: Line) -> None:
        _, headers = line.frame()
        answer = b"ERROR\n\n\0" if "accept-version" in headers else b"CONNECTED\n\n\0"
        line.send(answer)
        line.wait()

    done = suite("--mq", serve(old).address, "1.?/begin/starts*", "1.2/commit/commits", *QUICKLY)
    assert "UNSUPPORTED  2 cases: the target does not speak STOMP 1.2\n" in done.out
    assert "UNSUPPORTED  1 case: the target does not speak STOMP 1.1\n" in done.out


def test_list_fits(suite: Suite) -> None:
    assert max(map(len, suite("--list").out.splitlines())) <= 80
