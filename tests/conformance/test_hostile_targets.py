"""The suite never hangs and never crashes, whatever the target does.

Each row is a target with the expected message to the user. The runs are concurrent, because they
wait most of the time.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from xml.etree import ElementTree

import pytest

from tests.conformance.command import BOUND_S, Finished, environment, read_report, run_command
from tests.conformance.conftest import Serve, Suite
from tests.conformance.hostile import (
    Http,
    answers_with_empty_frames,
    answers_with_errors,
    attacks_the_terminal,
    closes_after_connected,
    closes_at_once,
    closes_without_reading,
    drips,
    goes_mad_after_connected,
    goes_silent_after_the_probe,
    is_not_utf8,
    never_ends_its_frame,
    never_stops_frames,
    never_stops_garbage,
    never_stops_line_ends,
    never_stops_one_frame,
    promises_too_much,
    reads_nothing_more,
    refuses_everybody,
    resets_at_once,
    says_garbage,
    silent,
    speaks_of_the_future,
)
from tests.conformance.scripted import Behaviour, Line, ScriptedServer, receipts
from tests.effort import selected, some
from tests.namespaces import unshared

#: Cases that wait for RECEIPT, for ERROR, for the end of a connection and for nothing.
CASES = (
    "1.2/connect/connected-on-accept",
    "1.0/frame/null-ends-frame",
    "1.1/send/destination-required",
    "1.2/message/conveys",
)
#: One case after the other: the behaviour of a target may depend on the number of connections.
IN_ORDER = ("--quiet-time", "0.1", "--jobs", "1")
#: For targets that never reply, so that no reply can be late.
IMPATIENT = ("--timeout", "0.3", *IN_ORDER)
#: For targets that reply to some frames only, even slowly on a busy machine.
RESTRAINED = ("--timeout", "5", *IN_ORDER)
#: For targets that reply to everything, but in an unusual way.
PATIENT = ("--timeout", "20", *IN_ORDER)


@dataclass(frozen=True)
class Row:
    """A target and the expected result of the run."""

    #: A behaviour, or an address.
    target: Behaviour | str
    status: int
    #: A pattern for the output.
    told: str
    patience: tuple[str, ...] = PATIENT
    host: str = "127.0.0.1"
    cases: tuple[str, ...] = CASES


CUT_SHORT = r"cut short after 1 of 4 cases: the target no longer answers CONNECT\."
#: The suite has waited in vain, or has reached its limit for received data.
ENDLESS = r"but nothing like it came|the target sent more than \d+ (frames|octets)"
ROWS = {
    "nobody listens": Row("closed port", 3, "does not take a connection: Connection refused"),
    "silent": Row(silent, 3, r"does not answer CONNECT in 0\.3 s", IMPATIENT),
    "web server": Row("http", 3, r"no STOMP server at .*; it sent <!DOCTYPE HTML>"),
    "closes at once": Row(closes_at_once, 3, "closes the connection instead of answering CONNECT"),
    "resets at once": Row(resets_at_once, 3, "closes the connection|Connection reset by peer"),
    "garbage": Row(says_garbage, 3, r"cannot be read: .*; it sent \\"),
    "endless garbage": Row(never_stops_garbage, 3, "cannot be read"),
    "endless line ends": Row(never_stops_line_ends, 3, ENDLESS, RESTRAINED),
    "endless frames": Row(never_stops_frames, 1, ENDLESS, RESTRAINED, cases=CASES[1:2]),
    "one endless frame": Row(never_stops_one_frame, 3, "it sent CONNECTED", RESTRAINED),
    "silent after the probe": Row(goes_silent_after_the_probe, 3, CUT_SHORT, RESTRAINED),
    "garbage after CONNECTED": Row(goes_mad_after_connected, 1, "cannot be read"),
    "closes after CONNECTED": Row(closes_after_connected, 1, "target closed the connection"),
    "closes without reading": Row(closes_without_reading, 1, "target closed the connection"),
    "promises too much": Row(promises_too_much, 3, "expected CONNECTED, but nothing like it came"),
    "never ends its frame": Row(never_ends_its_frame, 3, "it sent CONNECTED", RESTRAINED),
    "not UTF-8": Row(is_not_utf8, 1, r"Target .*, \\udcff", RESTRAINED),
    "attacks the terminal": Row(
        attacks_the_terminal, 1, r"Target .*\\x1b\[2J\\x9b31m evil \\u202e", RESTRAINED
    ),
    "reads nothing more": Row(reads_nothing_more, 1, "but nothing like it came", RESTRAINED),
    "drips": Row(drips, 1, r"1\.0 1 0 0 0 0 1\.1 0 0 1 0 0 1\.2 2 "),
    "refuses everybody": Row(refuses_everybody, 3, "it answers CONNECT with ERROR 'go away'"),
    "speaks of the future": Row(speaks_of_the_future, 3, r"with version 2\.0"),
    "empty frames": Row(answers_with_empty_frames, 1, "FAILED", RESTRAINED),
    "only errors": Row(answers_with_errors, 1, "got ERROR"),
    "IPv6": Row(receipts, 1, r"Target \[::1\]:\d+,", host="::1"),
    "unknown host": Row("nosuch.invalid:61613", 3, "nosuch.invalid:61613: the target does not"),
    "no host name": Row("a..b:61613", 3, "a..b:61613: .*: not a host name"),
}


def started(row: Row, stack: ExitStack) -> str:
    """Start the target of a row; return its address."""
    if callable(row.target):
        return stack.enter_context(ScriptedServer(row.target, row.host)).address
    if row.target == "closed port":
        unused = stack.enter_context(socket.socket())
        unused.bind((row.host, 0))  # and nothing listens
        return f"{row.host}:{unused.getsockname()[1]}"
    if row.target == "http":
        server = stack.enter_context(ThreadingHTTPServer((row.host, 0), Http))
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        return f"{row.host}:{server.server_port}"
    return row.target


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Finished]]]:
    """A run on each target."""
    rows = {name: ROWS[name] for name in selected(request, "name")}
    cwd = tmp_path_factory.mktemp("runs")
    with ExitStack() as stack:
        addresses = {name: started(row, stack) for name, row in rows.items()}
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=8))
        yield {
            name: pool.submit(
                run_command, "--mq", addresses[name], *row.patience, *row.cases, cwd=cwd
            )
            for name, row in rows.items()
        }


@pytest.mark.parametrize("name", some(ROWS, 3))
def test_run_ends_and_says_why(name: str, runs: dict[str, Future[Finished]]) -> None:
    done = runs[name].result()
    assert done.status == ROWS[name].status, done.told
    assert re.search(ROWS[name].told, " ".join(done.told.split())), done.told
    assert "Traceback" not in done.told
    assert "the suite itself" not in done.told
    # One line with the reason if there are no results, or none.
    assert done.err.count("\n") == (done.status == 3 and "cut short" not in done.out), done.told
    assert all(line.isprintable() for line in done.told.split("\n")), done.told


@pytest.mark.parametrize("dies", [True, False], ids=["dies", "takes no more connections"])
def test_target_lost_in_the_middle(
    dies: bool,  # noqa: FBT001 (a parameter of the test)
    serve: Serve,
    suite: Suite,
    tmp_path: Path,
) -> None:
    """The probe uses three connections, a case one, and the check of the target another one."""

    def behaviour(line: Line) -> None:
        if line.number == 6:
            server.stop_listening()
            if dies:
                return
        receipts(line)

    server = serve(behaviour)
    reports = ("--json", "r.json", "--html", "r.html", "--junit", "r.xml")
    done = suite("--mq", server.address, *RESTRAINED, *reports, *CASES)
    assert done.status == 3, done.told
    cut_short = "after 2 of 4 cases: the target no longer answers CONNECT"
    assert f"cut short {cut_short}." in done.out
    assert "Traceback" not in done.told
    report = read_report(tmp_path / "r.json")
    assert (report.complete, report.selected, len(report.results)) == (False, 4, 2)
    assert report.results[-1].verdict == "FAILED"
    assert "afterwards it no longer answers CONNECT" in report.results[-1].detail
    assert cut_short in (tmp_path / "r.html").read_text("utf-8")
    errors = ElementTree.parse(tmp_path / "r.xml").findall("testsuite/testcase/error")
    assert [error.get("message") for error in errors] == ["the target no longer answers CONNECT"]


def test_lack_of_descriptors_is_no_fault_of_the_target(mq: str, tmp_path: Path) -> None:
    """The suite raises its soft limit; below a hard limit the error is its own."""
    case = "robustness/limits/connections"
    command = [sys.executable, "-m", "stompkit.conformance", "--mq", mq, case]
    for limit, status in (("-S -n 64", 0), ("-n 64", 4)):
        done = subprocess.run(
            ["bash", "-c", f'ulimit {limit} && exec "$@"', "bash", *command],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert ("the suite itself cannot open a connection" in done.stderr) == bool(status)
        assert "FAILED  robustness" not in done.stdout


def test_machine_without_an_address_for_the_target_is_told(tmp_path: Path) -> None:
    without_ipv6 = 'echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 && exec "$@"'
    within = unshared("--net", without_ipv6)
    command = [sys.executable, "-m", "stompkit.conformance", "--mq", "[::1]:61613"]
    done = subprocess.run(
        [*within, *command],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert done.returncode == 3, done.stdout + done.stderr
    assert "no address from which to reach that one" in done.stderr
    assert "ulimit" not in done.stderr
