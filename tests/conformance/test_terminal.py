"""Output to a terminal: at most 80 columns, and no control characters of the target."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from io import StringIO
from pathlib import Path

import pytest

from stompkit._common.style import Style
from stompkit.conformance.case import Case
from stompkit.conformance.report import TargetInfo
from stompkit.conformance.report.summary import header_lines, summary_lines
from stompkit.conformance.run.progress import Progress
from stompkit.conformance.verdict import Verdict
from stompkit.testing import RunningBroker
from tests.conformance.broken_sessions import OpenAfterError, error_says_nothing
from tests.conformance.command import BOUND_S, environment
from tests.conformance.conftest import Serve, Suite
from tests.conformance.proxy import behind
from tests.conformance.reports import CLEAN, a_report, result
from tests.conformance.scripted import Line, connected, frame

QUICKLY = ("--timeout", "0.5")
CASES = (
    "1.?/error/message-header",
    "1.2/nack",
    "1.1/send/unprocessable-close",
    "1.0/error/body-detail",
)
ANY_CASE = Case(
    id="",
    version="1.2",
    requirements=(),
    level="MUST",
    informational=False,
    statement="",
    expectation="",
    section="",
)


def on_a_terminal(*arguments: str, cwd: Path, no_color: str = "1") -> str:
    """Return everything that the command writes to a terminal of 80 columns."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "stompkit.conformance", *arguments],
        cwd=cwd,
        env=environment(TERM="xterm", NO_COLOR=no_color),
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    written = b""
    try:
        while octets := os.read(leader, 4_096):
            written += octets
    except OSError:  # the other end of a terminal is closed
        pass
    os.close(leader)
    process.wait(BOUND_S)
    return written.decode("utf-8").replace("\r\n", "\n")


def shown(text: str) -> list[str]:
    """Return the final lines on the screen, including the last step of the progress line."""
    # The visible part of each line after it was overwritten.
    return [line.rpartition("\r")[2] for line in text.split("\n")]


def steps(text: str) -> list[str]:
    """Return the texts of the progress line, in order."""
    return [piece.rstrip() for piece in re.split("[\r\n]", text) if re.match(r"\d+/\d+  \d", piece)]


def test_terminal(serve: Serve, broker: RunningBroker, tmp_path: Path) -> None:
    """The progress line counts finished cases, names running ones, and disappears at the end."""
    server = serve(behind(error_says_nothing, broker.host, broker.port))
    text = on_a_terminal(
        *("--mq", server.address, "--quiet-time", "0.1", "--jobs", "3"), *CASES, cwd=tmp_path
    )
    assert "\x1b" not in text
    assert max(map(len, re.split("[\r\n]", text))) <= 80
    said = [re.fullmatch(r"(\d+)/(\d+)  \d+:\d\d(  [^ ]+( \+ \d)?)?", step) for step in steps(text)]
    done = [int(step[1]) for step in said if step]
    total = int(said[0][2]) if said[0] else 0
    assert len(done) == len(said)
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, total)
    assert steps(text)[0].endswith("  1.0/error/message-header")
    assert any(step.endswith(" + 2") for step in steps(text))
    left = "\n".join(shown(text))
    assert "0/" not in left.partition("NON-STRICT")[0]
    assert f"{total} cases, none failed" in left


def test_terminal_counts_failures(serve: Serve, broker: RunningBroker, tmp_path: Path) -> None:
    server = serve(behind(OpenAfterError, broker.host, broker.port))
    cases = ("1.1/send/unprocessable-close", "1.2/send/unprocessable-close")
    text = on_a_terminal(
        *("--mq", server.address, "--timeout", "0.5", "--jobs", "1"), *cases, cwd=tmp_path
    )
    said = [re.sub(r"\d+:\d\d  ", "", step) for step in steps(text)]
    assert "1/2  1 failed  1.2/send/unprocessable-close" in said


def test_terminal_has_colours(serve: Serve, broker: RunningBroker, tmp_path: Path) -> None:
    server = serve(behind(OpenAfterError, broker.host, broker.port))
    cases = ("1.1/send/unprocessable-close", "1.2/send/delivers")
    text = on_a_terminal(
        *("--mq", server.address, "--timeout", "0.5", "--jobs", "1"),
        *cases,
        cwd=tmp_path,
        no_color="",
    )
    assert "\x1b[31mFAILED\x1b[0m  1.1/send/unprocessable-close" in text
    assert " \x1b[32mOK\x1b[0m " in text


class Terminal(StringIO):
    """A text stream that claims to be a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def test_progress_names_the_case_that_runs_for_longest() -> None:
    """The progress line also shows the time since the beginning."""
    terminal, now = Terminal(), [100.0]
    progress = Progress(terminal, 3, lambda: now[0])
    a, b, c = (dataclasses.replace(ANY_CASE, id=f"behaviour/topic/{name}") for name in "abc")
    progress.case(a)
    progress.case(b)
    now[0] += 75
    progress.result(result(b.id, Verdict.FAILED))
    progress.case(c)
    progress.result(result(a.id, Verdict.OK))
    progress.result(result(c.id, Verdict.OK))
    progress.end()
    assert steps(terminal.getvalue()) == [
        "0/3  0:00  behaviour/topic/a",
        "0/3  0:00  behaviour/topic/a + 1",
        "1/3  1:15  1 failed  behaviour/topic/a",
        "1/3  1:15  1 failed  behaviour/topic/a + 1",
        "2/3  1:15  1 failed  behaviour/topic/c",
        "3/3  1:15  1 failed",
    ]
    assert shown(terminal.getvalue()) == [""]


def test_tables_fit() -> None:
    """The tables fit for any names of chapters, counts and profiles."""
    report = a_report(CLEAN)
    chapters = ("1.0", "behaviour", "failover", "robustness", "client", "of-a-user-" + "x" * 60)
    report.results = [
        result(f"{chapter}/a/b", Verdict.OK, profile={f"{chapter} {'word ' * 9}": "does " * 30})
        for chapter in chapters
    ]
    report.results[0].profile = {"NACK": "dead letter", "x" * 70: "y" * 200}
    style = Style(StringIO())
    lines = summary_lines(report, strict=False, has_profile=True, style=style)
    assert max(map(len, lines)) <= 80
    head = lines.index(next(line for line in lines if line.startswith("chapter")))
    table = lines[head : lines.index("", head)]
    assert [line.split()[0] for line in table[2:-2]] == list(chapters[:-1])
    assert len({len(line) for line in table}) == 1
    column = next(line for line in lines if line.startswith("profile")).index("what the target")
    [nack] = [line for line in lines if line.startswith("NACK")]
    assert nack[column:] == "dead letter"
    short = summary_lines(report, strict=False, has_profile=False, style=style)
    assert "Profile: 7 observations; --profile prints them." in short
    assert not any(line.startswith("NACK") for line in short)


def test_one_observation_is_in_the_singular() -> None:
    report = a_report(CLEAN)
    report.results = [result("1.2/a/b", Verdict.OK, profile={"NACK": "dead letter"})]
    lines = summary_lines(report, strict=False, has_profile=False, style=Style(StringIO()))
    assert "Profile: 1 observation; --profile prints them." in lines


def test_reasons_that_differ_by_a_generated_name_are_one() -> None:
    report = a_report(CLEAN)
    report.results = [
        result(f"1.2/a/{name}", Verdict.UNSUPPORTED, detail=f"no /queue/stompkit-{name}: gone")
        for name in ("0123456789", "abcdef0123-17")
    ]
    lines = summary_lines(report, strict=False, has_profile=False, style=Style(StringIO()))
    assert "UNSUPPORTED  2 cases: no /queue/NAME: gone" in lines


def talks_at_length(line: Line) -> None:
    """All texts about this target are long: many words, or one word."""
    connected(line, server="S/1 " + "word " * 50 + "x" * 200)
    for _ in line.frames():
        line.send(frame("ERROR", {"message": "no, " * 100 + "y" * 2_000}))


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_pipe(encoding: str, suite: Suite, serve: Serve) -> None:
    """The output also works with an encoding that lacks some characters."""
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


@pytest.mark.parametrize("command", ["::error::said the broker", "##[error]said the broker"])
def test_no_line_is_a_command_for_a_ci_system(command: str) -> None:
    """Words of a target that come to begin a line are no commands."""
    said = " ".join(["x" * 70, command] * 3)
    report = a_report(f"{command} {said}")
    lines = summary_lines(report, strict=True, has_profile=True, style=Style(StringIO()))
    lines += header_lines(TargetInfo(address="[::1]:1", server=said, versions=["1.2"]), 1)
    assert any("said the broker" in line for line in lines)
    assert not [line for line in lines if line.lstrip().startswith(command[:3])]
