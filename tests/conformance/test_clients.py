"""The command with ``--exec`` and ``--serve``: programs as real processes, exit status, reports."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import jsonschema
import msgspec
import pytest

from stompkit.conformance.clients.command import client_cases
from stompkit.conformance.report import schema
from stompkit.conformance.report.expectations import check, load
from tests.conformance.command import BOUND_S, ROOT, environment, interruptible, read_report
from tests.conformance.conftest import Suite
from tests.conformance.minimal_client import Agent
from tests.ports import free_range

PYTHON = shlex.quote(sys.executable)
AGENT = f"{PYTHON} -m tests.conformance.minimal_client {{host}} {{port}} {{case}}"
QUICK = ("client/connect/first-frame", "client/connect/host", "client/disconnect/ends")
#: Prints a line, connects to the given address, and then runs further code.
PROGRAM = """\
import os, socket, sys, time
print("this is the program, with", os.environ["STOMPKIT_HOSTS"], flush=True)
with open("pids", "a") as file:
    print(os.getpid(), file=file)
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
"""

Program = Callable[[str], str]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Writes a program with further code; returns the command that runs it."""

    def write(rest: str) -> str:
        path = tmp_path / "program.py"
        path.write_text(PROGRAM + rest)
        return f"{PYTHON} {shlex.quote(str(path))} {{host}} {{port}} {{case}}"

    return write


def test_a_client_that_keeps_the_rules_passes(suite: Suite, tmp_path: Path) -> None:
    done = suite("--exec", AGENT, "--strict", "--json", "report.json", *QUICK)
    assert done.status == 0, done.told
    assert "3 cases, none failed" in done.out
    report = read_report(tmp_path / "report.json")
    assert [result.id for result in report.results] == list(QUICK)
    assert report.target.versions == ["1.0", "1.1", "1.2"]
    assert "minimal_client" in report.target.address
    assert any("CONNECT\n" in event.text for event in report.results[0].wire)


def test_all_kinds_of_reports_are_written_of_a_client(suite: Suite, tmp_path: Path) -> None:
    kinds = ("json", "junit", "html", "markdown", "badge")
    files = [f"--{kind}={kind}" for kind in kinds]
    done = suite("--exec", AGENT, "--name", "minimal/7", *files, QUICK[0])
    assert done.status == 0, done.told
    for kind in kinds[:-1]:
        assert "minimal" in (tmp_path / kind).read_text("utf-8")
    assert msgspec.json.decode((tmp_path / "badge").read_bytes())["message"] == "1 of 1"
    merged = suite("merge", "json", "json", "--markdown", "merged")
    assert merged.status == 0, merged.told
    assert "minimal 7" in (tmp_path / "merged").read_text("utf-8")


def test_reports_of_clients_keep_to_the_schema(
    suite: Suite, program: Program, tmp_path: Path
) -> None:
    done = suite("--exec", program("sys.exit()"), "--json", "report.json", "client/connect")
    assert done.status == 1, done.told
    jsonschema.Draft202012Validator(json.loads(schema())).validate(
        json.loads((tmp_path / "report.json").read_bytes())
    )


def test_the_last_words_of_a_program_that_fails_are_told(suite: Suite, program: Program) -> None:
    done = suite("--exec", program("sys.exit('a reason to end')"), QUICK[0])
    assert done.status == 1, done.told
    told = " ".join(done.out.split())
    assert "the client closed the connection" in told
    assert "ended with status 1" in told
    assert re.search(r"this is the program, with 127\.0\.0\.1:\d+ / a reason to end", told)


def test_the_address_and_the_case_are_told(suite: Suite, program: Program, tmp_path: Path) -> None:
    suite("--exec", program("open('told', 'w').write(' '.join(sys.argv[1:]))"), QUICK[0])
    assert re.fullmatch(rf"127\.0\.0\.1 \d+ {QUICK[0]}", (tmp_path / "told").read_text())


def has_ended(pid: int) -> bool:
    """Return True if the process does not exist any more."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_program_that_hangs_is_ended(suite: Suite, program: Program, tmp_path: Path) -> None:
    done = suite("--exec", program("time.sleep(1000)"), "--timeout", 0.5, QUICK[0])
    assert done.status == 1, done.told
    assert "HUNG" in done.out
    assert "the client says nothing" in done.out
    assert has_ended(int((tmp_path / "pids").read_text()))


def test_nobody_waits_for_a_program_that_has_ended(suite: Suite, program: Program) -> None:
    done = suite("--exec", program("sys.exit(5)"), "--timeout", 1000, QUICK[0])
    assert done.status == 1, done.told


@pytest.mark.parametrize("rest", ["", "; time.sleep(1000)"])
def test_a_program_that_does_not_connect_is_no_client(suite: Suite, rest: str) -> None:
    words = shlex.join(
        [sys.executable, "-c", f"import time; print('{{port}} tells nothing', flush=True){rest}"]
    )
    done = suite("--exec", words, "--timeout", 0.5)
    assert done.status == 3, done.told
    assert "no STOMP client: the client did not connect" in done.err
    assert "tells nothing" in done.err


def test_a_program_that_can_not_be_started_is_no_client(suite: Suite, tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_text("neither a script nor a program")
    path.chmod(0o700)
    done = suite("--exec", f"{path} {{port}}")
    assert done.status == 3, done.told
    assert "no STOMP client: the program cannot be started" in done.err


def test_a_program_that_can_not_do_something_says_so(suite: Suite, program: Program) -> None:
    done = suite("--exec", program("sys.exit(77)"), QUICK[0])
    assert done.status == 1, done.told
    assert "UNSUPPORTED  1 case: the program cannot do it" in done.out


def test_ctrl_c_ends_the_run_and_the_program(
    suite: Suite, program: Program, tmp_path: Path
) -> None:
    command = program("os.kill(os.getppid(), 2); time.sleep(1000)")
    with interruptible():
        done = suite("--exec", command, "--timeout", 100, "--json", "report.json", *QUICK)
    assert done.status == 130, done.told
    assert "cut short after 0 of 3 cases: interrupted" in " ".join(done.out.split())
    assert not read_report(tmp_path / "report.json").complete
    assert all(has_ended(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def test_ctrl_c_starts_no_further_case(suite: Suite, program: Program, tmp_path: Path) -> None:
    command = program(
        "if len(open('pids').readlines()) == 1: sys.exit(77)\n"
        "os.kill(os.getppid(), 2); time.sleep(1000)"
    )
    with interruptible():
        done = suite("--exec", command, "--timeout", 100, "--jobs", 1, *QUICK)
    assert done.status == 130, done.told
    assert "cut short after 1 of 3 cases: interrupted" in " ".join(done.out.split())
    assert len((tmp_path / "pids").read_text().split()) == 2


# Known deviations of a client.


def test_what_is_expected_of_a_client_does_not_fail(suite: Suite, tmp_path: Path) -> None:
    wrong = AGENT.replace("{host}", "localhost")
    failed = suite("--exec", wrong, "--strict", "--update-baseline", "known.toml", *QUICK)
    assert failed.status == 1, failed.told
    assert "client/connect/host" in (tmp_path / "known.toml").read_text()
    done = suite("--exec", wrong, "--strict", "--expect", "known.toml", *QUICK)
    assert done.status == 0, done.told
    better = suite("--exec", AGENT, "--strict", "--expect", "known.toml", *QUICK)
    assert better.status == 1, better.told
    assert "better than expected: client/connect/host" in better.out


@pytest.mark.parametrize("path", sorted((ROOT / "conformance" / "clients").glob("*.toml")), ids=str)
def test_what_is_known_of_clients_is_about_cases_that_there_are(path: Path) -> None:
    known = load(path)
    check(known, [case.id for case in client_cases()])
    assert known.deviation
    assert all(deviation.reason for deviation in known.deviation)


# Usage.


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--exec", "true"], "needs {port}"),
        (["--exec", "'{port}"], "No closing quotation"),
        (["--exec", "no-such-program {port}"], "there is no program 'no-such-program'"),
        (["--exec", "true {port}", "--mq", "localhost:1"], "--mq is about a server"),
        (["--serve", "--broker", "coilmq"], "--broker is about a server"),
        (["--serve", "--no-ack"], "--no-ack is about a server"),
        (["--exec", "true {port}", "--port", "1"], "--port goes with --serve"),
        (["--port", "61613"], "--port goes with --serve"),
        (["--serve", "--port", "65536"], "is not a port"),
        (["--name", "x"], "--name goes with --serve"),
        (["--serve", "1.2/send/delivers"], "there is no case"),
        (["--serve", "--host", "no.such.host.invalid"], "--host: cannot wait for clients"),
        (["--serve", "--port", "65535"], "--port: ports "),
    ],
)
def test_what_makes_no_sense_is_a_wrong_usage(suite: Suite, words: list[str], told: str) -> None:
    done = suite(*words)
    assert done.status == 2, done.told
    assert told in done.err


def test_list_shows_the_cases_about_clients(suite: Suite) -> None:
    done = suite("--serve", "--list", "client/1.1", "--level", "fact")
    assert done.status == 0, done.told
    *lines, count = done.out.splitlines()
    listed = [line for line in lines if not line.startswith(" ")]
    assert count == f"{len(listed)} cases"
    assert "FACT   client/1.1/frame/grammar" in listed
    assert all(line.startswith("FACT   client/1.1/") for line in listed)
    covered = suite("--serve", "--list", "1.2/ack/id-matches-ack-header")
    assert "client/1.2/ack/names-message" in covered.out


# --serve


class Visitor(Agent):
    """A client that does not reconnect."""

    def goes_on(self, error: Exception) -> bool:
        """Return True only while no server listens."""
        return isinstance(error, ConnectionRefusedError)


class Serving:
    """``--serve`` as a process."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        """Start it, and read its table of ports."""
        with interruptible():
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-W",
                    "error",
                    "-m",
                    "stompkit.conformance",
                    "--serve",
                    *arguments,
                ],
                cwd=cwd,
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        assert self.process.stdout is not None
        self.lines = iter(self.process.stdout)
        self.ports: dict[str, list[int]] = {}
        #: The columns in which the cases begin.
        self.columns: set[int] = set()
        for line in self.lines:
            if "Ctrl-C" in line:
                break
            ports, case_id = line.split()
            self.columns.add(line.index(case_id))
            self.ports[case_id] = [int(port) for port in ports.split(",")]

    def visit(self, case_id: str) -> int:
        """Run a client on a case; return its exit status."""
        return Visitor(tuple(("127.0.0.1", port) for port in self.ports[case_id])).run()

    def wait_for(self, text: str) -> None:
        """Read lines until one contains this text."""
        assert any(text in line for line in self.lines)

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        """Send Ctrl-C; return the exit status and the remaining output."""
        self.process.send_signal(number)
        told = "".join(self.lines)
        return self.process.wait(BOUND_S), told


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., Serving]]:
    """Starts ``--serve``, and ends it after the test."""
    with ExitStack() as stack:

        def start(*arguments: str) -> Serving:
            started = Serving(*arguments, cwd=tmp_path)
            stack.enter_context(started.process)
            stack.callback(started.process.kill)
            # A test that waits for a missing line must see the end of the output.
            bound = threading.Timer(BOUND_S, started.process.kill)
            bound.start()
            stack.callback(bound.cancel)
            return started

        yield start


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_serve_judges_whoever_connects(
    serving: Callable[..., Serving], tmp_path: Path, number: signal.Signals
) -> None:
    cases = (QUICK[0], "client/failover/refused")
    server = serving("--json", "report.json", "--name", "visitor", *cases)
    for case_id in cases:
        assert server.visit(case_id) == 1
        server.wait_for(f"OK            {case_id}")
    status, told = server.end(number)
    assert status == 0, told
    assert "2 cases, none failed" in told
    report = read_report(tmp_path / "report.json")
    assert report.target.server == "visitor"
    assert report.target.versions == ["1.0", "1.1", "1.2"]


def test_the_last_verdict_of_a_case_counts(serving: Callable[..., Serving]) -> None:
    server = serving(QUICK[0])
    (port,) = server.ports[QUICK[0]]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"SEND\n\n\0")
        server.wait_for(f"FAILED        {QUICK[0]}")
    server.visit(QUICK[0])
    server.wait_for(f"OK            {QUICK[0]}")
    assert server.end()[0] == 0


def test_who_says_nothing_is_not_judged(serving: Callable[..., Serving]) -> None:
    server = serving(*QUICK[:1])
    (port,) = server.ports[QUICK[0]]
    socket.create_connection(("127.0.0.1", port)).close()
    server.visit(QUICK[0])
    server.wait_for(f"OK            {QUICK[0]}")
    assert server.end()[0] == 0


def test_serve_without_a_visitor_has_found_nothing(serving: Callable[..., Serving]) -> None:
    status, told = serving(*QUICK).end()
    assert status == 3
    assert "no client has connected" in told


def test_cases_that_nobody_came_for_are_missing(serving: Callable[..., Serving]) -> None:
    server = serving(*QUICK)
    server.visit(QUICK[0])
    server.wait_for(f"OK            {QUICK[0]}")
    status, told = server.end()
    assert status == 3, told
    assert "after 1 of 3 cases: no client has connected for the other 2" in " ".join(told.split())


def test_ports_follow_the_first_one(suite: Suite, serving: Callable[..., Serving]) -> None:
    with free_range(5) as first:
        server = serving("--port", str(first), *QUICK, "client/failover/refused")
        ports = [port for some in server.ports.values() for port in some]
        assert ports == list(range(first, first + 5))
        assert len(server.columns) == 1
        again = suite("--serve", "--port", first, *QUICK)
        assert again.status == 2, again.told
        assert "--port: ports " in again.err


# The guide.


def test_the_guide_shows_the_agent_and_names_the_others() -> None:
    guide = (ROOT / "docs" / "howto" / "conformance-clients.rst").read_text("utf-8")
    agents = ROOT / "conformance" / "clients" / "agents"
    _, _, code = (agents / "stompkit_testing.py").read_text("utf-8").split('"""', 2)
    shown = re.search(
        r"^\.\. conformance/clients/agents/stompkit_testing\.py\n\n"
        r"\.\. code-block:: python\n\n((?: .*\n|\n)*)",
        guide,
        re.MULTILINE,
    )
    assert shown is not None
    assert re.sub("^    ", "", shown[1], flags=re.MULTILINE).strip() == code.strip()
    known = (ROOT / "conformance" / "clients").glob("*.toml")
    assert [path.stem for path in known if f"``{path.stem}``" not in guide] == []
