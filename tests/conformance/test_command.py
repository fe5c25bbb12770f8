"""The command line: its output, and its exit status."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stompkit.conformance.run.options import parser
from stompkit.testing import RunningBroker
from tests.conformance.command import BOUND_S, environment, interruptible, read_report
from tests.conformance.conftest import Serve, Suite
from tests.conformance.scripted import Line, frame, receipts

QUICK = "1.2/connect/connected-on-accept"

#: Arguments, and the expected message: the option, and its requirement.
MISTAKES = [
    (["--mq", "localhost"], ["--mq", "'localhost' is not HOST:PORT", "localhost:61613"]),
    (["--mq", ":61613"], ["--mq", "is not HOST:PORT"]),
    (["--mq", "[]:61613"], ["--mq", "is not HOST:PORT"]),
    (["--mq", "::1:61613"], ["--mq", "is not HOST:PORT", "[::1]:61613"]),
    (["--mq", "localhost:0"], ["--mq", "'0' is not a port", "1 to 65535"]),
    (["--mq", "localhost:65536"], ["--mq", "'65536' is not a port"]),
    (["--mq", "localhost:0099999"], ["--mq", "is not a port"]),
    (["--mq", "localhost:stomp"], ["--mq", "'stomp' is not a port"]),
    (["--mq", "localhost:\u0663"], ["--mq", "is not a port"]),
    (["--mq", "localhost:1,localhost"], ["--mq", "'localhost' is not HOST:PORT"]),
    (["--broker", "nosuch"], ["--broker", "'nosuch' is not one of stompkit,", "command:"]),
    (["--level", "MUST,OUGHT"], ["--level", "'OUGHT' is not a level", "MUST, FACT, SHOULD, MAY"]),
    (["--expect", "nosuch"], ["--expect", "'nosuch' is neither a file nor one of those that come"]),
    (["--expect", "rabitmq"], ["come with the suite; did you mean rabbitmq?"]),
    (["--expect", "."], ["--expect", "'.' is neither a file"]),
    (["--json", "."], ["--json", ". is a folder", "name a file to write"]),
    (["--junit", "{file}/x.xml"], ["--junit", "is not a folder"]),
    (["--html", "{file}/a/b/x.html"], ["--html", "is not a folder"]),
    (["--markdown", "."], ["--markdown", ". is a folder", "name a file to write"]),
    (["--badge", "{file}/x.json"], ["--badge", "is not a folder"]),
    (["--update-baseline", "."], ["--update-baseline", ". is a folder"]),
    (["--cases", "nosuch"], ["--cases", "'nosuch' is not a folder"]),
    (["--require", "1.2,2.0"], ["--require", "'2.0' is not a version: 1.0, 1.1, 1.2"]),
    (["--timeout", "0"], ["--timeout", "'0' is not a number of seconds"]),
    (["--timeout", "nan"], ["--timeout", "'nan' is not a number of seconds"]),
    (["--quiet-time", "soon"], ["--quiet-time", "'soon' is not a number of seconds"]),
    (["--queue-template", "/queue/x"], ["--queue-template", "one {} for the name"]),
    (["--topic-template", "{}{}"], ["--topic-template", "one {} for the name"]),
    (["--topic-template", "{}{0}"], ["--topic-template", "no other brace"]),
    (["--login", "a\nb"], ["--login", "cannot hold"]),
    (["--passcode", "tell\nnobody"], ["--passcode", "cannot hold"]),
    (["--passcode-file", "nosuch"], ["--passcode-file: nosuch: No such file"]),
    (["--strictly"], ["--strictly"]),
]


@pytest.mark.parametrize("module", ["stompkit.conformance", "stompkit"])
def test_without_pytest_both_commands_name_the_extra(module: str, tmp_path: Path) -> None:
    hidden = "raise ModuleNotFoundError(\"No module named 'pytest'\", name='pytest')\n"
    (tmp_path / "pytest.py").write_text(hidden, encoding="utf-8")
    words = ["conformance"] if module == "stompkit" else []
    variables = environment()
    done = subprocess.run(
        [sys.executable, "-m", module, *words, "--list"],
        cwd=tmp_path,
        env={**variables, "PYTHONPATH": os.pathsep.join([str(tmp_path), variables["PYTHONPATH"]])},
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert (
        done.stderr == "the conformance suite needs pytest: pip install 'stompkit[conformance]'\n"
    )
    assert done.returncode == 4
    assert done.stdout == ""


@pytest.mark.parametrize(("arguments", "words"), MISTAKES, ids=lambda value: " ".join(value))
def test_mistake_is_told_with_the_option_and_what_it_wants(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(SystemExit) as stop:
        parser().parse_args([each.replace("{file}", str(file)) for each in arguments])
    assert stop.value.code == 2
    message = " ".join(capsys.readouterr().err.split())
    for word in words:
        assert word in message
    assert "nobody" not in message


def test_passcode_of_the_environment_is_checked_as_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STOMPKIT_MQ_PASSCODE", "tell\nnobody")
    with pytest.raises(SystemExit):
        parser().parse_args([])
    message = capsys.readouterr().err
    assert "--passcode" in message
    assert "nobody" not in message


def test_help_fits_the_terminal(suite: Suite) -> None:
    done = suite("--help", COLUMNS="80")
    assert done.status == 0
    assert max(map(len, done.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mq", "localhost:1", "--broker", "coilmq"], "--mq and --broker: test the one or"),
        (["--restart", "true"], "--restart is for the server that --mq names"),
    ],
)
def test_options_that_exclude_each_other(arguments: list[str], message: str, suite: Suite) -> None:
    done = suite(*arguments)
    assert done.status == 2, done.told
    assert done.err.startswith(f"stompkit.conformance: {message}")
    assert not done.out


def test_mistakes_that_only_the_cases_show(suite: Suite) -> None:
    """The first check needs no target: its absence is not noticed."""
    for arguments, message in (
        (["1.2/connect", "1.2/connekt"], "there is no case '1.2/connekt'"),
        (
            [QUICK, "--jobs 2"],
            "'--jobs 2' is one argument: give --jobs and its value as two, or as",
        ),
        ([QUICK, "--exclude", "1.2/conect"], "there is no case '1.2/conect'"),
        (["--cases", "."], "--cases: there is no case in "),
        (["--list", QUICK, "--exclude", QUICK], "no case is selected; --list shows what there is"),
    ):
        done = suite("--mq", "localhost:1", *arguments)
        assert done.status == 2, done.told
        assert done.err.startswith(f"stompkit.conformance: {message}"), done.told
        assert not done.out


def test_all_is_well(suite: Suite, mq: str) -> None:
    done = suite("--mq", mq, "1.?/connected")
    assert done.status == 0, done.told
    assert "none failed" in done.out
    assert not done.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["1.2/send", "1.1/ack"], "Nothing was judged: each case is UNSUPPORTED."),
        (
            ["--require", "1.0,1.1,1.2", "1.0/connect"],
            "The target does not speak STOMP 1.1, 1.2, which --require names: it speaks 1.0.",
        ),
    ],
)
def test_run_without_what_it_was_to_judge_is_no_success(
    arguments: list[str], sentence: str, suite: Suite, serve: Serve, tmp_path: Path
) -> None:
    """A server that refuses newer versions has no case that failed."""

    def old(line: Line) -> None:
        _, headers = line.frame()
        if "accept-version" in headers:
            line.send(frame("ERROR", {"message": "no"}))
            return
        line.send(frame("CONNECTED", {"session": "1"}))
        line.wait()

    reports = ("--json", "r.json", "--junit", "r.xml", "--html", "r.html", "--badge", "r.badge")
    done = suite("--mq", serve(old).address, *arguments, *reports)
    assert done.status == 1, done.told
    said = " ".join(done.out.split())
    assert sentence in said
    assert "none failed" not in said
    assert not [
        each for each in read_report(tmp_path / "r.json").results if each.verdict == "FAILED"
    ]
    assert 'errors="1"' in (tmp_path / "r.xml").read_text()
    assert sentence.rstrip(".") in (tmp_path / "r.html").read_text("utf-8")
    assert "no result" in (tmp_path / "r.badge").read_text()


def test_our_own_broker_is_started_and_stopped(suite: Suite, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from stompkit.conformance import Target, case, trial\n\n\n"
        '@trial("behaviour/host", "Is asked.", level="FACT", section="none")\n'
        "def test_host(target: Target) -> None:\n"
        '    """Look at what a CONNECT asks for."""\n'
        '    assert target.connect_headers()["host"] == "shop"\n'
    )
    done = suite("--vhost", "shop", "--cases", ".")
    assert done.status == 0, done.told
    assert done.out.startswith("No --mq: starting a stompkit broker.\nTarget  127.0.0.1:")
    assert "stompkit/" in done.out


def test_a_node_that_does_not_serve_is_named(suite: Suite, mq: str) -> None:
    done = suite("--mq", f"{mq},127.0.0.1:1", "failover/nodes/served", QUICK)
    assert done.status == 0, done.told
    assert "warning: node 2, 127.0.0.1:1, does not answer CONNECT" in done.err
    said = " ".join(done.out.split())
    assert f"127.0.0.1:1 does not answer CONNECT while {mq} serves, which the suite" in said


def test_broker_that_is_named_is_launched(suite: Suite) -> None:
    done = suite("--broker", "morbidq", "--no-receipts", "1.0/connect/always-connected")
    assert done.out.startswith("starting a morbidq broker.\nTarget  127.0.0.1:"), done.told
    assert done.status == 0, done.told


def test_broker_that_can_not_be_launched(suite: Suite) -> None:
    done = suite("--broker", "command:/no/such/program --port {port}", QUICK)
    assert done.status == 3, done.told
    assert "/no/such/program" in done.err


def test_report_that_can_not_be_written_in_the_end(
    suite: Suite, serve: Serve, tmp_path: Path
) -> None:
    """The path was writable at first. The result of the finished run is printed nevertheless."""

    def in_the_way(line: Line) -> None:
        (tmp_path / "r.json").mkdir(exist_ok=True)
        receipts(line)

    done = suite("--mq", serve(in_the_way).address, "--json", "r.json", QUICK)
    assert done.status == 2, done.told
    assert "1 case, none failed" in done.out
    assert done.err.startswith("stompkit.conformance: --json: cannot write r.json: ")


IMPORTS = """
from stompkit.conformance import Peer, Target, case

"""
GOOD = '''
@case("1.2/connect/connected-on-accept")
def test_good(peer: Peer) -> None:
    """Connect."""

'''
BROKEN = {
    "cannot be imported": ("import nosuch", "No module named 'nosuch'"),
    "unknown id": (
        '@case("1.2/no/such")\ndef test(peer):\n    """Do."""',
        "1.2/no/such is not in the catalogue of requirements",
    ),
    "no docstring": (
        '@case("1.2/send/delivers")\ndef test(peer): pass',
        "1.2/send/delivers: a case has a docstring that says what is expected",
    ),
    "no id": ('@case()\ndef test(peer):\n    """Do."""', "a case names the requirements"),
    "same name": (
        '@case("1.2/connect/connected-on-accept")\ndef test(peer):\n    """Do."""',
        "are both 1.2/connect/connected-on-accept",
    ),
    "takes no target": (
        '@case("1.2/send/delivers")\ndef test():\n    """Do."""',
        "function uses no argument 'version'",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_suite_that_can_not_be_loaded(name: str, suite: Suite, tmp_path: Path) -> None:
    source, message = BROKEN[name]
    (tmp_path / "test_it.py").write_text(IMPORTS + GOOD + source)
    done = suite("--list", "--cases", ".")
    assert done.status == 4, done.told
    assert "stompkit.conformance: the suite itself failed:" in done.err
    assert message in done.err


def test_case_with_a_mistake_costs_only_its_own_result(
    suite: Suite, mq: str, tmp_path: Path
) -> None:
    bad = '@case("1.2/send/delivers")\ndef test(peer):\n    """Do."""\n    peer.nosuch()\n'
    fixture = '@case("1.2/ack/acknowledges")\ndef test_2(peer, nosuch):\n    """Do."""\n'
    (tmp_path / "test_it.py").write_text(IMPORTS + bad + fixture + GOOD)
    reports = ("--json", "r.json", "--junit", "r.xml", "--html", "r.html")
    done = suite("--mq", mq, "--cases", ".", *reports)
    assert done.status == 4, done.told
    assert "1 case, none failed" in done.out
    assert "'Peer' object has no attribute 'nosuch'" in done.err
    assert "fixture 'nosuch' not found" in done.err
    report = read_report(tmp_path / "r.json")
    assert [each.id for each in report.results] == ["1.2/connect/connected-on-accept"]
    assert len(report.errors) == 2
    assert 'errors="2"' in (tmp_path / "r.xml").read_text()
    assert "2 in the suite itself" in (tmp_path / "r.html").read_text("utf-8")


def test_case_that_stumbles_over_an_answer_blames_the_target(
    suite: Suite, mq: str, tmp_path: Path
) -> None:
    """A missing or invalid header is an error of the target, and is reported as such."""
    source = '''
@case("1.2/message/destination")
def test_number(peer: Peer) -> None:
    """Do."""
    int(peer.frames[0].headers["server"])

@case("1.2/ack/acknowledges")
def test_missing(peer: Peer) -> None:
    """Do."""
    peer.frames[0].headers["nosuch"]
'''
    (tmp_path / "test_it.py").write_text(IMPORTS + source)
    done = suite("--mq", mq, "--cases", ".", "--json", "r.json")
    assert done.status == 1, done.told
    details = [each.detail for each in read_report(tmp_path / "r.json").results]
    assert details[0].startswith(
        "the case cannot go on with what came: ValueError: invalid literal"
    )
    assert details[1] == "the case cannot go on with what came: KeyError: 'nosuch'"


@pytest.mark.parametrize(("jobs", "done"), [("1", "1"), ("3", r"\d")])
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_interrupt_ends_the_run_with_what_there_is(
    number: int, status: int, jobs: str, done: str, serve: Serve, tmp_path: Path
) -> None:
    """On a signal in the second case, to all processes, the first case is reported.

    As by ``timeout``, the signal comes twice.
    """
    in_second_case = threading.Event()

    def behaviour(line: Line) -> None:
        if line.number == 6:
            in_second_case.set()
            line.wait()
        receipts(line)

    arguments = ["--mq", serve(behaviour).address, "--timeout", "50", "--junit", "r.xml"]
    arguments += ["--jobs", jobs]
    with interruptible():
        process = subprocess.Popen(
            [sys.executable, "-m", "stompkit.conformance", *arguments, "1.1/connect", QUICK],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    assert in_second_case.wait(BOUND_S)
    os.kill(process.pid, number)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=BOUND_S)
    assert process.returncode == status, out + err
    assert re.search(f"The run was cut short after {done} of 10 cases: interrupted\\.", out), out
    assert 'message="interrupted"' in (tmp_path / "r.xml").read_text()
    assert not err


def test_reader_that_goes_away(tmp_path: Path) -> None:
    """With ``... --list | head -0``, there is no error message, and the status is not 0."""
    process = subprocess.Popen(
        [sys.executable, "-m", "stompkit.conformance", "--list"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(BOUND_S) == 128 + signal.SIGPIPE
    assert err == b""


def test_a_server_that_is_still_starting_is_waited_for(
    stomp_broker_factory: Callable[..., RunningBroker], tmp_path: Path
) -> None:
    broker = stomp_broker_factory()
    broker.kill()
    wait = ("--mq", f"{broker.host}:{broker.port}", "--wait", "60")
    command = [sys.executable, "-m", "stompkit.conformance", *wait, QUICK]
    with socket.create_server((broker.host, broker.port)) as listener:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
        )
        # The suite has tried once, without success.
        listener.accept()[0].close()
    broker.restart()
    printed, _ = process.communicate(timeout=BOUND_S)
    assert process.returncode == 0, printed
    assert "1 OK" in printed or "none failed" in printed
