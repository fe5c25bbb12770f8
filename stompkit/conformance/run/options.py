"""The command line of ``python -m stompkit.conformance``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from stompkit._common.arguments import Parser, argument_type
from stompkit._common.secrets import SecretError, first_line
from stompkit.conformance.run.values import (
    LEVELS,
    addresses,
    broker,
    count,
    expectations,
    expectations_shipped,
    folder,
    jobs,
    levels,
    port,
    program,
    report_file,
    seconds,
    template,
    value,
    versions,
)
from stompkit.testing import BROKERS

__all__ = ["parser"]

_DESCRIPTION = """\
Test a STOMP server against the STOMP 1.0, 1.1 and 1.2 specifications, from raw
sockets. Without --mq, a stompkit broker is started, tested and stopped.
With --exec or --serve, clients are tested instead. To combine several reports
into one, see "merge --help".
"""

_EPILOG = """\
verdicts:
  OK             conforms to the specification
  NON-STRICT     does not follow a recommendation (SHOULD)
  FAILED         violates the specification
  UNSUPPORTED    the target lacks the tested feature
  INFORMATIONAL  left open by the specification; the notes of the report contain
                 the observed behaviour

exit status:
  0    all verdicts are as expected
  1    a case failed unexpectedly, or passed although --expect lists it, or each
       case is UNSUPPORTED, or a version of --require is not spoken
  2    wrong command line, no case selected, or a command given by an option
       failed
  3    no STOMP server answers, or it stopped answering
  4    internal error of the suite
  130  interrupted (Ctrl-C)

examples:
  python -m stompkit.conformance
  python -m stompkit.conformance --mq localhost:61613 --html report.html 1.2/ack
  python -m stompkit.conformance --mq localhost:61613 --login guest --vhost /
  python -m stompkit.conformance --list --level MUST 1.1/heartbeat
  python -m stompkit.conformance --exec './agent {host} {port} {case}'
  python -m stompkit.conformance merge a.json b.json --html table.html
"""

#: Types of reports, with their purpose.
_REPORTS = {
    "json": "a complete report with the wire log of each case",
    "junit": "a JUnit report for build servers",
    "html": "a report as one page with the wire log of each case",
    "markdown": "a table by chapter and the failures, for pull requests",
    "badge": "the number of cases that did not fail, for a badge of shields.io",
}


#: Options that other programs have for the address of a server.
_OF_TARGET = ("--target", "--server", "--url", "--address", "--broker-url")


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    made = Parser(
        prog="python -m stompkit.conformance",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.others = dict.fromkeys(_OF_TARGET, "--mq HOST:PORT")
    made.add_argument(
        "include",
        nargs="*",
        metavar="CASE",
        help="ids of cases or of requirements, patterns (1.?/send/*), or prefixes "
        "(1.2/ack) (default: all)",
    )
    _add_target(made)
    _add_client(made)
    _add_selection(made)
    _add_judgement(made)
    group = made.add_argument_group("reports")
    for name, what in _REPORTS.items():
        group.add_argument(f"--{name}", metavar="FILE", type=report_file, help=f"write {what}")
    group.add_argument(
        "--profile",
        action="store_true",
        help="print the profile: the behaviour of the target where the specification "
        "leaves a choice; reports always contain it",
    )
    group.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of --json and exit"
    )
    return made


def _passcode_in(path: str) -> str:
    """Return the passcode in the first line of a file."""
    return value(first_line(Path(path)))


def _add_target(made: argparse.ArgumentParser) -> None:
    target = made.add_argument_group("target")
    target.add_argument(
        "--mq",
        metavar="HOST:PORT",
        type=addresses,
        help="server to test; stomps://HOST:PORT?ca=FILE for TLS, with "
        "&cert=FILE&key=FILE for a client certificate, ws://HOST:PORT/PATH or "
        "wss:// for WebSockets, HOST:PORT,HOST:PORT for several nodes",
    )
    target.add_argument(
        "--broker",
        "--mq-broker",
        metavar="NAME",
        type=broker,
        help=f"launch a broker and test it: {', '.join(BROKERS)}, with an optional version as in"
        " rabbitmq:4, or command:CMD (default: stompkit, without --mq)",
    )
    target.add_argument(
        "--wait",
        metavar="SECONDS",
        type=seconds,
        default=0.0,
        help="if the server at --mq does not answer yet, retry for this long (default: 0)",
    )
    target.add_argument(
        "--restart",
        metavar="CMD",
        type=value,
        help="command that restarts the server at --mq, for the cases about restarts",
    )
    for does, what in (("stop", "stops a node"), ("start", "starts a stopped node")):
        target.add_argument(
            f"--{does}",
            metavar="CMD",
            type=value,
            help=f"command that {what}, for the failover cases; its environment has"
            " STOMPKIT_NODE (from 1), STOMPKIT_HOST and STOMPKIT_PORT, as in --mq",
        )
    target.add_argument(
        "--one-store",
        action="store_true",
        help="the nodes share or replicate their store: message loss between nodes is "
        "NON-STRICT, a failure with --strict (default: detect it)",
    )
    target.add_argument(
        "--no-ack",
        action="store_true",
        help="the server does not support ACK; cases that need it are UNSUPPORTED",
    )
    target.add_argument(
        "--no-receipts",
        action="store_true",
        help="the server sends no receipts; cases about receipts are UNSUPPORTED, other "
        "cases wait for a message instead",
    )
    target.add_argument(
        "--login", "--mq-login", metavar="NAME", type=value, help="login for CONNECT"
    )
    target.add_argument(
        "--passcode",
        "--mq-passcode",
        metavar="WORD",
        type=value,
        default=os.environ.get("STOMPKIT_MQ_PASSCODE"),
        help="passcode for CONNECT; use STOMPKIT_MQ_PASSCODE to hide it from process lists",
    )
    target.add_argument(
        "--passcode-file",
        dest="passcode",
        metavar="FILE",
        type=argument_type(_passcode_in, SecretError),
        help="file with the passcode for CONNECT, in its first line",
    )
    target.add_argument(
        "--vhost",
        "--mq-vhost",
        metavar="NAME",
        type=value,
        help="host header of CONNECT (default: HOST)",
    )
    for kind in ("queue", "topic"):
        target.add_argument(
            f"--{kind}-template",
            metavar="NAME",
            type=template,
            default=f"/{kind}/{{}}",
            help=f"name of a {kind} on the server; {{}} is replaced by a word (default:"
            " %(default)s)",
        )


def _add_client(made: argparse.ArgumentParser) -> None:
    client = made.add_argument_group("clients")
    client.add_argument(
        "--exec",
        metavar="CMD",
        type=program,
        help="test a client: run this program for each case, with {host}, {port} and "
        "{case} replaced; see the page 'Conformance tests for clients' of the documentation",
    )
    client.add_argument(
        "--serve",
        action="store_true",
        help="test clients that are started elsewhere: wait for them, on one port for each case",
    )
    client.add_argument(
        "--host",
        metavar="ADDRESS",
        type=value,
        default="127.0.0.1",
        help="address to wait for clients (default: %(default)s)",
    )
    client.add_argument(
        "--port",
        metavar="NUMBER",
        type=port,
        help="first port of --serve; the others follow it (default: free ports)",
    )
    client.add_argument(
        "--name",
        metavar="NAME",
        type=value,
        help="name of the client in reports, such as stomp.py/9.0.0 (default: file name of "
        "the program)",
    )


def _add_selection(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("selection")
    group.add_argument(
        "--list", action="store_true", help="list the cases with their statements, and exit"
    )
    group.add_argument(
        "--exclude",
        metavar="CASE",
        action="append",
        default=[],
        help="exclude these cases; repeatable",
    )
    group.add_argument(
        "--level",
        metavar="LEVEL",
        type=levels,
        default=(),
        help=f"only cases of these comma-separated levels: {LEVELS}",
    )
    group.add_argument(
        "--cases",
        metavar="FOLDER",
        type=folder,
        help="read the cases from this folder instead of the cases of the suite",
    )


def _add_judgement(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("judgement")
    group.add_argument("--strict", action="store_true", help="count NON-STRICT as a failure")
    group.add_argument(
        "--require",
        metavar="VERSIONS",
        type=versions,
        default=(),
        help="fail unless the server speaks these comma-separated versions, such as 1.1,1.2; "
        "cases of a version that it does not speak are UNSUPPORTED, which is not a failure",
    )
    known = ", ".join(expectations_shipped())
    lists = group.add_mutually_exclusive_group()
    lists.add_argument(
        "--expect",
        metavar="FILE",
        type=expectations,
        help=f"known deviations: a TOML file, or the name of a list of the suite ({known})",
    )
    lists.add_argument(
        "--update-baseline",
        metavar="FILE",
        type=report_file,
        help="read known deviations from this file, if it exists, and write the deviations "
        "of this run to it",
    )
    group.add_argument(
        "--jobs",
        metavar="NUMBER",
        type=jobs,
        default=4,
        help="number of parallel cases; failover and robustness cases run alone (default: "
        "%(default)s)",
    )
    group.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        default=3.0,
        help="seconds to wait for an answer (default: %(default)s)",
    )
    group.add_argument(
        "--quiet-time",
        metavar="SECONDS",
        type=seconds,
        default=0.5,
        help="seconds to wait before an expected silence is accepted (default: %(default)s)",
    )
    group.add_argument(
        "--fuzz",
        metavar="NUMBER",
        type=count,
        default=300,
        help="number of sessions with random faults in robustness/fuzzing (default: %(default)s)",
    )
    group.add_argument(
        "--seed",
        metavar="NUMBER",
        type=count,
        default=0,
        help="seed of the random faults (default: %(default)s)",
    )
